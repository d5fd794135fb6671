"""Which of two methods changes the other, and on which prompt of a batch they part most."""

from __future__ import annotations

import numpy as np

from core.advantage import Batch, Method
from core.counterfactual import Answer

COARSE = 20
"""Differences are told apart by twentieths before it counts how well mixed a prompt's answers are."""


def shaped(first: Method, second: Method) -> bool:
    """Whether the first is the second with more weights: it then changes the second, whatever their order."""
    ours, theirs = ({rule.name for rule in method.weights} for method in (first, second))
    return first.base.name == second.base.name and theirs < ours


def telling_group(a: Answer, b: Answer, batch: Batch) -> tuple[int, tuple[float, float, float]]:
    """(the group on which two answers to the batch part most, how telling it is: larger is more).

    What counts first is the sum of |difference| over that of both |advantages|, in twentieths; then how near to half of
    the group's answers are right.
    """
    groups, index = np.unique(batch.group, return_inverse=True)

    def total(of_rollouts: np.ndarray) -> np.ndarray:
        return np.bincount(index, of_rollouts, minlength=len(groups))

    ours, theirs = a.trace.advantage, b.trace.advantage
    apart, whole = total(np.abs(ours - theirs).sum(axis=1)), total((np.abs(ours) + np.abs(theirs)).sum(axis=1))
    part = np.divide(apart, whole, out=np.zeros(len(groups)), where=whole > 0)
    unmixed = np.abs(total(batch.correct) / total(np.ones(len(batch.group))) - 0.5)
    keys = [(float(round(COARSE * p)), -float(u), float(p)) for p, u in zip(part, unmixed, strict=True)]
    best = max(range(len(groups)), key=keys.__getitem__)
    return int(groups[best]), keys[best]
