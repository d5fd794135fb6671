"""`accelerate launch --num_processes 2 -m core run …` means the setting `processes: 2`.

Accelerate starts the command line once for each process. The first of these copies makes the run and follows it, the
others leave; the run's own processes are started by the lab, as always, when the run's turn comes.
"""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from types import FrameType

import psutil

from core.runs import RunError

COUNTS = ("--num_processes", "--num-processes")
PASSED_ON_S = 2.0
"""Launchers pass Ctrl-C on to processes that have had it from the terminal: what comes so soon is the same one."""


@dataclass(frozen=True)
class Launched:
    """What `accelerate launch` says about this process; nothing where it was not started so."""

    settings: tuple[str, ...] = ()
    """Settings of the run that follow from it."""
    copy: bool = False
    """Another copy of this command line does the work."""


def launched() -> Launched:
    """Look at the environment. Under a launcher SIGTERM, with which it ends its processes, now means Ctrl-C.

    Raises RunError for a launch over several machines, or in a precision that the run's own settings do not name.
    """
    precision = os.environ.get("ACCELERATE_MIXED_PRECISION")
    if precision is None:
        return Launched()
    interrupt = _Interrupt()
    signal.signal(signal.SIGTERM, interrupt)
    signal.signal(signal.SIGINT, interrupt)
    world = os.environ.get("WORLD_SIZE")
    if world != os.environ.get("LOCAL_WORLD_SIZE"):
        raise RunError("the processes of a run must be on one machine: set --num_machines 1")
    if precision not in ("", "no"):
        raise RunError(
            f"accelerate launch asks for mixed precision {precision}, but a run says so itself: launch with "
            "--mixed_precision no, and --set precision=bfloat16 where that is meant"
        )
    processes = int(world) if world else _asked()
    settings = (f"processes={processes}",)
    if os.environ.get("ACCELERATE_USE_CPU", "").lower() == "true":
        settings += ("device=cpu",)
    return Launched(settings, copy=os.environ.get("RANK", "0") != "0")


class _Interrupt:
    """A signal handler that is Ctrl-C, once for what arrives together."""

    def __init__(self) -> None:
        self.last: float | None = None

    def __call__(self, _sign: int, _frame: FrameType | None) -> None:
        again = self.last is not None and time.monotonic() - self.last < PASSED_ON_S
        if not again:
            self.last = time.monotonic()
            raise KeyboardInterrupt


def _asked() -> int:
    """What the launcher's own command line asks for: on a CPU it starts one process, whatever the number is."""
    words = psutil.Process(os.getppid()).cmdline()
    for word, after in zip(words, [*words[1:], ""], strict=True):
        name, _, value = word.partition("=")
        if name in COUNTS:
            value = value or after
            return int(value) if value.isdecimal() else 1
    return 1
