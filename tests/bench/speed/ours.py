"""The lab's own trainer, one step at a time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from core.config import RunConfig, dump
from core.train.loop import Trainer


class Ours:
    """A run in a folder of its own, driven by the bench in place of the worker; `metrics` has every step's numbers."""

    def __init__(self, config: RunConfig, folder: Path):
        folder.mkdir(parents=True)
        (folder / "config.yaml").write_text(dump(config), encoding="utf-8")
        self.metrics: list[dict[str, Any]] = []
        self.trainer = Trainer(folder, self)

    def step(self) -> dict[str, Any]:
        """One whole step; the seconds it took, its metrics, and `time_write`, the seconds its writing took."""
        started, cpu = time.perf_counter(), time.process_time()
        self.trainer.step()
        took = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu}
        return self.metrics[-1] | took | {"time_write": self.trainer.time_write}

    def loading(self, text: str) -> None:
        """Part of the reporter's protocol; the bench has no log."""

    def started(self, total: int, start_step: int) -> None:
        """As above."""

    def step_done(self, step: int, metrics: dict[str, Any]) -> None:
        self.metrics.append(metrics)

    def should_stop(self) -> bool:
        return False

    def log(self, text: str) -> None:
        """As above."""
