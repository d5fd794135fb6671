"""Which of a step's optimizer updates a rollout is part of."""

from __future__ import annotations

import numpy as np


def minibatches(group: np.ndarray, trained: np.ndarray, count: int) -> np.ndarray:
    """(N,) int32 from 0: the groups with `trained` (N,) bool rollouts split evenly into `count`, in their order.

    Groups that are not trained are in none; they get 0.
    """
    groups, index = np.unique(group, return_inverse=True)
    of_group = np.zeros(len(groups), dtype=np.int32)
    for minibatch, own in enumerate(np.array_split(np.unique(index[trained]), count)):
        of_group[own] = minibatch
    return of_group[index]
