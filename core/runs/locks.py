"""One run at a time on a device: a file lock, and tickets that say whose turn it is. A run on several GPUs holds all.

Both lie in a folder of this user on this machine (not in the runs folder, which may be shared or copied), so that all
labs of a user queue for the same device. The operating system frees the lock of a process that dies; its ticket is
skipped because nobody of that pid, start time and boot is alive.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from core.runs import machine
from core.runs.folders import RunError
from core.runs.status import write_atomic

POLL_S = 0.3


def locks_dir() -> Path:
    """The folder of locks and tickets, made if need be; ADVANTAGE_LAB_LOCKS names another.

    Not under TMPDIR or XDG_RUNTIME_DIR: two shells of one user must find the same one, also after a logout.
    """
    chosen = os.environ.get("ADVANTAGE_LAB_LOCKS")
    user = os.getuid() if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
    base = Path("/tmp") if os.name == "posix" else Path(tempfile.gettempdir())
    path = Path(chosen) if chosen else base / f"advantage-lab-{user}"
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or (hasattr(os, "getuid") and found.st_uid != os.getuid()):
        raise RunError(f"{path} is not a folder of yours; set ADVANTAGE_LAB_LOCKS to one that is")
    return path


def run_lock(run_dir: Path) -> FileLock:
    """The lock that a run's worker holds for its whole life, so that a run never has two."""
    name = hashlib.sha256(str(run_dir.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:24]
    folder = locks_dir() / "runs"
    folder.mkdir(exist_ok=True)
    return _file_lock(folder / f"{name}.lock")


def clear_abandoned(root: Path, prefix: str) -> None:
    """Remove the folders of `root` whose names begin so and that no process holds: those that a killed one left."""
    for path in root.glob(f"{prefix}*"):
        with contextlib.suppress(Timeout), run_lock(path).acquire(timeout=0):
            shutil.rmtree(path, ignore_errors=True)


def _file_lock(path: Path) -> FileLock:
    return FileLock(path, mode=0o600, thread_local=False, fallback_to_soft=False)


@dataclass(frozen=True)
class Ticket:
    """A place in a device's line."""

    number: int
    path: Path
    run: str
    holder: dict[str, Any] = field(compare=False)

    @property
    def alive(self) -> bool:
        who = self.holder
        same_machine = who.get("host") == machine.host() and who.get("boot_id") == machine.boot_id()
        return same_machine and machine.same_process(int(who.get("pid") or 0), float(who.get("pid_started") or 0))


class DeviceQueue:
    """The line for one device: take a ticket, wait for the turn, hold the device, leave."""

    def __init__(self, device: str) -> None:
        self.device = device
        self.folder = locks_dir() / device
        self.folder.mkdir(exist_ok=True)
        self.lock = _file_lock(self.folder / "device.lock")
        self.ticket: Ticket | None = None

    def next_number(self) -> int:
        """A number after every ticket there is."""
        return max([time.time_ns(), *(ticket.number + 1 for ticket in self.tickets())])

    def enter(self, run: str, number: int | None = None, pid: int | None = None) -> Ticket:
        """Put a ticket in the line for a process (this one by default); with a number, exactly there."""
        number = self.next_number() if number is None else number
        holder = machine.process(os.getpid() if pid is None else pid)
        path = self.folder / f"{number:020d}-{holder['pid']}.ticket"
        write_atomic(path, json.dumps({"run": run, **holder}))
        return Ticket(number, path, run, holder)

    def tickets(self) -> list[Ticket]:
        """All tickets in order; those of dead processes are thrown away."""
        found = []
        for path in sorted(self.folder.glob("*.ticket")):
            number = path.name.partition("-")[0]
            try:
                data = json.loads(path.read_text(encoding="utf-8"))
                ticket = Ticket(int(number), path, str(data.get("run", "")), data)
                alive = ticket.alive
            except FileNotFoundError:
                continue
            except (OSError, ValueError, TypeError, AttributeError):
                alive = False
            if alive:
                found.append(ticket)
            else:
                path.unlink(missing_ok=True)
        return found

    def wait(self, run: str, number: int | None, on_wait: Callable[[str], None], give_up: Callable[[], bool]) -> bool:
        """Hold the device once every earlier ticket is gone; False if `give_up` said so first.

        `on_wait` is told in words where in the line the run stands, whenever that changes.
        """
        self.ticket = self.enter(run, number)
        said = ""
        while True:
            if give_up():
                self.leave()
                return False
            mine = (self.ticket.number, self.ticket.path)
            ahead = [ticket for ticket in self.tickets() if (ticket.number, ticket.path) < mine]
            if not ahead and self._acquired():
                return True
            words = f"waiting for {self.device}"
            if ahead:
                words += f", {ordinal(len(ahead))} in line, after {ahead[-1].run}"
            if words != said:
                on_wait(words)
                said = words
            time.sleep(POLL_S)

    def _acquired(self) -> bool:
        try:
            self.lock.acquire(timeout=0)
        except Timeout:
            return False
        return True

    def keep(self) -> None:
        """Touch lock and ticket, so that nothing that clears old temporary files takes them away."""
        ticket = self.ticket
        for path in (self.lock.lock_file, ticket.path if ticket else None):
            with contextlib.suppress(FileNotFoundError):
                os.utime(path or self.folder)

    def leave(self) -> None:
        """Free the device and throw the ticket away; more than once does no harm."""
        if self.ticket is not None:
            self.ticket.path.unlink(missing_ok=True)
            self.ticket = None
        self.lock.release(force=True)


class DeviceQueues:
    """The lines for all the devices that one run holds together."""

    def __init__(self, devices: list[str]) -> None:
        self.queues = [DeviceQueue(device) for device in sorted(devices)]

    def next_number(self) -> int:
        return max(queue.next_number() for queue in self.queues)

    def enter(self, run: str, number: int, pid: int) -> None:
        """The same place in every line: of two runs that share devices, one is first on all of them."""
        for queue in self.queues:
            queue.enter(run, number, pid)

    def wait(self, run: str, number: int | None, on_wait: Callable[[str], None], give_up: Callable[[], bool]) -> bool:
        """Hold all devices, one after another; False if `give_up` said so first."""
        number = self.next_number() if number is None else number
        for queue in self.queues:
            queue.ticket = queue.enter(run, number)
        if all(queue.wait(run, number, on_wait, give_up) for queue in self.queues):
            return True
        self.leave()
        return False

    def keep(self) -> None:
        for queue in self.queues:
            queue.keep()

    def leave(self) -> None:
        for queue in self.queues:
            queue.leave()


def ordinal(n: int) -> str:
    """1st, 2nd, 3rd, 4th, 11th."""
    suffix = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{suffix}"


def device_key(device: str) -> str:
    """The device that a run's setting means here, found without torch: `cpu`, or `cuda-0` and the like."""
    return device_keys(device)[0]


def device_keys(device: str, processes: int = 1) -> list[str]:
    """The same for a run of several processes: one GPU each. Fewer where there are not so many."""
    if device == "cpu" or (device == "auto" and not has_cuda()):
        return ["cpu"]
    gpus = visible_gpus()[:processes] or ["0"]
    return ["cuda-" + (re.sub(r"[^A-Za-z0-9]+", "-", gpu).strip("-") or "0") for gpu in gpus]


def visible_gpus() -> list[str]:
    """The NVIDIA GPUs that torch would see, by index or as CUDA_VISIBLE_DEVICES names them; without torch."""
    if not has_cuda():
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",")]
    return [str(index) for index, _ in enumerate(Path("/dev").glob("nvidia[0-9]*"))] or ["0"]


def has_cuda() -> bool:
    """Whether torch would find an NVIDIA GPU: a device file, not hidden, and a build of torch that is not CPU-only."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0").strip() in ("", "-1"):
        return False
    if not any(Path("/dev").glob("nvidia[0-9]*")) and not Path("/dev/dxg").exists():
        return False
    from importlib.metadata import PackageNotFoundError, version

    try:
        return not version("torch").endswith("+cpu")
    except PackageNotFoundError:
        return False
