"""The processes of a run that several train: this one, rank 0, starts the others, watches them and outlives them.

Rank 0 is the run's process as everybody knows it, with its lock, its devices, its status and its log. The others only
train. If one of them dies, the run fails with what that one said; if rank 0 dies, the others end by themselves.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from core.config import RunConfig, read_run
from core.runs.folders import REPO, RunError
from core.runs.loading import heavy_imports
from core.runs.locks import visible_gpus

if TYPE_CHECKING:
    from core.train.reporter import Reporter

RANK = (sys.executable, "-m", "core.runs.rank")
POLL_S = 0.2
NOTICE_S = 10.0
"""Seconds in which rank 0 should notice by itself that another has died; on GPUs it may wait for it for ever."""
LAST_S = 2.0
"""Seconds in which a rank whose death broke a connection is seen to be dead."""
END_S = 30.0
"""Seconds for the others to end once rank 0 has trained to the end."""


def train_together(run_dir: Path, reporter: Reporter, abandon: Callable[[str], None]) -> str:
    """What `core.train.loop.train` does, as rank 0 of the config's processes. Raises RunError, TrainingError.

    `abandon` is called from another thread, with a sentence, if another rank has died and this one hangs.
    """
    config = read_run(run_dir / "config.yaml")
    gpus = check_gpus(config)
    if gpus:
        os.environ["CUDA_VISIBLE_DEVICES"] = gpus[0]  # before torch looks
    with Team(run_dir, config.processes, gpus, abandon) as team:
        with heavy_imports():
            from core.train.loop import train
            from core.train.policy import device_of
            from core.train.ranks import joined

        with joined(0, config.processes, team.meeting, device_of(config)) as ranks:
            return train(run_dir, reporter, ranks)


def check_gpus(config: RunConfig) -> list[str]:
    """The GPUs of a run's ranks, one each; none on a CPU. Raises RunError where there are too few."""
    gpus = [] if config.device == "cpu" else visible_gpus()
    if gpus and len(gpus) < config.processes:
        shown = "only one GPU" if len(gpus) == 1 else f"only {len(gpus)} GPUs"
        raise RunError(
            f"processes is {config.processes}, but this machine shows {shown}: lower it, or set device to cpu"
        )
    return gpus[: config.processes]


class Team:
    """The other ranks' processes, from entering to leaving."""

    def __init__(self, run_dir: Path, world: int, gpus: list[str], abandon: Callable[[str], None]) -> None:
        self.run_dir, self.world, self.gpus = run_dir, world, gpus
        self._abandon = abandon
        self._left = threading.Event()
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    @property
    def meeting(self) -> Path:
        """The file through which the ranks find each other."""
        return self.folder / "meeting"

    def __enter__(self) -> Team:
        self.folder = Path(tempfile.mkdtemp(prefix="advantage-lab-ranks-"))
        for rank in range(1, self.world):
            arguments = (self.run_dir, rank, self.world, self.folder, os.getpid())
            environment = os.environ | ({"CUDA_VISIBLE_DEVICES": self.gpus[rank]} if self.gpus else {})
            self._processes[rank] = subprocess.Popen(
                [*RANK, *map(str, arguments)], cwd=REPO, env=environment, stdin=subprocess.DEVNULL
            )
        threading.Thread(target=self._watch, name="ranks", daemon=True).start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, _trace: TracebackType | None) -> None:
        self._left.set()
        if error is None:
            self._wait(lambda: all(process.poll() is not None for process in self._processes.values()), END_S)
        elif isinstance(error, Exception) and not type(error).__module__.startswith("core."):
            self._wait(self._lost, LAST_S)
        lost = self._lost()
        for process in self._processes.values():
            process.kill()
            process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
        if lost and isinstance(error, Exception) and not type(error).__module__.startswith("core."):
            raise RunError(lost) from error

    def _watch(self) -> None:
        while not self._left.wait(POLL_S):
            if self._lost():
                if not self._left.wait(NOTICE_S):
                    self._abandon(self._lost())
                return

    def _lost(self) -> str:
        """A sentence about the rank that died first; "" while none has. The death of one soon ends the others."""
        killed = {rank: -code for rank, process in self._processes.items() if (code := process.poll() or 0) < 0}
        if killed:
            rank, sign = min(killed.items())
            why = " (out of memory, perhaps)" if sign == signal.SIGKILL else ""
            return f"rank {rank} was killed by signal {sign}{why}; resume to go on"
        said = sorted(self.folder.glob("error-*"), key=lambda file: file.stat().st_mtime_ns)
        if said:
            return f"rank {said[0].name.removeprefix('error-')}: {said[0].read_text(encoding='utf-8')}"
        ended = [rank for rank, process in self._processes.items() if process.poll()]
        return f"rank {ended[0]} ended without saying why; its last words are in the log" if ended else ""

    @staticmethod
    def _wait(done: Callable[[], object], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not done() and time.monotonic() < deadline:
            time.sleep(0.05)
