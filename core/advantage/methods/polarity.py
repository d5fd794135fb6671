"""Scale correct and wrong rollouts by two numbers (arXiv 2512.21625): what matters is their ratio.

"P2N1" is positive 2, negative 1. Over the ±1 base with positive = lambda it is W-REINFORCE (arXiv 2506.01347).
"""

from __future__ import annotations

import numpy as np

from core.advantage.rules import Outcome, Param, Params, State, Weight
from core.advantage.types import AdvantageError
from core.advantage.words import num


def scale(state: State, params: Params) -> Outcome:
    """(N,) `positive` on correct rollouts, `negative` on wrong ones."""
    positive, negative = params["positive"], params["negative"]
    is_positive = state.polarity > 0

    def explain(i: int, t: int) -> str:
        return f"a {'correct' if is_positive[i] else 'wrong'} response"

    reason = f"correct responses × {num(positive)}, wrong responses × {num(negative)}"
    return Outcome(np.where(is_positive, positive, negative), reason, explain)


def sign_of(base: np.ndarray, mask: np.ndarray, correct: np.ndarray, by: str) -> np.ndarray:
    """(N,) int8 polarity: by correctness, or by the sign of the base advantage (its correctness where that is 0).

    `base` (N,) or (N, T); a per-token base counts by its sum over the response.
    """
    if by not in ("correct", "sign"):
        raise AdvantageError(f"polarity_by must be correct or sign, but is {by!r}")
    signs = np.where(correct, 1, -1)
    if by == "sign":
        total = base if base.ndim == 1 else np.where(mask, base, 0.0).sum(axis=1)
        signs = np.where(total == 0, signs, np.sign(total))
    return signs.astype(np.int8)


POLARITY = Weight(
    "polarity",
    "rollout",
    scale,
    "× positive if correct, × negative if wrong",
    params=(
        Param("positive", 2.0, "factor on correct responses; the paper's P2N1 is 2 and 1 [P]", low=0, high=10),
        Param("negative", 1.0, "factor on wrong responses [P]", low=0, high=10),
    ),
)
