"""Which machine and which process: what a run writes down so that nobody judges or signals the wrong one."""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
from pathlib import Path

import psutil


def host() -> str:
    """This machine's name."""
    return socket.gethostname()


@functools.cache
def boot_id() -> str:
    """A name for the time since the machine last started: pids mean nothing across it."""
    if sys.platform == "darwin":
        command = ["/usr/sbin/sysctl", "-n", "kern.bootsessionuuid"]
        found = subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()
        return found or str(int(psutil.boot_time()))
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return str(int(psutil.boot_time()))


def process_started(pid: int) -> float | None:
    """When a live process started, in seconds; None if there is none (a zombie counts as none).

    On Linux since boot, which no change of the clock moves; elsewhere since the epoch.
    """
    try:
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.create_time() - (psutil.boot_time() if sys.platform == "linux" else 0)
    except (psutil.Error, ValueError, OverflowError):
        return None


def same_process(pid: int, started: float) -> bool:
    """Whether the process of that pid is still the one that started then."""
    now = process_started(pid)
    return now is not None and abs(now - started) < 2


def this_process() -> dict[str, str | int | float]:
    """The fields of status.json that name the process which writes it."""
    return process(os.getpid())


def process(pid: int) -> dict[str, str | int | float]:
    """The same for another process of this machine."""
    return {"pid": pid, "pid_started": process_started(pid) or 0.0, "host": host(), "boot_id": boot_id()}
