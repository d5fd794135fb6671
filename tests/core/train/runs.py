"""Small real runs of the embedded model, for the tests of the loop."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from core.config import dump, parse_run
from core.train.loop import train

SMALL: dict[str, Any] = {
    "steps": 3,
    "prompts_per_step": 4,
    "group_size": 4,
    "sampling": {"max_new_tokens": 24},
    "evaluate": {"every": 2, "prompts": 4, "rollouts": 4, "k": 2, "probes": 2},
    "optimizer": {"lr": 0.01},
    "threads": 1,
}


class Reporter:
    """Remembers what it is told; stops once `stop_after` steps are done; `at` is called after every step."""

    def __init__(self, stop_after: int | None = None, at=None):
        self.stop_after, self.at = stop_after, at
        self.steps: list[int] = []
        self.metrics: list[dict[str, Any]] = []
        self.lines: list[str] = []
        self.start: tuple[int, int] | None = None

    def loading(self, text: str) -> None: ...

    def started(self, total: int, start_step: int) -> None:
        self.start = (total, start_step)

    def step_done(self, step: int, metrics: dict[str, Any]) -> None:
        self.steps.append(step)
        self.metrics.append(metrics)
        if self.at:
            self.at(step)

    def should_stop(self) -> bool:
        return self.stop_after is not None and len(self.steps) >= self.stop_after

    def log(self, text: str) -> None:
        self.lines.append(text)


def configure(run_dir: Path, **settings: Any) -> Path:
    run_dir.mkdir(exist_ok=True)
    merged = {**SMALL, **settings}
    for name, value in settings.items():
        if isinstance(value, dict) and isinstance(SMALL.get(name), dict):
            merged[name] = {**SMALL[name], **value}
    (run_dir / "config.yaml").write_text(dump(parse_run(merged)))
    return run_dir


def run(run_dir: Path, reporter: Reporter | None = None, **settings: Any) -> Path:
    """A run of these settings from its beginning, or on from where it is if there are none."""
    if settings or not (run_dir / "config.yaml").exists():
        configure(run_dir, **settings)
    train(run_dir, reporter or Reporter())
    return run_dir


def table(run_dir: Path, step: int, name: str) -> pa.Table:
    return pq.ParquetFile(run_dir / "steps" / f"step={step:06d}" / f"{name}.parquet").read()


def rows(run_dir: Path, step: int, name: str, **where: Any) -> list[dict[str, Any]]:
    found = table(run_dir, step, name).to_pylist()
    return [row for row in found if all(row[column] == value for column, value in where.items())]


def contents(run_dir: Path) -> dict[str, Any]:
    """Everything that the same config must give again: all tables without the clock's columns, and the adapter."""
    found: dict[str, Any] = {"adapter": (run_dir / "adapter" / "adapter_model.safetensors").read_bytes()}
    for folder in sorted((run_dir / "steps").iterdir()):
        for path in sorted(folder.glob("*.parquet")):
            rows = pq.ParquetFile(path).read().to_pylist()
            for row in rows:
                for column in [c for c in row if c.startswith("time") or c == "tokens_per_second"]:
                    del row[column]
            found[f"{folder.name}/{path.name}"] = repr(rows)
    return found
