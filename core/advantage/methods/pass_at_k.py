"""The analytical advantage of pass@k training (arXiv 2508.10751).

A group of n rollouts, w of them wrong, has the expected reward Rbar = 1 - C(w, k) / C(n, k) over its subsets of k, with
sd = sqrt(Rbar (1 - Rbar)):

    correct: (1 - Rbar) / (sd + eps)       wrong: (1 - Rbar - C(w - 1, k - 1) / C(n - 1, k - 1)) / (sd + eps)

Where every subset of k is all wrong, or none is, every advantage is 0. `correct` decides, not the reward's size.
"""

from __future__ import annotations

from math import comb

import numpy as np

from core.advantage.groups import group_stats
from core.advantage.rules import BaseRule, Outcome, Param, Params
from core.advantage.types import AdvantageError, Batch
from core.advantage.words import num

EPS = 1e-6


def pass_at_k(batch: Batch, params: Params) -> Outcome:
    """(N,) the advantage for pass@k. Raises AdvantageError for a group smaller than k."""
    k = params["k"]
    stats = group_stats(batch.group, batch.correct.astype(float))
    g, n = stats.index, stats.n
    if (n < k).any():
        small = int(np.flatnonzero(n < k)[0])
        raise AdvantageError(
            f"pass_at_k.k is {k}, but group {batch.groups[small]} has {n[small]} rollouts: give at least k a group"
        )
    wrong = n - np.bincount(g, batch.correct).astype(int)
    failing = np.array([comb(int(w), k) / comb(int(m), k) for w, m in zip(wrong, n, strict=True)])
    beside = np.array([comb(int(w) - 1, k - 1) / comb(int(m) - 1, k - 1) if w else 0.0
                       for w, m in zip(wrong, n, strict=True)])  # fmt: skip
    sd = np.sqrt(failing * (1 - failing))
    some = sd > 0
    below = np.where(some, sd + EPS, 1.0)
    values = np.where(batch.correct, (failing / below)[g], ((failing - beside) / below)[g])
    values = np.where(some[g], values, 0.0)

    def explain(i: int, t: int) -> str:
        own = g[i]
        group = f"{wrong[own]} of {n[own]} rollouts wrong, so {num(failing[own])} of the subsets of {k} fail"
        if not some[own]:
            return f"{group}: no signal"
        if batch.correct[i]:
            return f"{num(failing[own])} / {num(below[own])}: {group}"
        return f"({num(failing[own])} − {num(beside[own])}) / {num(below[own])}: {group}"

    reason = (
        f"each rollout's part in the group's expected pass@{k}: {int((~some).sum())} of {len(some)} groups are flat"
    )
    return Outcome(values, reason, explain)


PASS_AT_K = BaseRule(
    "pass_at_k",
    pass_at_k,
    "A = (1 − R̄ − c) / (sd + ε), R̄ = 1 − C(w,k)/C(n,k), c = C(w−1,k−1)/C(n−1,k−1) if wrong, else 0",
    params=(Param("k", 4, "the k of pass@k, at most the group's size [P]", kind="int", low=1, high=1024),),
    least_group=lambda params: params["k"],
)
