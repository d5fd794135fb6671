"""The pre-aggregated table: what whole-run views read instead of the tokens."""

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
    with np.errstate(invalid="ignore"):  # infinities may be stored; what they make of a product is no value
        fields = _fields(tokens)
    for field, values in fields.items():
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


def add_up(parts: Sequence[pa.Table]) -> pa.Table:
    """The summary of all tokens, from the summaries of disjoint sets of them."""
    if len(parts) == 1:
        return parts[0]
    cells: dict[tuple, dict[str, Any]] = {}
    for row in (row for part in parts for row in part.to_pylist()):
        cell = cells.setdefault(tuple(row[key] for key in _CELL), row)
        if cell is not row:
            cell |= {name: cell[name] + row[name] for name in ("n", "sum", "sum_squares")}
            cell["histogram"] = [a + b for a, b in zip(cell["histogram"], row["histogram"], strict=True)]
    return pa.Table.from_pylist(list(cells.values()), schema=schema.arrow("summary"))


def _fields(tokens: pa.Table) -> dict[str, np.ndarray]:
    """(tokens,) float64 arrays of every summary field; NaN where a token has no value."""

    def column(name: str) -> np.ndarray:
        return tokens[name].to_numpy().astype(np.float64)

    kept = tokens["kept"].fill_null(False).to_numpy()
    probability = np.exp(column("sampler_logprob"))
    advantage = np.where(kept, column("advantage"), np.nan)
    base = np.where(kept, column("base_advantage"), np.nan)
    weight = column("loss_weight")
    return {
        "probability": probability,
        "entropy": column("entropy"),
        "advantage": advantage,
        "base_advantage": base,
        "push": advantage * (1 - probability),
        "change": column("after_logprob") - column("trainer_logprob"),
        "mass": weight * np.abs(advantage),
        "base_mass": weight * np.abs(base),
    }
