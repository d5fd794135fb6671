"""Which tokens of a response, or of the whole batch, are the most or least likely (or uncertain) ones."""

from __future__ import annotations

import numpy as np

from core.advantage.rules import Param, Params
from core.advantage.types import Batch

P_BELOW = Param(
    "p_below", None, "rank only tokens less likely than this: an advantage moves A (1 − p) [I]", low=0.001, high=1
)
"""For weights that rank tokens: what is nearly certain cannot be pushed, whatever its factor."""


def counts(ratio: float, n: np.ndarray) -> np.ndarray:
    """(N,) max(1, int(ratio n)), as the released code of arXiv 2512.21625 rounds; 0 where n is 0 or the ratio is 0."""
    if ratio == 0:
        return np.zeros_like(n)
    return np.minimum(np.maximum(1, (ratio * n).astype(int)), n)


def ranked_tokens(batch: Batch, params: Params) -> np.ndarray:
    """(N, T) bool: the response tokens that `p_below` leaves to be ranked, by the sampler's probability."""
    if params["p_below"] is None:
        return batch.mask
    return batch.mask & (batch.sampler_logprob < np.log(params["p_below"]))


def top(metric: np.ndarray, valid: np.ndarray, count: np.ndarray, highest: bool) -> np.ndarray:
    """(N, T) bool: in each row the `count` (N,) valid entries with the highest (or lowest) metric.

    Equal values: the earlier position comes first, so the choice never depends on the machine.
    """
    rows = np.flatnonzero(count > 0)
    chosen = np.zeros(metric.shape, dtype=bool)
    if not len(rows):
        return chosen
    key = np.where(valid[rows], -metric[rows] if highest else metric[rows], np.inf)
    limit = np.take_along_axis(np.sort(key, axis=1), count[rows, None] - 1, axis=1)
    sure, tied = key < limit, key == limit
    more = tied & (np.cumsum(tied, axis=1) <= count[rows, None] - sure.sum(axis=1, keepdims=True))
    chosen[rows] = (sure | more) & valid[rows]
    return chosen


def top_of_batch(metric: np.ndarray, valid: np.ndarray, count: int, highest: bool, batch: Batch) -> np.ndarray:
    """(N, T) bool: of all valid entries the `count` with the highest (or lowest) metric.

    Equal values go by group, rollout and position, so that the order of the batch's rows does not matter.
    """
    chosen = np.zeros(metric.shape, dtype=bool)
    rows, places = np.nonzero(valid)
    count = min(count, len(rows))
    if count == 0:
        return chosen
    key = -metric[rows, places] if highest else metric[rows, places]
    limit = np.partition(key, count - 1)[count - 1]
    sure = key < limit
    chosen[rows[sure], places[sure]] = True
    tied = np.flatnonzero(key == limit)
    order = np.lexsort((places[tied], rollout_index(batch)[rows[tied]], batch.group[rows[tied]]))
    more = tied[order[: count - int(sure.sum())]]
    chosen[rows[more], places[more]] = True
    return chosen


def rollout_index(batch: Batch) -> np.ndarray:
    """(N,) the index of each rollout within its group: as the batch says, else by its order there."""
    if batch.rollout is not None:
        return np.asarray(batch.rollout)
    order = np.argsort(batch.group, kind="stable")
    _, start, n = np.unique(batch.group[order], return_index=True, return_counts=True)
    index = np.empty(len(order), dtype=np.int64)
    index[order] = np.arange(len(order)) - np.repeat(start, n)
    return index
