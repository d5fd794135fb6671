"""Rows of JSONL files into tables: what most formats share. A format says what a row is, by `take`."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from core.importers.base import LETTERS, ROWS, SCHEMA, Found, Place, Places, Report
from core.importers.formats._lines import Line, lines
from core.importers.formats._values import Refused

TOO_DEEP = "its values are nested too deeply"
NUMBERS = 4_000_000
"""Tokens of one table at most, about: a few long rollouts make a table."""
OPEN_AT_ONCE = 200
"""Files that are read side by side at most."""
LISTS = tuple(item.name for item in SCHEMA if pa.types.is_list(item.type))
TEXTS = ("prompt", "answer", "text")
_SURROGATES = re.compile("[\ud800-\udfff]")

Rollout = dict[str, Any]
"""Values of `SCHEMA` by column, absent ones left out; lists of numbers as (T,) arrays with NaN for null."""
Take = Callable[[dict[str, Any], Line], Iterable[Rollout]]
"""The rollouts of a row. Raises Refused for a row that cannot be taken."""


@dataclass
class Doubts:
    """What was left empty in rows that were taken, counted: a sentence each at the end."""

    counts: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def add(self, what: str, where: str) -> None:
        self.counts[what] += 1
        self.first.setdefault(what, where)

    def tell(self, report: Report) -> None:
        for what, count in self.counts.items():
            rows = "one row" if count == 1 else f"{count:,} rows"
            report.note(f"{what} in {rows} (first: {self.first[what]}).")


@dataclass
class Batch:
    """Rollouts on their way into one table."""

    rows: list[Rollout] = field(default_factory=list)
    numbers: int = 0
    letters: int = 0

    def add(self, rollout: Rollout) -> None:
        self.rows.append(rollout)
        self.numbers += sum(len(rollout[name]) for name in LISTS if rollout.get(name) is not None)
        self.letters += sum(len(rollout.get(name) or "") for name in TEXTS)

    @property
    def full(self) -> bool:
        return len(self.rows) >= ROWS or self.numbers >= NUMBERS or self.letters >= LETTERS

    def table(self) -> pa.Table:
        """The table of `SCHEMA`; the batch is empty afterwards."""
        rows, self.rows, self.numbers, self.letters = self.rows, [], 0, 0
        return pa.table([column([row.get(item.name) for row in rows], item.type) for item in SCHEMA], schema=SCHEMA)


def column(values: list[Any], kind: pa.DataType) -> pa.Array:
    """The values as an Arrow array. Lone surrogates in texts are replaced, for Arrow has no place for them."""
    if pa.types.is_list(kind) and not pa.types.is_string(kind.value_type):
        return _lists(values, kind)
    if pa.types.is_map(kind):
        values = [list(value.items()) if value else None for value in values]
    try:
        return pa.array(values, kind)
    except UnicodeEncodeError:
        return pa.array([_encodable(value) for value in values], kind)


def _encodable(value: Any) -> Any:
    if isinstance(value, str):
        return _SURROGATES.sub("\ufffd", value)
    return (
        [_encodable(item) for item in value]
        if isinstance(value, list)
        else (tuple(_encodable(item) for item in value) if isinstance(value, tuple) else value)
    )


def _lists(values: list[np.ndarray | None], kind: pa.ListType) -> pa.Array:
    lengths = np.array([0 if value is None else len(value) for value in values], np.int64)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    given = [value for value in values if value is not None and len(value)]
    flat = np.concatenate(given) if given else np.zeros(0, np.float32)
    empty = np.isnan(flat) if flat.dtype.kind == "f" else None
    if pa.types.is_boolean(kind.value_type) and flat.dtype.kind == "f":
        flat = np.nan_to_num(flat) != 0
    items = pa.array(flat, kind.value_type, mask=empty)
    missing = np.array([value is None for value in values], bool)
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=kind, mask=pa.array(missing))


def same_length(rollout: Rollout, length: int, doubts: Doubts, where: str) -> Rollout:
    """The rollout with the lists that have this length; others are left out and counted."""
    for name in LISTS:
        if rollout.get(name) is not None and len(rollout[name]) != length:
            doubts.add(f"`{name}` has another length than the response and was left empty", where)
            rollout[name] = None
    return rollout


@dataclass(frozen=True)
class _Item:
    step: int
    file: str
    rollouts: list[Rollout]
    place: Place


def read_lines(
    found: Found, report: Report, done: Places, take: Take, doubts: Doubts | None = None, side_by_side: bool = False
) -> Iterator[pa.Table]:
    """Tables of the rollouts of all files, one file after another; `side_by_side`, in the order of the steps."""
    files = [_items(found, path, report, done, take) for path in found.files]
    if side_by_side and 1 < len(files) <= OPEN_AT_ONCE:
        items: Iterable[_Item] = heapq.merge(*files, key=lambda item: item.step)
    else:
        items = chain.from_iterable(files)
    batch, places = Batch(), {}
    for item in items:
        for rollout in item.rollouts:
            batch.add({"file": item.file} | rollout)
        places[item.file] = item.place
        if batch.full:
            done.update(places)
            yield batch.table()
    done.update(places)
    if batch.rows:
        yield batch.table()
    if doubts:
        doubts.tell(report)


def _items(found: Found, path: Any, report: Report, done: Places, take: Take) -> Iterator[_Item]:
    step, given = -1, 0
    for line in lines(found, path, report, done):
        rollouts: list[Rollout] = []
        if line.row is not None:
            try:
                rollouts = list(take(line.row, line))
            except Refused as reason:
                report.refuse(str(reason), line.where)
            except RecursionError:
                report.refuse(TOO_DEEP, line.where)
        step = max([step, *(rollout["step"] for rollout in rollouts if rollout.get("step") is not None)])
        given += len(rollouts)
        yield _Item(step, line.file, rollouts, replace(line.place, rows=line.before + given))
