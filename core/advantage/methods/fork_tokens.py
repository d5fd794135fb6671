"""Train on forking tokens only (arXiv 2506.01939): the 20 % of the batch's tokens with the highest entropy.

The others leave the loss and its denominators. The authors' code ranks within a micro-batch and by the current policy's
entropy; here it is the whole step's tokens that no other selection drops, and the entropy when they were sampled.
"""

from __future__ import annotations

import numpy as np

from core.advantage.ranking import counts, top_of_batch
from core.advantage.rules import Outcome, Param, Params, State, Weight
from core.advantage.words import num, percent


def fork(state: State, params: Params) -> Outcome:
    """(N, T) 1 on the chosen tokens, else 0."""
    batch, ratio = state.batch, params["ratio"]
    n = int(state.kept.sum())
    count = int(counts(ratio, np.array([n]))[0])
    chosen = top_of_batch(batch.entropy, state.kept, count, highest=True, batch=batch)
    least = batch.entropy[chosen].min(initial=float("inf"))

    def explain(i: int, t: int) -> str:
        word = "kept" if chosen[i, t] else "dropped"
        place = f"the {count} most uncertain of the step's {n} tokens ({percent(ratio)}, from {num(least)} nats on)"
        return f"{word}: H = {num(batch.entropy[i, t])} nats is {'' if chosen[i, t] else 'not '}among {place}"

    reason = f"only the {percent(ratio)} tokens of highest entropy are trained on: {count} of {n}"
    return Outcome(chosen.astype(float), reason, explain)


FORK_TOKENS = Weight(
    "fork_tokens",
    "token",
    fork,
    "keep the token if its H is among the step's highest ratio",
    params=(Param("ratio", 0.2, "share of the step's tokens that is trained on [P]", low=0.001, high=1),),
    needs=lambda params: frozenset({"entropy"}),
    selects=True,
)
