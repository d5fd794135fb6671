"""Statistics of groups (the rollouts of one prompt), vectorised over the batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class GroupStats:
    """Per group (P,), in the order of `Batch.groups`; `index` (N,) maps each rollout to its group.

    `equal`: every reward of the group is the same, decided by max == min and never by std == 0 (which rounding breaks).
    `std` is 0 for a group with no more than ddof rollouts.
    """

    index: np.ndarray
    n: np.ndarray
    mean: np.ndarray
    std: np.ndarray
    equal: np.ndarray


def group_stats(group: np.ndarray, value: np.ndarray, ddof: int = 1) -> GroupStats:
    """Statistics of `value` (N,) by `group` (N,)."""
    _, index = np.unique(group, return_inverse=True)
    n = np.bincount(index)
    mean = np.bincount(index, value) / n
    squares = np.bincount(index, (value - mean[index]) ** 2)
    std = np.where(n > ddof, np.sqrt(squares / np.maximum(n - ddof, 1)), 0.0)
    return GroupStats(index, n, mean, std, extreme(index, value, np.maximum) == extreme(index, value, np.minimum))


def extreme(index: np.ndarray, value: np.ndarray, largest: np.ufunc, where: np.ndarray | None = None) -> np.ndarray:
    """(P,) the largest (`np.maximum`) or smallest (`np.minimum`) value a group, NaN where no rollout counts."""
    out = np.full(int(index.max()) + 1, -np.inf if largest is np.maximum else np.inf)
    counted = slice(None) if where is None else where
    largest.at(out, index[counted], value[counted])
    return np.where(np.isinf(out), np.nan, out)


def mean_of(index: np.ndarray, value: np.ndarray, where: np.ndarray) -> np.ndarray:
    """(P,) mean of the values a group that count, NaN where none does."""
    size = int(index.max()) + 1
    n = np.bincount(index[where], minlength=size)
    total = np.bincount(index[where], value[where], minlength=size)
    return np.where(n > 0, total / np.maximum(n, 1), np.nan)
