"""How a loss adds up tokens: the number that multiplies each token's term."""

from __future__ import annotations

import numpy as np

from core.advantage.types import AdvantageError
from core.advantage.words import listed

AGGREGATIONS = ("token_mean", "sequence_mean", "fixed_length")


def loss_weights(
    kept: np.ndarray, length: np.ndarray, max_length: int, aggregation: str, minibatch: np.ndarray
) -> np.ndarray:
    """(N, T) float64: the loss of a minibatch is the sum of weight x term over its tokens; 0 on dropped ones.

    `kept` (N, T) bool, `length` (N,) tokens, `minibatch` (N,) int: the optimizer's minibatch of each rollout. Per
    minibatch, over what is kept, tokens of zero advantage included:
    - token_mean: 1 / tokens; every token counts alike (DAPO). Sums to 1.
    - sequence_mean: 1 / (rollouts x tokens of this rollout); every rollout counts alike (GRPO). Sums to 1.
    - fixed_length: 1 / (rollouts x max_length); token sum over a constant (Dr. GRPO).
    A minibatch with nothing kept has weight 0 everywhere, and should be skipped.
    """
    if aggregation not in AGGREGATIONS:
        raise AdvantageError(f"aggregation must be {listed(AGGREGATIONS, 'or')}, but is {aggregation!r}")
    kept = np.asarray(kept, dtype=bool) & (np.arange(kept.shape[1])[None, :] < np.asarray(length)[:, None])
    _, index = np.unique(minibatch, return_inverse=True)
    tokens = kept.sum(axis=1)
    if aggregation == "token_mean":
        denominator = np.bincount(index, tokens)[index]
    else:
        rollouts = np.bincount(index, tokens > 0)[index]
        denominator = rollouts * (tokens if aggregation == "sequence_mean" else max_length)
    return np.where(kept, 1.0 / np.maximum(denominator, 1)[:, None], 0.0)
