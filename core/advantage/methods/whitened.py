"""REINFORCE++ (arXiv 2501.03262): the return of every token, whitened over all tokens of the batch.

    A = (G - mean) / sqrt(var + 1e-8)      G_t = gamma^(T - 1 - t) R, mean and unbiased variance over response tokens

Groups that dynamic sampling drops are not among them.

`reinforce_pp_baseline` first subtracts the group's mean from the reward. Whitening moves the zero, so there a group of
equal rewards gets a small advantage all the same; only a batch without any difference gets 0.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from core.advantage.groups import group_stats
from core.advantage.rules import BaseRule, Outcome, Param, Params
from core.advantage.types import Batch
from core.advantage.words import num

EPS = 1e-8


def reinforce_pp(batch: Batch, params: Params) -> Outcome:
    """(N,) whitened rewards; (N, T) with a discount below 1, where returns differ along a response."""

    def words(i: int) -> str:
        return f"reward {num(batch.reward[i])}"

    return _whiten(batch, batch.reward, params["gamma"], words, "reward")


def reinforce_pp_baseline(batch: Batch, params: Params) -> Outcome:
    """(N,) rewards minus their group's mean, whitened."""
    stats = group_stats(batch.group, batch.reward)
    mean = stats.mean[stats.index]
    values = np.where(stats.equal[stats.index], 0.0, batch.reward - mean)

    def words(i: int) -> str:
        return f"reward {num(batch.reward[i])} − group mean {num(mean[i])}"

    return _whiten(batch, values, 1.0, words, "reward − group mean")


def _whiten(batch: Batch, reward: np.ndarray, gamma: float, words: Callable[[int], str], what: str) -> Outcome:
    mask = batch.mask
    left = np.where(mask, batch.length[:, None] - 1 - np.arange(batch.width), 0)
    returns = reward[:, None] * gamma**left
    tokens = returns[mask & batch.counted[:, None]]
    mean = tokens.mean() if len(tokens) else 0.0
    var = ((tokens - mean) ** 2).sum() / max(len(tokens) - 1, 1)
    same = not len(tokens) or tokens.max() == tokens.min()
    spread = np.sqrt(var + EPS)
    values = np.zeros_like(returns) if same else np.where(mask, (returns - mean) / spread, 0.0)

    def explain(i: int, t: int) -> str:
        if same:
            return f"all {len(tokens)} tokens of the batch have the same return: no signal"
        own = words(i) if gamma == 1 else f"{words(i)} × {num(gamma)}^{left[i, t]}"
        return f"({num(returns[i, t])} − {num(mean)}) / {num(spread)}: {own}, whitened over the batch's tokens"

    per = "" if gamma == 1 else f", discounted by {num(gamma)} a token"
    reason = f"({what}{per} − {num(mean)}) / {num(spread)}, mean and standard deviation over {len(tokens)} tokens"
    return Outcome(values[:, 0] if gamma == 1 else values, reason, explain)


REINFORCE_PP = BaseRule(
    "reinforce_pp",
    reinforce_pp,
    "A = (γ^(T−1−t) R − mean) / √(var + ε), over the batch's tokens",
    params=(Param("gamma", 1.0, "discount a token of the reward at the response's end [C]", low=0, high=1),),
    compares=False,
)
REINFORCE_PP_BASELINE = BaseRule(
    "reinforce_pp_baseline", reinforce_pp_baseline, "A = (R − m − mean) / √(var + ε), over the batch's tokens"
)
