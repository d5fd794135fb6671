"""Base rules: one advantage a rollout, from its reward and its group's.

A group of equal rewards gives 0, exactly, but for `pm1`, which compares nothing.
"""

from __future__ import annotations

import numpy as np

from core.advantage.groups import group_stats
from core.advantage.rules import BaseRule, Outcome, Param, Params
from core.advantage.types import Batch
from core.advantage.words import num


def grpo(batch: Batch, params: Params) -> Outcome:
    """(R - m) / (s + eps), m and s the group's mean and standard deviation (arXiv 2402.03300).

    A group whose rewards are all equal carries no signal and gets 0; so does a group of one rollout.
    """
    eps, ddof = params["eps"], params["ddof"]
    stats = group_stats(batch.group, batch.reward, ddof)
    g = stats.index
    spread = np.where(stats.equal, 1.0, stats.std + eps)  # eps may be 0
    values = np.where(stats.equal[g], 0.0, (batch.reward - stats.mean[g]) / spread[g])

    def explain(i: int, t: int) -> str:
        if stats.equal[g[i]]:
            return no_signal(batch.reward[i], stats.n[g[i]])
        return (
            f"({num(batch.reward[i])} − {num(stats.mean[g[i]])}) / {num(spread[g[i]])}: reward minus the mean of its "
            f"{stats.n[g[i]]} rollouts, over their standard deviation"
        )

    how = "n − 1" if ddof else "n"
    reason = f"(reward − group mean) / (standard deviation over {how} + {num(eps)}), 0 where all rewards are equal"
    return Outcome(values, reason, explain)


def dr_grpo(batch: Batch, params: Params) -> Outcome:
    """R - m: the group's mean is the baseline and nothing is divided (arXiv 2503.20783)."""
    stats = group_stats(batch.group, batch.reward)
    g = stats.index
    values = np.where(stats.equal[g], 0.0, batch.reward - stats.mean[g])

    def explain(i: int, t: int) -> str:
        if stats.equal[g[i]]:
            return no_signal(batch.reward[i], stats.n[g[i]])
        mean, n = stats.mean[g[i]], stats.n[g[i]]
        return f"{num(batch.reward[i])} − {num(mean)}: reward minus the mean of its {n} rollouts"

    return Outcome(values, "reward − group mean, not divided by the standard deviation", explain)


def rloo(batch: Batch, params: Params) -> Outcome:
    """R - the mean of the other rollouts of its group (arXiv 2402.14740)."""
    stats = group_stats(batch.group, batch.reward)
    g = stats.index
    others = (stats.mean * stats.n)[g] - batch.reward
    others = others / np.maximum(stats.n[g] - 1, 1)
    values = np.where(stats.equal[g], 0.0, batch.reward - others)

    def explain(i: int, t: int) -> str:
        if stats.equal[g[i]]:
            return no_signal(batch.reward[i], stats.n[g[i]])
        n = stats.n[g[i]] - 1
        return f"{num(batch.reward[i])} − {num(others[i])}: reward minus the mean of the other {n} of its group"

    return Outcome(values, "reward − mean of the other rollouts of the group", explain)


def pm1(batch: Batch, params: Params) -> Outcome:
    """+1 for a correct rollout, -1 for a wrong one, no group baseline (arXiv 2506.01347)."""

    def explain(i: int, t: int) -> str:
        return f"a {'correct' if batch.correct[i] else 'wrong'} response, whatever its group did"

    return Outcome(np.where(batch.correct, 1.0, -1.0), "+1 on correct, −1 on wrong, no group baseline", explain)


def no_signal(reward: float, n: int) -> str:
    """Why a rollout of a group of equal rewards has no advantage."""
    if n == 1:
        return "the only rollout of its group: nothing to compare it with"
    return f"all {n} rollouts of the group have reward {num(reward)}: no signal"


GRPO = BaseRule(
    "grpo",
    grpo,
    "A = (R − m) / (s + ε)",
    params=(
        Param("eps", 1e-6, "added to the group's standard deviation; TRL adds 1e-4 [C]", low=0.0, high=1.0),
        Param("ddof", 1, "1: standard deviation over n − 1, 0: over n [C]", kind="int", low=0, high=1),
    ),
)
DR_GRPO = BaseRule("dr_grpo", dr_grpo, "A = R − m")
RLOO = BaseRule("rloo", rloo, "A = R − mean of the others' R")
PM1 = BaseRule("pm1", pm1, "A = +1 if correct, −1 if wrong", compares=False)
