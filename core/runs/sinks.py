"""Live curves in tools that people have: TensorBoard, Weights & Biases and trackio, each off unless a config asks.

The lab's own store does not need them, so that they may fail: a thread of the run's process feeds them, and one that
cannot go on is left out with a line in the log, while training neither waits nor stops. A resumed run goes on with its
curves.
"""

from __future__ import annotations

import importlib.util
import math
import os
import queue
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

from core.config import ConfigError, RunConfig

PACKAGES = {
    "tensorboard": 'pip install "tensorboard>=2.21,<3"',
    "wandb": 'pip install "wandb>=0.31,<0.32"',
    "trackio": 'pip install "trackio>=0.43,<0.44"',
}
"""The sinks by the package that each needs, and the command that installs it."""
EVALUATIONS = ("pass_at_1", "pass_at_k", "greedy")
CLOSE_S = 20.0
"""Seconds that a run's end waits for its sinks."""
WAITING = 10_000
"""Steps that may wait for a slow sink; further ones are lost to it."""


class Sink(Protocol):
    def log(self, step: int, values: Mapping[str, float]) -> None: ...

    def close(self) -> None: ...


def wanted(config: RunConfig) -> list[str]:
    """The names of the sinks that a config asks for."""
    return [name for name in PACKAGES if getattr(config.log_to, name)]


def installed(name: str) -> bool:
    """Whether a sink's package is there; nothing of it is imported."""
    return importlib.util.find_spec(name) is not None


def check_sinks(config: RunConfig) -> None:
    """Raise ConfigError for a sink whose package is not there."""
    for name in wanted(config):
        if not installed(name):
            raise ConfigError(f"log_to.{name}: the package {name} is not installed: {PACKAGES[name]}")


def named(metrics: Mapping[str, Any]) -> dict[str, float]:
    """A step's numbers as curves: `train/reward`, `eval/pass_at_1`, `time/step`; what is no number is left out."""
    values: dict[str, float] = {}
    for name, value in metrics.items():
        if isinstance(value, Mapping):
            values |= {f"{name}/{key}": number for key, number in _finite(value).items()}
        elif name.startswith("time_"):
            values |= {f"time/{key}": number for key, number in _finite({name[5:]: value}).items()}
        elif name != "time":
            group = "eval" if name in EVALUATIONS else "train"
            values |= {f"{group}/{key}": number for key, number in _finite({name: value}).items()}
    return values


def _finite(values: Mapping[str, Any]) -> dict[str, float]:
    """Those that are finite numbers."""
    return {
        name: float(value)
        for name, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }


class Sinks:
    """The sinks of a run that trains, fed by a thread of their own."""

    def __init__(self, run_dir: Path, config: RunConfig, log: Callable[[str], None]) -> None:
        self.run_dir, self.config, self._log = run_dir, config, log
        self.names = wanted(config)
        self._queue: queue.Queue[tuple[int, dict[str, float]] | None] = queue.Queue(WAITING)
        self._thread: threading.Thread | None = None

    def start(self, step: int) -> None:
        """Training begins at `step`: what curves have from there on is of an end that was cut off."""
        if self.names and self._thread is None:
            self._thread = threading.Thread(target=self._feed, args=(step,), name="sinks", daemon=True)
            self._thread.start()

    def step(self, step: int, metrics: Mapping[str, Any]) -> None:
        """A step's numbers; never waits."""
        if self._thread is not None:
            try:
                self._queue.put_nowait((step, named(metrics)))
            except queue.Full:
                return

    def close(self) -> None:
        """The run ends: let what waits go out, for a while."""
        if self._thread is None:
            return
        try:
            self._queue.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(CLOSE_S)
        if self._thread.is_alive():
            self._log(f"{', '.join(self.names)}: still busy after {CLOSE_S:g} s, left behind")

    def _feed(self, start: int) -> None:
        open_: dict[str, Sink] = {}
        for name in self.names:
            if sink := self._safely(name, lambda name=name: SINKS[name](self.run_dir, self.config, start)):
                open_[name] = sink
        while (item := self._queue.get()) is not None:
            for name, sink in list(open_.items()):
                if not self._safely(name, lambda sink=sink, item=item: sink.log(*item) or True):
                    del open_[name]
        for name, sink in open_.items():
            self._safely(name, lambda sink=sink: sink.close() or True)

    def _safely(self, name: str, act: Callable[[], Any]) -> Any:
        """What a sink gives; None, and a line in the log, where it fails: a tool of others may raise anything."""
        try:
            return act()
        except Exception as error:  # noqa: BLE001
            words = " ".join(str(error).split())[:300] or type(error).__name__
            self._log(f"log_to.{name}: {words}; training goes on without it")
            return None


class TensorBoard:
    """Event files in the run's folder: `tensorboard --logdir RUNS`."""

    def __init__(self, run_dir: Path, config: RunConfig, start: int) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(run_dir / "tensorboard", purge_step=start or None, flush_secs=10)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        self.writer.close()


class WandB:
    """A run of the same id. Without a key, or with WANDB_MODE=offline, it lies in the run's folder for `wandb sync`."""

    def __init__(self, run_dir: Path, config: RunConfig, start: int) -> None:
        import wandb

        mode = os.environ.get("WANDB_MODE") or ("online" if wandb.login(prompt=False) else "offline")
        self.run = wandb.init(
            project=config.log_to.project, name=config.name or run_dir.name, id=run_dir.name, resume="allow",
            dir=run_dir, mode=mode, config=config.model_dump(mode="json"), save_code=False,
            settings=wandb.Settings(silent=True, console="off", disable_git=True, init_timeout=60),
        )  # fmt: skip

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log(dict(values), step=step)

    def close(self) -> None:
        self.run.finish()


class Trackio:
    """A run of the same name in trackio's own folder on this machine."""

    def __init__(self, run_dir: Path, config: RunConfig, start: int) -> None:
        import trackio

        self.trackio = trackio
        trackio.init(
            project=config.log_to.project, name=run_dir.name, resume="allow", embed=False, auto_log_gpu=False,
            auto_log_cpu=False, config=config.model_dump(mode="json"),
        )  # fmt: skip

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.trackio.log(dict(values), step=step)

    def close(self) -> None:
        self.trackio.finish()


SINKS: dict[str, Callable[[Path, RunConfig, int], Sink]] = {
    "tensorboard": TensorBoard,
    "wandb": WandB,
    "trackio": Trackio,
}
