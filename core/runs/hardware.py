"""How much memory this machine and its GPU have, found without torch."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

QUERY = ("--query-gpu=index,uuid,name,memory.total,memory.free", "--format=csv,noheader,nounits")
WSL = Path("/usr/lib/wsl/lib/nvidia-smi")
ANSWER_S = 10.0
"""Seconds to wait for an answer."""
REMEMBERED_S = 10.0


@dataclass(frozen=True)
class Memory:
    """The memory that a run computes in, in bytes. `free` is what nobody uses at the moment."""

    where: str  # in words: the card's name, or "this machine"
    total: int
    free: int


def host_memory() -> Memory:
    """The machine's own; what other programs would give back counts as free."""
    now = psutil.virtual_memory()
    return Memory("this machine", now.total, now.available)


def gpu_memory() -> Memory | None:
    """The memory of the NVIDIA GPU that a run would take: the first that CUDA_VISIBLE_DEVICES leaves in sight.

    Asks nvidia-smi. None where it is missing or silent, or does not know (a slice of a card, say).
    """
    cards = _cards(_ask(int(time.monotonic() / REMEMBERED_S)))
    wanted = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0].strip()
    for index, uuid, memory in cards:
        if wanted == index or (wanted and uuid.startswith(wanted)):
            return memory
    return None


@functools.lru_cache(maxsize=1)
def _ask(_moment: int) -> str:
    """What nvidia-smi says, which takes it a second on some machines: asked once a moment."""
    program = shutil.which("nvidia-smi") or (str(WSL) if WSL.is_file() else None)
    if program is None:
        return ""
    try:
        done = subprocess.run([program, *QUERY], capture_output=True, timeout=ANSWER_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def _cards(answer: str) -> list[tuple[str, str, Memory]]:
    """(index, uuid, memory) of each line that says all of it; sizes are in MiB."""
    found = []
    for line in answer.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) < 5:
            continue
        index, uuid, *name, total, free = parts
        if total.isdecimal() and free.isdecimal() and int(total):
            found.append((index, uuid, Memory(", ".join(name), int(total) * 2**20, int(free) * 2**20)))
    return found
