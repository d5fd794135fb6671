"""A-GRAE (arXiv 2602.05548, its code): from easy to hard prompts as the batch improves, positives damped before.

With m the group's mean reward and M the mean of m over the batch's groups:

    easy = .5 A / (1 - sqrt(m) + eps)    hard = .5 A / (sqrt(m) + eps)
    A' = (1 - M) easy + M hard,          and A' > 0 is multiplied by min(1, M / a)

Groups that dynamic sampling drops are not in M. Both are factors of A, so it weighs whatever it is put on. A group
whose m is not between 0 and 1 (all right or all wrong under a base that compares nothing, or rewards that are no
shares) keeps its A: there is no difficulty to go by. For M, m is cut to 0..1.
"""

from __future__ import annotations

import numpy as np

from core.advantage.groups import group_stats
from core.advantage.rules import Outcome, Param, Params, State, Weight
from core.advantage.words import num

EPS = 1e-6


def balance(state: State, params: Params) -> Outcome:
    """(N, T) the factor on the advantage so far."""
    a = params["a"]
    stats = group_stats(state.batch.group, state.batch.reward)
    g = stats.index
    m = np.clip(stats.mean, 0.0, 1.0)
    counted = np.unique(g[state.batch.counted])
    whole = float(m[counted].mean()) if len(counted) else 0.0
    shared = (m > 0) & (m < 1)
    easy, hard = 0.5 / (1 - np.sqrt(m) + EPS), 0.5 / (np.sqrt(m) + EPS)
    focus = np.where(shared, (1 - whole) * easy + whole * hard, 1.0)
    damp = min(1.0, whole / a)
    positive = (state.advantage > 0) & shared[g][:, None]
    values = focus[g][:, None] * np.where(positive, damp, 1.0)

    def explain(i: int, t: int) -> str:
        own = g[i]
        if not shared[own]:
            return f"the group's mean reward, {num(stats.mean[own])}, is not between 0 and 1: no difficulty to go by"
        words = (
            f"(1 − {num(whole)}) × {num(easy[own])} + {num(whole)} × {num(hard[own])} = {num(focus[own])}: "
            f"group mean {num(m[own])}, batch mean {num(whole)}"
        )
        return words + (f"; × {num(damp)} on positive advantages" if positive[i, t] and damp < 1 else "")

    reason = f"batch mean {num(whole)}: easy prompts count {num(1 - whole)}, hard ones {num(whole)}"
    reason += f"; positive advantages × {num(damp)}" if damp < 1 else ""
    return Outcome(values, reason, explain)


A_GRAE = Weight(
    "a_grae",
    "token",
    balance,
    "× [(1 − M) · .5/(1 − √m + ε) + M · .5/(√m + ε)] × min(1, M/a) if A > 0",
    params=(
        Param("a", 1.0, "the batch's mean reward from which positives count fully; .5 for geometry and medicine [C]",
              low=0.01, high=1),
    ),
)  # fmt: skip
