"""Scale the most or least likely (or uncertain) tokens of correct and of wrong responses (arXiv 2512.21625, its code).

Four independent (ratio, scale) pairs, {positive, negative} x {high, low}. Within each response the max(1, int(ratio n))
tokens with the highest / lowest metric are multiplied by `scale`; n counts its tokens whose metric is not 0. A token in
two sets gets both factors; nothing is renormalised afterwards. With `p_below`, tokens as likely as that or more are
neither counted nor ranked. A ratio of 0 or a scale of 1 turns its set off, and
every scale starts at 1.
"""

from __future__ import annotations

import numpy as np

from core.advantage.ranking import P_BELOW, counts, ranked_tokens, top
from core.advantage.rules import NOTHING, Outcome, Param, Params, State, Weight
from core.advantage.words import listed, num, percent

SETS = tuple((polarity, end) for polarity in ("positive", "negative") for end in ("high", "low"))
_WORDS = {"positive": "correct", "negative": "wrong"}


def shape(state: State, params: Params) -> Outcome:
    """(N, T) the product of the scales of the sets that a token is in, 1 elsewhere."""
    batch, metric_name = state.batch, params["metric"]
    active = _active(params)
    values = np.ones(state.advantage.shape)
    if not active:
        return Outcome(values, "no set has a scale other than 1", lambda i, t: "no set has a scale other than 1")
    metric = np.exp(batch.sampler_logprob) if metric_name == "prob" else batch.entropy
    ranked = ranked_tokens(batch, params)
    valid = ranked & (metric != 0)
    n = valid.sum(axis=1)
    members: dict[tuple[str, str], np.ndarray] = {}
    for polarity, end in active:
        ratio, scale = params[f"{polarity}_{end}_ratio"], params[f"{polarity}_{end}_scale"]
        own = (state.polarity > 0) == (polarity == "positive")
        chosen = top(metric, valid, np.where(own, counts(ratio, n), 0), highest=end == "high")
        members[polarity, end] = chosen
        values *= np.where(chosen, scale, 1.0)

    symbol, unit = ("p", "") if metric_name == "prob" else ("H", " nats")

    def set_words(polarity: str, end: str) -> str:
        extreme = {"high": "highest", "low": "lowest"}[end]
        return f"{percent(params[f'{polarity}_{end}_ratio'])} {extreme}-{symbol} tokens of {_WORDS[polarity]} responses"

    def explain(i: int, t: int) -> str:
        number = f"{symbol} = {num(metric[i, t])}{unit}"
        if not ranked[i, t]:
            return f"{number}: p is not below {num(params['p_below'])}, so it is not ranked"
        sets = [key for key, chosen in members.items() if chosen[i, t]]
        if not sets:
            return f"{number}: in none of the scaled sets"
        scales = [f"the {set_words(p, e)} (× {num(params[f'{p}_{e}_scale'])})" for p, e in sets]
        return f"{number}: among {listed(scales)}"

    reason = "; ".join(f"{set_words(p, e)} × {num(params[f'{p}_{e}_scale'])}" for p, e in active)
    return Outcome(values, reason, explain)


def _active(params: Params) -> list[tuple[str, str]]:
    return [(p, e) for p, e in SETS if params[f"{p}_{e}_ratio"] > 0 and params[f"{p}_{e}_scale"] != 1]


def _needs(params: Params) -> frozenset[str]:
    if not _active(params):
        return NOTHING
    metric = "sampler_logprob" if params["metric"] == "prob" else "entropy"
    return frozenset({metric} | ({"sampler_logprob"} if params["p_below"] is not None else set()))


def _pair(polarity: str, end: str) -> tuple[Param, Param]:
    which = f"{'highest' if end == 'high' else 'lowest'}-metric tokens of {_WORDS[polarity]} responses"
    return (
        Param(f"{polarity}_{end}_ratio", 0.2, f"share of each response that counts as its {which}; 0 is off [S]",
              low=0, high=1),
        Param(f"{polarity}_{end}_scale", 1.0, f"factor on the {which}; the paper tries 0.2 to 5 [S]", low=0, high=10),
    )  # fmt: skip


TOKEN_SHAPING = Weight(
    "token_shaping",
    "token",
    shape,
    "× scale for each of {correct, wrong} × {highest, lowest} metric that the token is in",
    params=(
        Param("metric", "prob", "what tokens are ranked by: probability in the sampler, or entropy [C]", kind="choice",
              choices=("prob", "entropy")),
        *(param for polarity, end in SETS for param in _pair(polarity, end)),
        P_BELOW,
    ),
    needs=_needs,
)  # fmt: skip
