"""The mass-matched control: is it the method, or only a larger learning rate?

A batch's advantage mass, as the loss weighs it, is the sum of loss weight x |A| over its kept tokens. The factor gives
the weighted batch the mass that its base rule alone would have, with the groups that the base drops: one number for
the whole step, 1 where either mass is 0. AdamW cancels a factor that all steps share, so under AdamW the control takes
away only what changes from step to step; under SGD it takes away the whole difference in size.
"""

from __future__ import annotations

import numpy as np

from core.advantage.aggregate import loss_weights
from core.advantage.rules import MASS_MATCHED
from core.advantage.types import Batch, Factor, Loss
from core.advantage.words import num


def mass(advantage: np.ndarray, kept: np.ndarray, minibatch: np.ndarray, batch: Batch, loss: Loss) -> float:
    """Sum of loss weight x |advantage|, both (N, T), over the kept tokens of all minibatches; `minibatch` is (N,)."""
    weight = loss_weights(kept, batch.length, batch.max_length, loss.aggregation, minibatch)
    return float((weight[kept] * np.abs(advantage[kept])).sum())


def match(own: float, base: float, batch: Batch) -> Factor:
    """(N,) the factor that brings the mass `own` to `base`."""
    value = base / own if own > 0 and base > 0 else 1.0
    words = f"the base rule's advantage mass {num(base)} / the weighted one's {num(own)}"
    words = words if own > 0 and base > 0 else f"{words}: nothing to match"
    return Factor(MASS_MATCHED, "rollout", np.full(len(batch.group), value), words, lambda i, t: words)
