"""The policy losses, as terms a token: a minibatch's loss is sum(loss_weight * term), the weights `core.advantage`'s.

n rollouts, T positions. `logprob` is the current policy's (with gradient), `old` the trainer's at the start of the
step, r = exp(logprob - old) the importance ratio. Everything is at the sampling temperature, in nats.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from core.advantage import Loss

MAX_LOG_RATIO = 20.0
"""Log-ratios are cut here, so that exp stays finite; clipping bounds the loss long before."""


@dataclass
class Terms:
    """What each token adds to the loss before its weight, all (n, T)."""

    term: torch.Tensor
    ratio: torch.Tensor  # the ratio that the objective clips: the token's, in gspo the response's
    clipped_low: torch.Tensor  # bool: clipping at the lower bound stopped the gradient (in cispo: fixed its weight)
    clipped_high: torch.Tensor  # bool: the same at the upper bound, dual clip included


def policy_terms(
    loss: Loss, logprob: torch.Tensor, old: torch.Tensor, advantage: torch.Tensor, mask: torch.Tensor
) -> Terms:
    """The terms of `loss.objective`; `mask` (n, T) bool is True on response tokens."""
    log_ratio = torch.where(mask, logprob - old, 0.0).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    if loss.objective == "gspo":
        log_ratio = _sequence_log_ratio(log_ratio, logprob, mask)
    ratio = log_ratio.exp()
    low, high = 1 - loss.clip_low, 1 + loss.clip_high
    if loss.objective == "reinforce":
        nothing = torch.zeros_like(mask)
        return Terms(-advantage * logprob, ratio.detach(), nothing, nothing)
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


def _sequence_log_ratio(log_ratio: torch.Tensor, logprob: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """GSPO's token form (arXiv 2507.18071): the response's mean log-ratio with the gradient of the token's log-prob."""
    mean = (log_ratio * mask).sum(-1, keepdim=True) / mask.sum(-1, keepdim=True).clamp(min=1)
    return mean.detach() + torch.where(mask, logprob - logprob.detach(), 0.0)


def kl_k3(logprob: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
    """Schulman's k3 of KL(policy || reference), for samples of the policy: exp(d) - d - 1 with d = ref - logprob."""
    difference = reference - logprob
    return difference.exp() - difference - 1
