"""What an exam of n rollouts a prompt says about a policy: pass@k, and which prompts lie within its reach."""

from __future__ import annotations

from statistics import NormalDist

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


def wilson(solved: np.ndarray, n: np.ndarray, level: float = 0.95) -> tuple[np.ndarray, np.ndarray]:
    """Wilson's interval (1927) of a share, `solved` of `n`: low and high; NaN where n is 0 or NaN."""
    solved, n = np.asarray(solved, float), np.asarray(n, float)
    z2 = NormalDist().inv_cdf(0.5 + level / 2) ** 2
    with np.errstate(invalid="ignore", divide="ignore"):
        p = solved / n
        middle = (p + z2 / (2 * n)) / (1 + z2 / n)
        half = np.sqrt(z2) / (1 + z2 / n) * np.sqrt(p * (1 - p) / n + z2 / (4 * n**2))
    return middle - half, middle + half
