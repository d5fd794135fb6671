"""The process of one run: `python -m core.runs.worker RUN_DIR [--ticket N]`.

It waits for its device before it imports torch, trains, and writes down how that ended. Its output is the run's log.
SIGTERM and the run's `stop` file mean the same: stop at the next step boundary (at once while waiting or loading).
"""

from __future__ import annotations

import argparse
import errno
import faulthandler
import os
import re
import signal
import sys
import time
import traceback
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from filelock import Timeout

from core.runs.folders import raw_config
from core.runs.heartbeat import Heartbeat
from core.runs.loading import heavy_imports
from core.runs.locks import DeviceQueues, device_keys, run_lock
from core.runs.log import plain
from core.runs.machine import this_process
from core.runs.status import Status, read_status

if TYPE_CHECKING:
    from core.runs.sinks import Sinks

NICENESS = 5
ENDING_S = 120.0
"""Seconds that a run's former process may take to seal it and end, when the run is extended at once."""
QUIET = {"OMP_WAIT_POLICY": "PASSIVE", "TQDM_DISABLE": "1"}
"""Environment of a trainer. Threads that spin while they wait make a step many times slower as soon as anything else
wants a core (measured on two busy cores: 7.1 s against 0.48 s with threads that sleep)."""
SHOWN = ("reward", "pass_rate", "pass_at_1", "greedy", "entropy", "length", "grad_norm", "tokens_per_second")
"""The metrics that status.json repeats, for lists and progress bars."""
_WINDOW = 20
"""Steps whose mean time makes the ETA; evaluations come every few steps and are spread over them."""


_NO_MEMORY = re.compile("not enough memory|allocate memory")
_NO_SPACE = re.compile("No space left on device|Disk quota exceeded")
"""What writers of other languages say (safetensors, DuckDB), without an errno."""


class StopNow(BaseException):
    """Raised in the main thread by a request to stop that finds no step worth ending."""


class Worker:
    """Owns the run while the process lives: the reporter of `core.train.loop.train`, and what surrounds it."""

    def __init__(self, run_dir: Path) -> None:
        self.run_dir = run_dir
        started = replace(read_status(run_dir) or Status(created=time.time()), **this_process())
        started = replace(started, state="queued", error="", message="", started=None, finished=None)
        self.beat = Heartbeat(run_dir, started, self._stop_file_seen)
        self._interruptible = False
        self._asked = False
        self._times: list[float] = []
        self.sinks: Sinks | None = None

    # What core.train.loop.train calls.

    def loading(self, text: str) -> None:
        self.beat.now(state="loading", message=text)
        self.log(text)

    def started(self, total: int, start_step: int) -> None:
        self._interruptible = False
        self._times = [time.monotonic()]
        self.beat.now(state="running", message="", total=total, step=start_step)
        self.log(f"training from step {start_step} to {total}")
        if self.sinks:
            self.sinks.start(start_step)

    def step_done(self, step: int, metrics: dict[str, float | None]) -> None:
        """`step` counts from 0. Metrics that a step lacks keep their last value."""
        self._times = [*self._times[-_WINDOW:], time.monotonic()]
        step_s = (self._times[-1] - self._times[0]) / max(1, len(self._times) - 1)
        status = self.beat.status
        fresh = {name: float(value) for name in SHOWN if (value := metrics.get(name)) is not None}
        eta_s = step_s * max(0, status.total - step - 1)
        self.beat.soon(step=step + 1, metrics={**status.metrics, **fresh}, step_s=step_s, eta_s=eta_s)
        if self.sinks:
            self.sinks.step(step, metrics)

    def should_stop(self) -> bool:
        return self._asked or (self.run_dir / "stop").exists()

    def log(self, text: str) -> None:
        print(f"{time.strftime('%H:%M:%S')}  {plain(text)}", flush=True)

    # What surrounds it.

    def run(self, ticket: int | None) -> int:
        """Wait, train, and leave a status that says how it ended; returns the exit code."""
        config = raw_config(self.run_dir)
        processes = config.get("processes")
        self.processes = processes if isinstance(processes, int) else 1
        device = DeviceQueues(device_keys(str(config.get("device", "auto")), self.processes))
        self.beat.start(also=device.keep)
        try:
            ended = self._train(device, ticket)
        except StopNow:
            ended = "stopped"
        except BaseException as error:
            traceback.print_exc()
            self.beat.stop(state="failed", error=in_one_sentence(error), message="", eta_s=None, finished=time.time())
            raise SystemExit(1) from error
        finally:
            self._interruptible = False
            device.leave()
            if self.sinks:
                self.sinks.close()
        (self.run_dir / "stop").unlink(missing_ok=True)
        self.beat.stop(state=ended, message="", eta_s=None, finished=time.time())
        self.log(ended)
        if ended == "finished":
            self._seal()
        return 0

    def _train(self, device: DeviceQueues, ticket: int | None) -> str:
        if not device.wait(self.run_dir.name, ticket, lambda words: self.beat.now(message=words), self.should_stop):
            return "stopped"
        self._interruptible = True
        self._sweep()
        self.beat.soon(started=time.time())
        self.loading("loading torch")
        from core.config import read_run
        from core.runs.sinks import Sinks

        self.sinks = Sinks(self.run_dir, read_run(self.run_dir / "config.yaml"), self.log)
        if self.processes > 1:
            from core.runs.team import train_together

            return train_together(self.run_dir, self, self._abandon)
        with heavy_imports():
            from core.train.loop import train

        return train(self.run_dir, self)

    def _abandon(self, error: str) -> None:
        """The run is lost, and the main thread waits for something that will never come."""
        self.beat.stop(state="failed", error=error, message="", eta_s=None, finished=time.time())
        os._exit(1)

    def _seal(self) -> None:
        """Seal the run; one that cannot be sealed stays readable as it is."""
        from core.runs.sealing import mark_sealed
        from core.store import StoreError, seal

        try:
            seal(self.run_dir, mark=mark_sealed)
        except (StoreError, OSError) as error:
            self.log(f"not sealed: {error}")
        self._sweep()

    def _sweep(self) -> None:
        """Clear what older seals of this folder left, at every start and end of a run."""
        from core.runs.sealing import sweep_sealed

        try:
            sweep_sealed(self.run_dir.parent)
        except OSError as error:
            self.log(f"old steps are left: {error}")

    def on_signal(self, _sign: int, _frame: FrameType | None) -> None:
        self._asked = True
        if self._interruptible:
            self._interruptible = False
            raise StopNow

    def _stop_file_seen(self) -> None:
        """Called by the heartbeat's thread: the main one has to hear of it, also in the middle of an import."""
        if not self._asked:
            os.kill(os.getpid(), signal.SIGTERM)


def in_one_sentence(error: BaseException) -> str:
    """What went wrong, for people; the traceback is in the log."""
    text = " ".join(plain(str(error)).split())
    kind = type(error).__name__
    if isinstance(error, MemoryError) or kind == "OutOfMemoryError" or _NO_MEMORY.search(text):
        return "out of memory: lower batch_tokens, group_size or sampling.max_new_tokens, or take a smaller model"
    if (isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)) or _NO_SPACE.search(text):
        return "the disk is full: free some space, then resume"
    if type(error).__module__.startswith("core."):
        return text
    return f"{kind}: {text}"[:500] if text else kind


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m core.runs.worker", description="Train one run of the lab.")
    parser.add_argument("run_dir", type=Path)
    parser.add_argument("--ticket", type=int, help="its place in the device's line")
    arguments = parser.parse_args()
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    sys.stdout.reconfigure(errors="backslashreplace")
    sys.stderr.reconfigure(errors="backslashreplace")
    faulthandler.enable()
    lock = run_lock(arguments.run_dir)
    try:
        lock.acquire(timeout=ENDING_S)
    except Timeout:
        print("another process has this run already; nothing to do", flush=True)
        return 0
    status = read_status(arguments.run_dir)
    if status is not None and status.state == "finished":
        print("this run is finished already; nothing to do", flush=True)
        return 0
    if os.nice(0) < NICENESS:
        os.nice(NICENESS - os.nice(0))
    worker = Worker(arguments.run_dir)
    signal.signal(signal.SIGTERM, worker.on_signal)
    signal.signal(signal.SIGINT, worker.on_signal)
    with lock:
        return worker.run(arguments.ticket)


if __name__ == "__main__":
    sys.exit(main())
