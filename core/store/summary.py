"""The pre-aggregated table: what whole-run views read instead of the tokens."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from core.store import schema


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
    columns: dict[str, list] = {column.name: [] for column in schema.SUMMARY}
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
        for i in np.flatnonzero(n):
            columns["polarity"].append(1 if i >= schema.SUMMARY_BINS else -1)
            columns["bin"].append(int(i % schema.SUMMARY_BINS))
            columns["field"].append(field)
            columns["n"].append(int(n[i]))
            columns["sum"].append(float(total[i]))
            columns["sum_squares"].append(float(squares[i]))
            columns["histogram"].append(histogram[i].tolist())
    columns["step"] = [step] * len(columns["field"])
    columns["split"] = [split] * len(columns["field"])
    return pa.table(columns, schema=schema.arrow("summary"))


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
