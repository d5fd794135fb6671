"""Truncated importance sampling (TIS) between the engine that sampled and the trainer, and the gap between them.

An engine with kernels or a precision of its own draws from another distribution than the one whose gradient the
trainer takes, although both hold the same weights. Yao et al., "Your Efficient RL Framework Secretly Brings You
Off-Policy RL Training" (2025), multiply a token's policy term by a constant without gradient,

    tis = min(exp(trainer - sampler), cap)

of its log-probs at the start of the step; the ratio that the objective clips stays current against trainer. Like verl
(`rollout_is_weights`) and TRL (`vllm_importance_sampling_correction`, token by token), the lab weighs the policy term
only: the KL term, the advantage and the loss's denominators know nothing of it.
"""

from __future__ import annotations

import numpy as np

MAX_LOG_RATIO = 20.0
"""Log-ratios are cut here before their mean is taken, so that one token cannot make it infinite."""

GAP_METRICS = ("gap_mean", "gap_max", "gap_share", "tis_mean_ratio", "tis_capped_share")


def tis_weights(sampler: np.ndarray, trainer: np.ndarray, cap: float) -> np.ndarray:
    """min(exp(trainer - sampler), cap) in float64, for log-probs (nats) of any one shape; 1 where they are equal.

    The cap is applied to the logarithm, so nothing overflows.
    """
    return np.exp(np.minimum(_log_ratio(sampler, trainer), np.log(cap)))


def gap_metrics(sampler: np.ndarray, trainer: np.ndarray, beyond: float, cap: float | None) -> dict[str, float | None]:
    """GAP_METRICS over log-probs (tokens,) in nats: how far sampler and trainer are apart.

    - gap_mean, gap_max: of |trainer - sampler|; gap_share: the share of tokens where it is more than `beyond`.
    - tis_mean_ratio: mean of exp(trainer - sampler) before the cap. The mean over a sampler's own draws is 1 however
      far the two are apart; a distance beyond chance says that they were drawn from something else than `sampler` says.
    - tis_capped_share: the share of tokens that the cap cuts; None without a cap. All are None without a token.
    """
    if not np.size(sampler):
        return dict.fromkeys(GAP_METRICS)
    apart = _log_ratio(sampler, trainer)
    ratio = np.exp(np.clip(apart, -MAX_LOG_RATIO, MAX_LOG_RATIO))
    return {
        "gap_mean": float(np.abs(apart).mean()),
        "gap_max": float(np.abs(apart).max()),
        "gap_share": float((np.abs(apart) > beyond).mean()),
        "tis_mean_ratio": float(ratio.mean()),
        "tis_capped_share": None if cap is None else float((apart > np.log(cap)).mean()),
    }


def _log_ratio(sampler: np.ndarray, trainer: np.ndarray) -> np.ndarray:
    return np.asarray(trainer, dtype=np.float64) - np.asarray(sampler, dtype=np.float64)
