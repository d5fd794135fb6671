"""Every step of an import through the code that stores training: records, a trace each, tables, the sealed file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core.importers.base import LETTERS
from core.importers.fit import Rollouts
from core.importers.keys import Order
from core.importers.metrics import eval_row, metrics_row
from core.importers.records import Builder, Rows
from core.importers.sealed import Sealed
from core.importers.stage import RIGHT, Stage
from core.store.factors import Factors
from core.store.record import StepRecord
from core.store.rows import Tables, tables
from core.store.schema import FACTOR_PREFIX

Progress = Callable[[str, int, int | None], None]
"""Told what is being done ("reading", "writing"), how much of it is done, and of how much: rollouts, then steps."""

TOGETHER = 16_384
"""Rollouts whose rows are made ready at once, about."""
TOKENS_TOGETHER = 1_000_000


@dataclass(frozen=True)
class Last:
    """What lists show of a run, its last metrics; and how many tokens were written."""

    metrics: dict[str, Any] = field(default_factory=dict)
    tokens: int = 0

    def after(self, record: StepRecord) -> Last:
        tokens = sum(int(np.sum(split.length)) for split in record.splits if split.token_ids is not None)
        return Last({**self.metrics, **(record.metrics or {}), **(record.eval or {})}, self.tokens + tokens)


def write_steps(stage: Stage, file: Sealed, order: Order, builder: Builder, progress: Progress) -> Last:
    """Write the order's steps into the file; returns when they are in it."""
    factors = Factors(*(
        tuple(name.removeprefix(FACTOR_PREFIX) for name in file.columns[table] if name.startswith(FACTOR_PREFIX))
        for table in ("rollouts", "tokens")
    ))  # fmt: skip
    steps, starts = np.unique(order.step, return_index=True)
    ends = np.append(starts[1:], len(order.step))
    last, done = Last(), 0
    for first, beyond in _chunks(starts, ends, order.keys):
        here = slice(starts[first], ends[beyond - 1])
        rows = Rows(stage.fetch(order.seq[here]), {name: values[here] for name, values in order.keys.items()})
        made: list[Tables] = []
        for i in range(first, beyond):
            record = _record(builder, rows, order, int(steps[i]), starts[i], ends[i], starts[first])
            made.append(tables(record, factors))
            last = last.after(record)
        file.add(made, [int(step) for step in steps[first:beyond]])
        done += beyond - first
        progress("writing", done, len(steps))
    file.finish()
    return last


def rollouts_of(order: Order) -> Rollouts:
    """The training rollouts with a reward, as conventions see them: with the store's precision."""
    here = order.judged
    reward = order.keys["reward"][here].astype(np.float32).astype(np.float64)
    correct = order.keys["verdict"][here] >= RIGHT
    return Rollouts(order.step[here], order.whole[here], reward, correct, np.maximum(order.keys["length"][here], 1))


def _record(builder: Builder, rows: Rows, order: Order, step: int, start: int, end: int, offset: int) -> StepRecord:
    """The record of one step: rows `start` to `end` of the order, of which `rows` begins at `offset`."""
    record = StepRecord(step)
    held_out = int(order.evaluated[start:end].sum())  # they come first
    for name, a, b in (("eval", start, start + held_out), ("train", start + held_out, end)):
        if a == b:
            continue
        split = builder.split(name, step, rows, a - offset, b - offset, order.group[a:b], order.rollout[a:b])
        record.splits.append(split)
        if name == "train":
            record.metrics = metrics_row(split, builder.config.tis.gap)
        else:
            record.eval = eval_row(split)
    return record


def _chunks(starts: np.ndarray, ends: np.ndarray, keys: dict[str, np.ndarray]) -> Iterator[tuple[int, int]]:
    """Ranges of steps that are made ready together: at least one, as many as fit."""
    first = 0
    tokens = np.where(keys["tokened"], np.maximum(keys["length"], 1), 1)
    cost = np.append(0, np.cumsum(tokens / TOKENS_TOGETHER + 1 / TOGETHER + keys["letters"] / LETTERS))
    for i in range(len(starts)):
        if i > first and cost[ends[i]] - cost[starts[first]] > 1:
            yield first, i
            first = i
    if len(starts):
        yield first, len(starts)
