"""Spearman's rank correlation, ties sharing the mean of their ranks."""

from __future__ import annotations

import numpy as np


def average_ranks(values: np.ndarray, order: np.ndarray | None = None) -> np.ndarray:
    """(n,) ranks from 1; equal values share the mean of theirs.

    `order`: the indices that sort the values, where they are already known; with some left out the others are ranked
    among themselves, and those left out have rank 0.
    """
    order = np.argsort(values) if order is None else order
    ranks = np.zeros(len(values))
    if len(order):
        ordered = values[order]
        first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
        size = np.diff(np.append(first, len(ordered)))
        ranks[order] = np.repeat(first + (size + 1) / 2, size)
    return ranks


def correlation(a: np.ndarray, b: np.ndarray) -> float | None:
    """Pearson's correlation of two (n,) arrays; None where either is constant or empty.

    Sums of products, not `@`: threads of a linear algebra library cost 20 ms where the cores are busy.
    """
    if not len(a):
        return None
    a, b = a - a.mean(), b - b.mean()
    scale = np.sqrt((a * a).sum() * (b * b).sum())
    return float(np.clip((a * b).sum() / scale, -1, 1)) if scale > 0 else None


def spearman(a: np.ndarray, b: np.ndarray) -> float | None:
    """Rank correlation of two (n,) arrays; None where either is constant or empty."""
    return correlation(average_ranks(a), average_ranks(b))
