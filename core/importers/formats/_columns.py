"""TRL's columns into rollouts, without a loop over rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.importers.base import SCHEMA, Report
from core.importers.formats._messages import column_as_text
from core.importers.formats._own import in_schema, whole_rows
from core.importers.formats._values import BIGGEST

FIXED = ("step", "prompt", "completion", "advantage", "reward")
NO_STEP = "`step` is no whole number from 0"
NO_TEXT = "`completion` is missing"
_MAP = SCHEMA.field("parts").type


@dataclass(frozen=True)
class Plan:
    """Which columns of a file are what."""

    columns: list[str]
    parts: tuple[str, ...]
    """Reward functions: the numbers before the first column that is no number."""
    traits: tuple[str, ...]
    """The other numbers: what reward functions logged besides."""
    reward: bool
    """Whether the file has the trainer's reward itself, as early versions do."""
    own: tuple[str, ...] = ()
    """Columns that the lab's own export adds."""

    @classmethod
    def of(cls, schema: pa.Schema) -> Plan:
        """From a file's columns, in their order."""
        parts, traits, others = [], [], False
        own = in_schema(schema)
        for item in schema:
            if item.name in FIXED or item.name in own or item.name.startswith("__index_level"):
                continue
            if _is_number(item.type):
                (traits if others else parts).append(item.name)
            elif not pa.types.is_null(item.type):
                others = True
        given = [name for name in FIXED if name in schema.names]
        return cls([*given, *parts, *traits, *own], tuple(parts), tuple(traits), "reward" in schema.names, own)


def _is_number(kind: pa.DataType) -> bool:
    return any(
        test(kind) for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    )


def convert(batch: pa.RecordBatch, plan: Plan, file: str, before: int, report: Report) -> pa.Table:
    """Rows as rollouts. Rows without a response or with an impossible step are refused; `before` rows came earlier."""
    rows = len(batch)
    given = dict(zip(batch.schema.names, batch.columns, strict=True))
    steps, wrong = _steps(given.get("step"), rows)
    texts = _texts(given["completion"], "completion", file, report)
    textless = texts.is_null().to_numpy(False) if texts.null_count else np.zeros(rows, bool)
    for reason, which in ((NO_STEP, wrong), (NO_TEXT, textless & ~wrong)):
        if which.any():
            report.refuse(reason, f"{file}, row {before + int(which.argmax()) + 1}", int(which.sum()))
    columns = {
        "file": pa.repeat(pa.scalar(file), rows),
        "step": steps,
        "split": pa.repeat(pa.scalar("train"), rows),
        "prompt": _texts(given["prompt"], "prompt", file, report) if "prompt" in given else None,
        "text": texts,
        "reward": _finite(given["reward"]) if plan.reward and _is_number(given["reward"].type) else None,
        "parts": _map({name: given[name] for name in plan.parts}, rows),
        "traits": _map({name: given[name] for name in plan.traits}, rows),
        "advantage": _advantage(given.get("advantage"), file, report),
    }
    if plan.own:
        columns["advantage"] = None  # the mean of the tokens', which are there
    for name in plan.own:
        given[name].validate(full=True)
    columns |= whole_rows({name: given[name].cast(SCHEMA.field(name).type) for name in plan.own})
    arrays = [pa.nulls(rows, item.type) if columns.get(item.name) is None else columns[item.name] for item in SCHEMA]
    table = pa.table(arrays, schema=SCHEMA)
    kept = ~(wrong | textless)
    return table if kept.all() else table.filter(pa.array(kept))


def _numbers(column: pa.Array) -> np.ndarray:
    """(N,) float64, NaN for null."""
    if pa.types.is_null(column.type):
        return np.full(len(column), np.nan)
    return column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)


def _finite(column: pa.Array) -> pa.Array:
    """Float64 with null for what is null, NaN or infinite."""
    values = _numbers(column)
    return pa.array(values, mask=~np.isfinite(values))


def _advantage(column: pa.Array | None, file: str, report: Report) -> pa.Array | None:
    if column is None or pa.types.is_null(column.type):
        return None
    if not _is_number(column.type):
        report.note(f"`advantage` of {file} is no column of numbers: it was left empty.")
        return None
    return _finite(column)


def _steps(column: pa.Array | None, rows: int) -> tuple[pa.Array, np.ndarray]:
    """Steps, null where none is given, and which rows have something that is no step."""
    if column is None or pa.types.is_null(column.type):
        return pa.nulls(rows, pa.int64()), np.zeros(rows, bool)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        digits = pc.match_substring_regex(column, r"^\d{1,15}$")
        wrong = ~digits.fill_null(True).to_numpy(False)
        return pc.if_else(digits.fill_null(False), column, None).cast(pa.int64()), wrong
    if not _is_number(column.type) or pa.types.is_boolean(column.type):
        return pa.nulls(rows, pa.int64()), np.ones(rows, bool)
    values = _numbers(column)
    there = ~np.isnan(values)
    fits = there & (values >= 0) & (values <= BIGGEST) & (np.floor(values) == values)
    return pa.array(np.where(fits, values, 0).astype(np.int64), mask=~fits), there & ~fits


def _texts(column: pa.Array, name: str, file: str, report: Report) -> pa.Array:
    """A column of texts or of messages as valid text."""
    kind = column.type
    if pa.types.is_null(kind):
        return pa.nulls(len(column), pa.string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return _decoded(column, name, file, report)
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return _decoded(column.cast(pa.large_binary()), name, file, report)
        raise
    return column_as_text(column)


def _decoded(column: pa.Array, name: str, file: str, report: Report) -> pa.Array:
    report.note(f"`{name}` of {file} has bytes that are no UTF-8: they were replaced by \ufffd.")
    values = column.to_pylist()
    return pa.array([None if value is None else value.decode("utf-8", "replace") for value in values], pa.string())


def _map(columns: dict[str, pa.Array], rows: int) -> pa.Array:
    """Each row's finite numbers by name: a reward that is null or NaN was not given to this row."""
    if not columns:
        return pa.nulls(rows, _MAP)
    values = np.stack([_numbers(column) for column in columns.values()], axis=1)
    there = np.isfinite(values)
    offsets = np.concatenate([[0], np.cumsum(there.sum(1))]).astype(np.int32)
    names = pa.array(list(columns), pa.string()).take(pa.array(np.nonzero(there)[1]))
    found = pa.MapArray.from_arrays(pa.array(offsets), names, pa.array(values[there])).cast(_MAP)
    some = there.any(1)
    return found if some.all() else pc.if_else(pa.array(some), found, pa.scalar(None, _MAP))
