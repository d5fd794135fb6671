"""Lp-Reg (arXiv 2510.03222, its code): keep the unlikely tokens that are no noise from being punished away.

The proxy is the policy of the start of the step without the tokens below `min_p` times the likeliest one's probability,
renormalised. Of the tokens with a negative advantage, the `ratio` with the lowest probability gets a KL penalty to it,

    coefficient x k3(log p, log proxy)     while log p < log proxy

which a filtered token never meets: its proxy log-prob is `PROXY_DROPPED`. The code picks the tokens by the current
policy in each minibatch, cuts k3 at 10 nats, and penalises none where `ratio` makes fewer than two tokens; here they
are picked once a step, nothing is cut, and it is one token at least.
"""

from __future__ import annotations

import numpy as np

from core.advantage.ranking import counts, top_of_batch
from core.advantage.rules import Outcome, Param, Params, State, Weight
from core.advantage.types import AdvantageError
from core.advantage.words import num, percent

PROXY_DROPPED = -1e4
"""The proxy's log-prob of a token that its filter drops, as the authors' code has it."""


def protect(state: State, params: Params) -> Outcome:
    """(N, T) the coefficient of the penalty, 0 on most tokens."""
    batch, min_p = state.batch, params["min_p"]
    if batch.proxy_min_p is not None and not np.isclose(batch.proxy_min_p, min_p):
        raise AdvantageError(
            f"lp_reg.min_p is {num(min_p)}, but these proxy log-probs were recorded with {num(batch.proxy_min_p)}"
        )
    pushed = state.kept & (state.advantage < 0)
    n = int(pushed.sum())
    count = int(counts(params["ratio"], np.array([n]))[0])
    chosen = top_of_batch(batch.trainer_logprob, pushed, count, highest=False, batch=batch)
    filtered = batch.proxy_logprob <= batch.trainer_logprob

    def explain(i: int, t: int) -> str:
        if not pushed[i, t]:
            return "no negative advantage here"
        p, place = num(np.exp(batch.trainer_logprob[i, t])), f"the {count} least likely of {n} tokens pushed down"
        if not chosen[i, t]:
            return f"p = {p} is not among {place} ({percent(params['ratio'])})"
        proxy = "the proxy filters it as noise: no penalty" if filtered[i, t] else (
            f"drawn to the proxy's {num(np.exp(batch.proxy_logprob[i, t]))}"
        )  # fmt: skip
        return f"p = {p} is among {place}; {proxy}"

    which = "" if batch.proxy_min_p is None else f" (min-p {num(min_p)})"
    held = int((chosen & ~filtered).sum())
    reason = (
        f"{num(params['coefficient'])} × KL to the proxy{which} on {count} of the {n} tokens with a negative "
        f"advantage, the least likely; the proxy knows {held} of them"
    )
    return Outcome(np.where(chosen, params["coefficient"], 0.0), reason, explain)


LP_REG = Weight(
    "lp_reg",
    "token",
    protect,
    "+ coefficient × KL to the min-p proxy if A < 0 and p is among the lowest ratio",
    params=(
        Param("ratio", 0.01, "share of the tokens with a negative advantage that is protected [P]", low=0, high=1),
        Param("coefficient", 1.0, "of the KL to the proxy [P]", low=0, high=100),
        Param("min_p", 0.02, "the proxy drops tokens below this share of the likeliest one's probability [P]",
              low=0.0001, high=1),
    ),
    needs=lambda params: frozenset({"trainer_logprob", "proxy_logprob"}),
    penalty="proxy",
    last=True,
)  # fmt: skip
