"""A3PO (arXiv 2512.21625): amplify the unlikely tokens of correct and the likely tokens of wrong responses, then fade.

    rho(step) = max(rho0 - alpha step, 1)
    A' = rho(step) A   on the 20 % lowest-p tokens of a correct and the 20 % highest-p tokens of a wrong response

Probabilities are the sampling policy's, ranked within each response; the step is the rollout step. With
`decay_fraction` instead of alpha, rho reaches 1 after that fraction of the run: alpha = (rho0 - 1) / (fraction steps).
With `p_below`, only tokens less likely than that are ranked: what an advantage moves is A (1 - p), and the most likely
tokens of a small model's wrong answers have p = 1.
"""

from __future__ import annotations

import numpy as np

from core.advantage.ranking import P_BELOW, counts, ranked_tokens, top
from core.advantage.rules import Outcome, Param, Params, State, Weight
from core.advantage.types import AdvantageError, Batch
from core.advantage.words import num, percent


def amplify(state: State, params: Params) -> Outcome:
    """(N, T) rho(step) on the chosen tokens, 1 elsewhere."""
    batch, ratio = state.batch, params["ratio"]
    positive = state.polarity > 0
    rho = {True: _rho(params["rho_positive"], params, batch), False: _rho(params["rho_negative"], params, batch)}
    ranked = ranked_tokens(batch, params)
    n = ranked.sum(axis=1)
    count = counts(ratio, n)
    low = top(batch.sampler_logprob, ranked, np.where(positive, count, 0), highest=False)
    high = top(batch.sampler_logprob, ranked, np.where(positive, 0, count), highest=True)
    values = np.where(low, rho[True], np.where(high, rho[False], 1.0))

    def explain(i: int, t: int) -> str:
        side = "positive" if positive[i] else "negative"
        sign, end, kind = ("ρ⁺", "lowest", "correct") if positive[i] else ("ρ⁻", "highest", "wrong")
        number = f"p = {num(np.exp(batch.sampler_logprob[i, t]))}"
        if not ranked[i, t]:
            return f"{number} is not below {num(params['p_below'])}, so it is not ranked"
        below = f"ranked (p < {num(params['p_below'])}) " if params["p_below"] is not None else ""
        place = f"the {count[i]} {end} of the {n[i]} {below}tokens of this {kind} response ({percent(ratio)})"
        if not (low[i, t] or high[i, t]):
            return f"{number} is not among {place}"
        start = params[f"rho_{side}"]
        fall = f"max({num(start)} − {num(_alpha(start, params, batch))} × {batch.step}, 1)"
        return f"{fall}: {sign} at step {batch.step}, as {number} is among {place}"

    reason = (
        f"ρ⁺ = {num(rho[True])} on the {percent(ratio)} least likely tokens of correct responses, ρ⁻ = "
        f"{num(rho[False])} on the {percent(ratio)} most likely tokens of wrong ones, at step {batch.step}"
    )
    return Outcome(values, reason, explain)


def _rho(start: float, params: Params, batch: Batch) -> float:
    return max(start - _alpha(start, params, batch) * batch.step, 1.0)


def _alpha(start: float, params: Params, batch: Batch) -> float:
    if params["decay_fraction"] is None:
        return params["alpha"]
    return (start - 1.0) / (params["decay_fraction"] * batch.total_steps)


def _needs(params: Params) -> frozenset[str]:
    length = {"total_steps"} if params["decay_fraction"] is not None else set()
    return frozenset({"sampler_logprob"} | length)


def _check(given: Params) -> None:
    if given.get("alpha") is not None and given.get("decay_fraction") is not None:
        raise AdvantageError("give a3po.alpha or a3po.decay_fraction, not both: each sets how fast ρ falls to 1")
    falling = given.get("alpha") != 0 or given.get("decay_fraction") is not None
    if given.get("schedule") in ("linear", "decay") and falling:
        raise AdvantageError(
            f"a3po.schedule is {given['schedule']}, but ρ falls to 1 by a3po.alpha already: set alpha to 0 and "
            "leave out decay_fraction, to have it fall another way"
        )


A3PO = Weight(
    "a3po",
    "token",
    amplify,
    "× max(ρ₀ − α · step, 1) on the least likely ratio of a correct, the most likely ratio of a wrong response",
    params=(
        Param("rho_positive", 2.0, "start of ρ⁺, on unlikely tokens of correct responses [S]", low=1, high=10),
        Param("rho_negative", 2.0, "start of ρ⁻, on likely tokens of wrong responses [S]", low=1, high=10),
        Param("alpha", 0.005, "what ρ loses a step: 2 reaches 1 at step 200; 0 holds it constant [S]", low=0, high=1),
        Param("decay_fraction", None, "instead of alpha: ρ reaches 1 after this fraction of the run [I]",
              low=0.01, high=1),
        Param("ratio", 0.2, "share of each response's tokens that is amplified [S]", low=0, high=1),
        P_BELOW,
    ),
    needs=_needs,
    check=_check,
)  # fmt: skip
