"""The policy losses, as terms a token: a minibatch's loss is sum(loss_weight * term), the weights `core.advantage`'s.

n rollouts, T positions. `logprob` is the current policy's (with gradient), `old` the trainer's at the start of the
step, r = exp(logprob - old) the importance ratio. Everything is at the sampling temperature, in nats.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from core.advantage import Loss

MAX_LOG_RATIO = 20.0
"""Log-ratios are cut here, so that exp stays finite; clipping bounds the loss long before."""
ROUNDING = 1e-4
"""Log-ratios up to this are no distance: before the step's first update they are rounding, and |log r| would give each
a gradient of full size and random sign."""


@dataclass(frozen=True)
class TokenPenalty:
    """`core.advantage.Penalty` as tensors (n, T)."""

    form: Literal["absolute", "proxy"]
    coefficient: torch.Tensor  # 0 on tokens without a penalty
    proxy: torch.Tensor | None = None  # log-probs under the proxy, for "proxy" alone


@dataclass
class Terms:
    """What each token adds to the loss before its weight, all (n, T)."""

    term: torch.Tensor
    ratio: torch.Tensor  # the ratio that the objective clips: the token's, in gspo the response's
    clipped_low: torch.Tensor  # bool: clipping at the lower bound stopped the gradient (in cispo: fixed its weight)
    clipped_high: torch.Tensor  # bool: the same at the upper bound, dual clip included
    penalty: torch.Tensor | None = None  # coefficient x distance, 0 where it does not apply; None: the method has none
    penalised: torch.Tensor | None = None  # bool: where the penalty applies


def policy_terms(
    loss: Loss,
    logprob: torch.Tensor,
    old: torch.Tensor,
    advantage: torch.Tensor,
    mask: torch.Tensor,
    penalty: TokenPenalty | None = None,
) -> Terms:
    """The terms of `loss.objective`; `mask` (n, T) bool is True on response tokens.

    Where a penalty applies, the objectives that clip a token's ratio give their unclipped term, -A r, as KL-Cov's and
    Lp-Reg's authors have it; the others keep their own.
    """
    log_ratio = torch.where(mask, logprob - old, 0.0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    ratio = (_sequence_log_ratio(log_ratio, logprob, mask) if loss.objective == "gspo" else log_ratio).exp()
    terms = _objective(loss, logprob, ratio, advantage, mask)
    if penalty is None:
        return terms
    terms.penalty, terms.penalised = _penalty(penalty, logprob, log_ratio, mask)
    if loss.objective == "clip":
        terms.term = torch.where(terms.penalised, -advantage * ratio, terms.term)
        terms.clipped_low = terms.clipped_low & ~terms.penalised
        terms.clipped_high = terms.clipped_high & ~terms.penalised
    return terms


def _objective(
    loss: Loss, logprob: torch.Tensor, ratio: torch.Tensor, advantage: torch.Tensor, mask: torch.Tensor
) -> Terms:
    low, high = 1 - loss.clip_low, 1 + loss.clip_high
    if loss.objective in ("ratio", "reinforce"):
        nothing = torch.zeros_like(mask)
        factor = ratio if loss.objective == "ratio" else logprob
        return Terms(-advantage * factor, ratio.detach(), nothing, nothing)
    if loss.objective == "cispo":
        weight = ratio.detach().clamp(low, high)
        return Terms(-weight * advantage * logprob, ratio.detach(), mask & (ratio < low), mask & (ratio > high))
    return _clipped(loss, ratio, advantage, low, high)


def _clipped(loss: Loss, ratio: torch.Tensor, advantage: torch.Tensor, low: float, high: float) -> Terms:
    """PPO's -min(r A, clip(r) A), and for A < 0 at most dual_clip * |A| (Ye et al., 2020)."""
    term = torch.maximum(-advantage * ratio, -advantage * ratio.clamp(low, high))
    clipped_low = (advantage < 0) & (ratio < low)
    clipped_high = (advantage > 0) & (ratio > high)
    if loss.dual_clip is not None:
        bounded = torch.minimum(term, -advantage * loss.dual_clip)
        term = torch.where(advantage < 0, bounded, term)
        clipped_high = clipped_high | ((advantage < 0) & (ratio > loss.dual_clip))
    return Terms(term, ratio.detach(), clipped_low, clipped_high)


def _penalty(
    penalty: TokenPenalty, logprob: torch.Tensor, log_ratio: torch.Tensor, mask: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Coefficient x distance and where it applies (bool), both (n, T).

    "absolute": |log r| (arXiv 2505.22617, its code). "proxy": the k3 of KL(policy || proxy), where the proxy finds the
    token likelier than the policy does (arXiv 2510.03222, its code).
    """
    applies = mask & (penalty.coefficient > 0)
    if penalty.form == "absolute":
        distance = log_ratio.abs()
        return torch.where(applies & (distance > ROUNDING), penalty.coefficient * distance, 0.0), applies
    applies = applies & (logprob < penalty.proxy)
    reference = torch.where(applies, penalty.proxy, logprob.detach())
    return torch.where(applies, penalty.coefficient * kl_k3(logprob, reference), 0.0), applies


def _sequence_log_ratio(log_ratio: torch.Tensor, logprob: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """GSPO's token form (arXiv 2507.18071): the response's mean log-ratio with the gradient of the token's log-prob."""
    mean = (log_ratio * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    return mean.detach() + torch.where(mask, logprob - logprob.detach(), 0.0)


def kl_k3(logprob: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Schulman's k3 of KL(policy || reference), for samples of the policy: exp(d) - d - 1 with d = ref - logprob."""
    difference = reference - logprob
    return difference.exp() - difference - 1
