"""The pre-aggregated tables: what whole-run views read instead of the tokens.

`summary` has fields by relative position with their distributions, `positions` plain sums by absolute position, and
`strings` the same sums by token.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from core.store import schema

_CELL = ("step", "split", "polarity", "bin", "field")


def summary_rows(tokens: pa.Table, polarity: np.ndarray, length: np.ndarray) -> pa.Table:
    """Aggregate one step and split: a row for each polarity x tenth of the response x field that has a token.

    `polarity` and `length` are those of each token's rollout, (tokens,). A value on a histogram's edge counts in the
    bin above it. A field without edges has one bin.
    """
    if not tokens.num_rows:
        return schema.arrow("summary").empty_table()
    step, split = tokens["step"][0].as_py(), tokens["split"][0].as_py()
    tenth = (tokens["position"].to_numpy().astype(np.int64) * schema.SUMMARY_BINS) // length
    cell = (polarity > 0) * schema.SUMMARY_BINS + tenth
    cells = 2 * schema.SUMMARY_BINS
    parts: list[dict[str, Any]] = []
    for field, values in token_values(tokens).items():
        there = np.isfinite(values)
        edges = np.asarray(schema.SUMMARY_EDGES[field])
        bins = len(edges) + 1
        place, value = cell[there], values[there]
        n = np.bincount(place, minlength=cells)
        total = np.bincount(place, weights=value, minlength=cells)
        squares = np.bincount(place, weights=value**2, minlength=cells)
        bin_of = np.searchsorted(edges, value, side="right")
        histogram = np.bincount(place * bins + bin_of, minlength=cells * bins).reshape(cells, bins)
        some = np.flatnonzero(n)
        parts.append(
            {
                "step": np.full(len(some), step),
                "split": [split] * len(some),
                "polarity": np.where(some >= schema.SUMMARY_BINS, 1, -1),
                "bin": some % schema.SUMMARY_BINS,
                "field": [field] * len(some),
                "n": n[some],
                "sum": total[some],
                "sum_squares": squares[some],
                "histogram": pa.ListArray.from_arrays(np.arange(len(some) + 1, dtype=np.int32) * bins,
                                                      histogram[some].ravel()),
            }
        )  # fmt: skip
    wanted = schema.arrow("summary")
    return pa.concat_tables(
        pa.table([pa.array(part[column.name], column.type) for column in wanted], schema=wanted) for part in parts
    )


def add_up(table: str, parts: Sequence[pa.Table]) -> pa.Table:
    """One of the three tables for all tokens, from its rows for disjoint sets of them; `strings` is then cut short."""
    if table != "summary":
        return _add_up_sums(table, parts)
    if len(parts) == 1:
        return parts[0]
    cells: dict[tuple, dict[str, Any]] = {}
    for row in (row for part in parts for row in part.to_pylist()):
        cell = cells.setdefault(tuple(row[key] for key in _CELL), row)
        if cell is not row:
            cell |= {name: cell[name] + row[name] for name in ("n", "sum", "sum_squares")}
            cell["histogram"] = [a + b for a, b in zip(cell["histogram"], row["histogram"], strict=True)]
    return pa.Table.from_pylist(list(cells.values()), schema=schema.arrow("summary"))


def sum_rows(table: str, tokens: pa.Table, polarity: np.ndarray) -> pa.Table:
    """The rows of `positions` or `strings` for one step and split; `polarity` is (tokens,) that of their rollouts."""
    if not tokens.num_rows:
        return schema.arrow(table).empty_table()
    if table == "positions":
        names, key = ["bin"], schema.position_bin(tokens["position"].to_numpy())
    else:
        names, key = ["token_id", "token"], tokens["token_id"].to_numpy().astype(np.int64)
    cells, first, place = np.unique(2 * key + (polarity > 0), return_index=True, return_inverse=True)
    values = token_values(tokens)

    def total(value: np.ndarray) -> np.ndarray:
        return np.bincount(place, weights=value, minlength=len(cells))

    columns: dict[str, Any] = {
        "step": np.full(len(cells), tokens["step"][0].as_py()),
        "split": [tokens["split"][0].as_py()] * len(cells),
        "polarity": np.where(cells % 2, 1, -1),
        names[0]: cells // 2,
        "tokens": np.bincount(place),
        "trained": total(np.isfinite(values["advantage"])).astype(np.int64),
        "changed": total(np.isfinite(values["change"])).astype(np.int64),
        "agreed": total(values["agreed"] == 1),
        "pushed": total(np.isfinite(values["agreed"])),
    }
    if "token" in names:
        columns["token"] = tokens["token"].take(first)
    for name in ("probability", "entropy", "advantage", "base_advantage", "push", "mass", "change", "entropy_change"):
        there = np.isfinite(values[name])
        some = total(there) > 0
        columns[name] = np.where(some, total(np.where(there, values[name], 0.0)), np.nan)
    wanted = schema.arrow(table)
    return pa.table([_array(columns[field.name], field.type) for field in wanted], schema=wanted)


def _array(values: Any, kind: pa.DataType) -> pa.Array | pa.ChunkedArray:
    return values if isinstance(values, pa.ChunkedArray) else pa.array(values, kind, from_pandas=True)


def _add_up_sums(table: str, parts: Sequence[pa.Table]) -> pa.Table:
    rows = pa.concat_tables(parts)
    keys = ["step", "split", "polarity", "bin" if table == "positions" else "token_id"]
    if len(parts) > 1:
        sums = [name for name in rows.column_names if name not in keys and name != "token"]
        first = [("token", "min")] if table == "strings" else []
        added = rows.group_by(keys).aggregate([*((name, "sum") for name in sums), *first])
        names = [name.removesuffix("_sum").removesuffix("_min") for name in added.column_names]
        rows = added.rename_columns(names).select(rows.column_names).cast(rows.schema)
        rows = rows.sort_by([(key, "ascending") for key in keys])
    return _foremost(rows) if table == "strings" else rows


def _foremost(strings: pa.Table) -> pa.Table:
    """At most STRINGS_KEPT rows of each step, split and polarity."""
    if strings.num_rows <= schema.STRINGS_KEPT:
        return strings
    frame = strings.select(["step", "split", "polarity"]).to_pandas()
    frame["push"] = np.abs(strings["push"].fill_null(0.0).to_numpy())
    frame["tokens"] = strings["tokens"].to_numpy()
    order = frame.sort_values(["push", "tokens"], ascending=False, kind="stable")
    rank = order.groupby(["step", "split", "polarity"]).cumcount()
    return strings.take(np.sort(rank.index[rank < schema.STRINGS_KEPT].to_numpy()))


def token_values(tokens: pa.Table) -> dict[str, np.ndarray]:
    """(tokens,) float64 arrays of every summary field; NaN where a token has no value."""
    with np.errstate(invalid="ignore"):  # infinities may be stored; what they make of a product is no value
        return _fields(tokens)


def _fields(tokens: pa.Table) -> dict[str, np.ndarray]:

    def column(name: str) -> np.ndarray:
        return tokens[name].to_numpy().astype(np.float64)

    kept = tokens["kept"].fill_null(False).to_numpy()
    probability = np.exp(column("sampler_logprob"))
    advantage = np.where(kept, column("advantage"), np.nan)
    base = np.where(kept, column("base_advantage"), np.nan)
    weight = column("loss_weight")
    logprob = np.where(kept, column("trainer_logprob"), np.nan)
    change = column("after_logprob") - column("trainer_logprob")
    moved = (np.abs(change) >= schema.UNMOVED) & np.isfinite(advantage) & (advantage != 0)
    return {
        "probability": probability,
        "entropy": column("entropy"),
        "advantage": advantage,
        "base_advantage": base,
        "push": advantage * (1 - probability),
        "change": change,
        "mass": weight * np.abs(advantage),
        "base_mass": weight * np.abs(base),
        "logprob": logprob,
        "logprob_advantage": logprob * advantage,
        "entropy_change": column("entropy_after") - column("entropy"),
        "agreed": np.where(moved, np.sign(change) == np.sign(advantage), np.nan),
    }
