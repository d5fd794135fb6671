"""A method's answer to a batch: its advantages, how its loss weighs them, and what its clip bounds would stop."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from core.advantage import Batch, Loss, Method, Penalty, Trace, compute, loss_weights
from core.advantage.rules import MASS_MATCHED


@dataclass(frozen=True, eq=False)
class Answer:
    """What one method makes of a batch of N rollouts, padded to T positions."""

    method: Method
    trace: Trace
    weight: np.ndarray  # (N, T) float64: what the loss multiplies a token's term by, 0 where it is not kept
    factor: np.ndarray  # (N, T) float64: the product of the factors, mass matching left out
    clipped: np.ndarray | None = None  # (N, T) bool: kept tokens that the clip bounds would stop; None without ratios
    clip_share: float | None = None  # of the kept tokens that have a ratio; None where none has

    @cached_property
    def base(self) -> np.ndarray:
        """(N, T) the base advantage on every position."""
        base = self.trace.base
        return base if base.ndim == 2 else np.broadcast_to(base[:, None], self.trace.advantage.shape)

    @cached_property
    def mass(self) -> np.ndarray:
        """(N, T) loss weight x |advantage|: how much a token counts in the update."""
        return self.weight * np.abs(self.trace.advantage)

    @cached_property
    def comparable(self) -> np.ndarray:
        """(N T,) the advantages in units of the largest, to 12 digits: what only rounding tells apart is equal."""
        flat = self.trace.advantage.ravel()
        return np.round(flat / (np.abs(flat).max(initial=0.0) or 1.0), 12)

    @cached_property
    def order(self) -> np.ndarray:
        """(N T,) the indices that sort `comparable`."""
        return np.argsort(self.comparable)


def answer(method: Method, batch: Batch, polarity_by: str = "correct", ratio: np.ndarray | None = None) -> Answer:
    """The method's trace on the batch, and its loss weights, by the minibatches that its own choice of groups makes.

    `ratio` (N, T): importance ratios as stored, NaN on tokens without one. They are those of the run's own updates:
    `clipped` says what this method's bounds would have stopped there. Raises AdvantageError like `compute`.
    """
    trace = compute(method, batch, polarity_by)
    weight = loss_weights(trace.kept, batch.length, batch.max_length, method.loss.aggregation, trace.minibatch)
    factor = np.ones(trace.advantage.shape)
    for one in trace.factors:
        if one.id != MASS_MATCHED:
            factor *= one.spread(batch)
    if ratio is None:
        return Answer(method, trace, weight, factor)
    known = trace.kept & np.isfinite(ratio)
    clipped = known & _stopped(method.loss, trace, batch, ratio)
    return Answer(method, trace, weight, factor, clipped, float(clipped.sum() / known.sum()) if known.any() else None)


def _stopped(loss: Loss, trace: Trace, batch: Batch, ratio: np.ndarray) -> np.ndarray:
    """(N, T) bool, as `core.train.losses` counts: the bound stops the gradient, in CISPO it fixes the weight."""
    if loss.objective not in ("clip", "gspo", "cispo"):
        return np.zeros(ratio.shape, dtype=bool)
    own = _of_responses(ratio) if loss.objective == "gspo" else ratio
    low, high = own < 1 - loss.clip_low, own > 1 + loss.clip_high
    if loss.objective == "cispo":
        return low | high
    up, down = trace.advantage > 0, trace.advantage < 0
    stopped = (down & low) | (up & high)
    if loss.dual_clip is not None:
        stopped |= down & (own > loss.dual_clip)
    if trace.penalty is not None and loss.objective == "clip":
        stopped &= ~_penalised(trace.penalty, batch, ratio)
    return stopped


def _penalised(penalty: Penalty, batch: Batch, ratio: np.ndarray) -> np.ndarray:
    """(N, T) bool: where the penalty applies, and with it the unclipped term."""
    chosen = penalty.coefficient > 0
    if penalty.form == "absolute":
        return chosen
    logprob = batch.trainer_logprob + np.log(ratio, out=np.zeros(ratio.shape), where=ratio > 0)
    return chosen & (logprob < batch.proxy_logprob)


def _of_responses(ratio: np.ndarray) -> np.ndarray:
    """(N, 1) each response's exp(mean log ratio) over its tokens that have one (arXiv 2507.18071)."""
    known = np.isfinite(ratio)
    logs = np.log(ratio, out=np.zeros(ratio.shape), where=known)
    return np.exp(logs.sum(axis=1) / np.maximum(known.sum(axis=1), 1))[:, None]
