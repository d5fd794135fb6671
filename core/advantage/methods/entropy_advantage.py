"""An entropy term in the advantage (arXiv 2506.14758): A + min(alpha H, |A| / kappa), H without gradient.

Written as a factor, so that it composes: 1 + sign(A) min(alpha H / |A|, 1 / kappa), and 1 where A is 0. With kappa > 1
no advantage changes its sign.
"""

from __future__ import annotations

import numpy as np

from core.advantage.rules import Outcome, Param, Params, State, Weight
from core.advantage.words import num


def add_entropy(state: State, params: Params) -> Outcome:
    """(N, T) the factor on the advantage so far."""
    alpha, kappa = params["alpha"], params["kappa"]
    size, entropy = np.abs(state.advantage), state.batch.entropy
    bound = size / kappa
    bonus = np.minimum(alpha * entropy, bound)
    values = 1.0 + np.sign(state.advantage) * np.divide(bonus, size, out=np.zeros_like(size), where=size > 0)
    bounded = (alpha * entropy > bound) & state.kept & (size > 0)

    def explain(i: int, t: int) -> str:
        a, h = state.advantage[i, t], entropy[i, t]
        if a == 0:
            return "an advantage of 0 stays 0"
        sum_ = f"{num(a)} + min({num(alpha)} × {num(h)}, {num(size[i, t])} / {num(kappa)}) = {num(a + bonus[i, t])}"
        return f"{sum_}: H = {num(h)} nats" + (f", cut at |A| / κ = {num(bound[i, t])}" if bounded[i, t] else "")

    reason = (
        f"A + min({num(alpha)} H, |A| / {num(kappa)}), cut on {int(bounded.sum())} of {int(state.kept.sum())} tokens"
    )
    return Outcome(values, reason, explain)


ENTROPY_ADVANTAGE = Weight(
    "entropy_advantage",
    "token",
    add_entropy,
    "A + min(α H, |A| / κ)",
    params=(
        Param("alpha", 0.4, "what a nat of entropy adds to the advantage [S]", low=0, high=10),
        Param("kappa", 2.0, "the term is at most |A| / κ [S]", low=1, high=100),
    ),
    needs=lambda params: frozenset({"entropy"}),
)
