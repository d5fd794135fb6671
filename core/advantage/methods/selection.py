"""Keep only the correct, or only the wrong rollouts: PSR and NSR (arXiv 2506.01347; as arXiv 2512.21625 trains them).

The others leave the batch: their advantage is 0 and the loss's denominators don't count them.
"""

from __future__ import annotations

from core.advantage.rules import Outcome, Param, Params, State, Weight

_WORD = {1: "correct", -1: "wrong"}
_SIGN = {"positive": 1, "negative": -1}


def select(state: State, params: Params) -> Outcome:
    """(N,) 1 on rollouts of the kept polarity, else 0."""
    wanted = _SIGN[params["keep"]]
    kept = state.polarity == wanted
    word = _WORD[wanted]

    def explain(i: int, t: int) -> str:
        own = _WORD[int(state.polarity[i])]
        return f"kept: a {own} response" if kept[i] else f"dropped: a {own} response, only {word} ones are trained on"

    reason = f"only {word} responses are trained on: {int(kept.sum())} of {len(kept)}"
    return Outcome(kept.astype(float), reason, explain)


SELECTION = Weight(
    "selection",
    "rollout",
    select,
    "keep the rollout if it has the kept polarity",
    params=(Param("keep", "positive", "the polarity that stays [C]", kind="choice", choices=("positive", "negative")),),
    selects=True,
)
