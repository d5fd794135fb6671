"""What the loss makes of a token's advantage, with its numbers: the term of the objective, the penalty, the weight.

The formulas of the trainer's losses, for one token. r is the importance ratio, p the token's probability.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from app.words import number
from core.advantage import Batch, Loss, Method, Trace

WEIGHING = {
    "token_mean": "1 / tokens of the update",
    "sequence_mean": "1 / (rollouts × tokens of this one)",
    "fixed_length": "1 / (rollouts × length limit)",
}


class Weighed(Protocol):
    """A method's trace on a batch with its (N, T) loss weights: an `Answer`, or a step of a run."""

    @property
    def method(self) -> Method: ...
    @property
    def trace(self) -> Trace: ...
    @property
    def weight(self) -> np.ndarray: ...


@dataclass(frozen=True)
class Term:
    """A value with the formula that gives it, the same with numbers, and words; None where a number is missing."""

    value: float | None
    formula: str
    numbers: str = ""
    words: str = ""


def loss_term(answer: Weighed, batch: Batch, i: int, t: int, ratio: np.ndarray | None) -> Term:
    """What token t of rollout i adds to the loss before its weight.

    `ratio` (N, T): stored importance ratios, NaN where there is none; None: the update has not begun.
    """
    loss, advantage = answer.method.loss, float(answer.trace.advantage[i, t])
    r, known = _ratio(loss, batch, i, t, ratio)
    logprob = _logprob(batch, i, t, ratio)
    term = _objective(loss, advantage, r, logprob)
    penalty = answer.trace.penalty
    if penalty is not None and penalty.coefficient[i, t] > 0:
        proxy = None if batch.proxy_logprob is None else float(batch.proxy_logprob[i, t])
        term = _penalised(loss, term, float(penalty.coefficient[i, t]), penalty.form, advantage, r, logprob, proxy)
    return Term(term.value, term.formula, term.numbers, "; ".join(filter(None, [known, term.words])))


def kl_term(answer: Weighed, batch: Batch, i: int, t: int, ratio: np.ndarray | None) -> Term | None:
    """What the loss adds for the distance to the base model (k3); None where its coefficient is 0."""
    coefficient = answer.method.loss.kl
    if not coefficient:
        return None
    formula, logprob = "β (p_ref / p − log(p_ref / p) − 1)", _logprob(batch, i, t, ratio)
    if logprob is None or batch.ref_logprob is None:
        return Term(None, formula, words="needs the base model's log-probs, which this batch doesn't have")
    gap = float(batch.ref_logprob[i, t]) - logprob
    distance = math.exp(gap) - gap - 1
    return _made(coefficient * distance, formula, f"{number(coefficient)} × {number(distance)}")


def loss_weight(answer: Weighed, batch: Batch, i: int, t: int, term: float | None) -> Term:
    """What the loss's averaging multiplies the token's term by."""
    aggregation, weight = answer.method.loss.aggregation, float(answer.weight[i, t])
    formula = WEIGHING[aggregation]
    if not weight:
        return Term(0.0, formula, "", "dropped: not in the loss, nor in its denominators")
    tokens = int(answer.trace.kept[i].sum())
    per = {"token_mean": 1, "sequence_mean": tokens, "fixed_length": batch.max_length}[aggregation]
    counted = f"{number(round(1 / (weight * per)))}{f' × {number(per)}' if aggregation != 'token_mean' else ''}"
    numbers = f"1 / ({counted})" if " " in counted else f"1 / {counted}"
    words = "" if term is None else f"adds {number(weight * term, signed=True)} to the loss"
    return Term(weight, formula, f"{numbers} = {number(weight)}", words)


def _ratio(loss: Loss, batch: Batch, i: int, t: int, ratio: np.ndarray | None) -> tuple[float, str]:
    """(the ratio that the objective sees, where it comes from)."""
    if ratio is None:
        return 1.0, "r = 1 before the update"
    own = ratio[i, : int(batch.length[i])]
    if not np.isfinite(own[t]):
        return 1.0, "no gradient pass here, so r is taken as 1"
    if loss.objective == "gspo":
        return float(np.exp(np.mean(np.log(own[np.isfinite(own)])))), "r of the run's own update"
    return float(own[t]), "r of the run's own update"


def _logprob(batch: Batch, i: int, t: int, ratio: np.ndarray | None) -> float | None:
    """The token's log-prob at that ratio; None where none was recorded."""
    start = batch.trainer_logprob if batch.trainer_logprob is not None else batch.sampler_logprob
    if start is None:
        return None
    moved = 0.0 if ratio is None or not ratio[i, t] > 0 else math.log(ratio[i, t])
    return float(start[i, t]) + moved


def _objective(loss: Loss, advantage: float, r: float, logprob: float | None) -> Term:
    a, low, high = number(advantage), 1 - loss.clip_low, 1 + loss.clip_high
    bounds = f"clip(r) is held between 1 − {number(loss.clip_low)} and 1 + {number(loss.clip_high)}"
    if loss.objective == "ratio":
        return _made(-r * advantage, "−r A", f"−{number(r)} × {a}")
    if loss.objective in ("cispo", "reinforce"):
        formula = "−A log p" if loss.objective == "reinforce" else "−clip(r) A log p"
        if logprob is None:
            return Term(None, formula, words="needs the token's log-prob, which this batch doesn't have")
        if loss.objective == "reinforce":
            return _made(-advantage * logprob, formula, f"−({a}) × ({number(logprob)})")
        weight = min(max(r, low), high)
        return _made(-weight * advantage * logprob, formula, f"−{number(weight)} × ({a}) × ({number(logprob)})", bounds)
    clipped = min(max(r, low), high)
    term = max(-r * advantage, -clipped * advantage)
    formula, numbers = "−min(r A, clip(r) A)", f"−min({number(r)} × {a}, {number(clipped)} × {a})"
    if loss.objective == "gspo":
        formula += ", r = exp(mean log r) of the response"
    stopped = (advantage > 0 and r > high) or (advantage < 0 and r < low)
    if loss.dual_clip is not None and advantage < 0:
        formula += ", at most c |A|"
        numbers = f"min({numbers}, {number(loss.dual_clip)} × {number(-advantage)})"
        stopped = stopped or r > loss.dual_clip
        term = min(term, -loss.dual_clip * advantage)
    return _made(term, formula, numbers, f"{bounds}{', clipped: no gradient' if stopped else ''}")


def _penalised(
    loss: Loss, own: Term, coefficient: float, form: str, advantage: float, r: float, logprob: float | None,
    proxy: float | None,
) -> Term:  # fmt: skip
    """The term of a token with a penalty: unclipped where the objective clips token by token, plus the penalty."""
    if form == "absolute":
        distance, named, filled = abs(math.log(r)), "c |log r|", f"|log {number(r)}|"
    elif logprob is None or proxy is None or logprob >= proxy:
        return Term(own.value, own.formula, own.numbers, f"{own.words}; no penalty: the proxy has it no likelier")
    else:
        gap = proxy - logprob
        distance, named, filled = math.exp(gap) - gap - 1, "c k3(p, proxy)", number(math.exp(gap) - gap - 1)
    if loss.objective in ("clip", "ratio"):
        own = _made(-r * advantage, "−r A", f"−{number(r)} × {number(advantage)}")
    if own.value is None:
        return own
    head = own.numbers.rpartition(" = ")[0]
    return _made(
        own.value + coefficient * distance, f"{own.formula} + {named}", f"{head} + {number(coefficient)} × {filled}"
    )


def _made(value: float, formula: str, numbers: str, words: str = "") -> Term:
    value += 0.0
    return Term(value, formula, f"{numbers} = {number(value)}", words)
