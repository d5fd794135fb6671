"""Which tokens of a response are its most or least likely (or most or least uncertain) ones."""

from __future__ import annotations

import numpy as np


def counts(ratio: float, n: np.ndarray) -> np.ndarray:
    """(N,) max(1, int(ratio n)), as the released code of arXiv 2512.21625 rounds; 0 where n is 0 or the ratio is 0."""
    if ratio == 0:
        return np.zeros_like(n)
    return np.minimum(np.maximum(1, (ratio * n).astype(int)), n)


def top(metric: np.ndarray, valid: np.ndarray, count: np.ndarray, highest: bool) -> np.ndarray:
    """(N, T) bool: in each row the `count` (N,) valid entries with the highest (or lowest) metric.

    Equal values: the earlier position comes first, so the choice never depends on the machine.
    """
    rows = np.flatnonzero(count > 0)
    chosen = np.zeros(metric.shape, dtype=bool)
    if not len(rows):
        return chosen
    key = np.where(valid[rows], -metric[rows] if highest else metric[rows], np.inf)
    order = np.argsort(key, axis=1, kind="stable")
    first = np.arange(metric.shape[1])[None, :] < count[rows, None]
    picked = np.zeros(key.shape, dtype=bool)
    np.put_along_axis(picked, order, first, axis=1)
    chosen[rows] = picked & valid[rows]
    return chosen
