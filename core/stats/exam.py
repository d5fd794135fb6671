"""What an exam of n rollouts a prompt says about a policy: pass@k, and which prompts lie within its reach."""

from __future__ import annotations

import numpy as np


def pass_at_k(n: np.ndarray | int, correct: np.ndarray | int, k: int) -> np.ndarray:
    """The unbiased estimate 1 - C(n - c, k) / C(n, k) of solving a prompt within k tries (Chen et al., 2021).

    `n` rollouts and `correct` ones, numbers or arrays of prompts. Raises ValueError where n < k.
    """
    n, correct = np.broadcast_arrays(np.asarray(n, float), np.asarray(correct, float))
    if (n < k).any():
        raise ValueError(f"pass@{k} needs at least {k} rollouts, but there are {int(n.min())}")
    tries = np.arange(k)
    return 1.0 - np.prod((n[..., None] - correct[..., None] - tries) / (n[..., None] - tries), axis=-1)
