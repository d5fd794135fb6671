"""A paired bootstrap of the difference between two methods, that says what was repeated: seeds, prompts, or both.

Seeds and prompts are crossed: every seed answers the same held-out prompts. So both are drawn anew, independently of
each other, and the mean is taken over the drawn seeds x the drawn prompts (the pigeonhole bootstrap of Owen 2007,
Annals of Applied Statistics 1(2), which errs on the wide side). Drawing prompts within each seed would pretend that
other seeds met other prompts, and be too narrow.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from core.stats.differences import LEVEL, Difference

LEAST_PROMPTS = 5
"""Fewer prompts than this are not drawn anew."""
DRAWS = 4000
PAIRED = {2: 0.50, 3: 0.75, 4: 0.81, 5: 0.84, 6: 0.86, 8: 0.89, 10: 0.90, 15: 0.92, 20: 0.93}
"""How often a 95 % interval over n seed pairs holds the truth, where the pairs' differences are normal."""
APART = {2: 0.67, 3: 0.80, 4: 0.86, 5: 0.88, 6: 0.89, 8: 0.91, 10: 0.92, 15: 0.93, 20: 0.93}
"""The same over n seeds on either side, drawn apart, where both spread alike."""
_AT_ONCE = 2_000_000


@dataclass(frozen=True)
class Bootstrap(Difference):
    """`unit` is "seeds", "prompts" or "seeds and prompts". `paired`: the same seeds on both sides, drawn together."""

    prompts: int = 0
    paired: bool = False


def paired_bootstrap(
    a: Mapping[int, np.ndarray],
    b: Mapping[int, np.ndarray],
    level: float = LEVEL,
    draws: int = DRAWS,
    seed: int = 0,
) -> Bootstrap:
    """Percentile interval of mean(a) - mean(b); each holds its seeds' values, (M,) on the same M prompts in one order.

    Seeds are drawn in pairs where both sides have the same ones, else each side by itself; with one seed on either side
    only prompts are drawn, and the luck of training is not in the interval. With M < 5 only seeds are drawn. NaN where
    neither can be. The draws are the same each time.
    """
    if not a or not b:
        return Bootstrap(math.nan, math.nan, math.nan, len(a), len(b), "nothing", level)
    rng = np.random.default_rng(seed)
    paired = sorted(a) == sorted(b)
    left, right = (np.array([side[one] for one in sorted(side)], np.float64).reshape(len(side), -1) for side in (a, b))
    least, prompts = min(len(left), len(right)), left.shape[1]
    value = float(left.mean() - right.mean())
    units = [name for name, drawn in (("seeds", least >= 2), ("prompts", prompts >= LEAST_PROMPTS)) if drawn]
    low = high = math.nan
    if units:
        means = np.concatenate(
            [
                _means(left, right, min(draws - start, size), paired, prompts >= LEAST_PROMPTS, rng)
                for size in [max(1, _AT_ONCE // prompts)]
                for start in range(0, draws, size)
            ]
        )
        low, high = (float(q) for q in np.quantile(means, [0.5 - level / 2, 0.5 + level / 2]))
    unit = " and ".join(units) or "nothing"
    return Bootstrap(value, low, high, len(left), len(right), unit, level, prompts, paired and least >= 2)


def coverage(seeds: int, paired: bool) -> float:
    """How often a 95 % bootstrap interval over so many seeds holds the truth (normal differences), about."""
    table = PAIRED if paired else APART
    return float(np.interp(seeds, list(table), list(table.values())))


def _means(
    left: np.ndarray, right: np.ndarray, draws: int, paired: bool, over_prompts: bool, rng: np.random.Generator
) -> np.ndarray:
    """(draws,) differences of means over drawn seeds and prompts."""
    few = min(len(left), len(right)) < 2
    if few:
        by_prompt = np.repeat((left.mean(axis=0) - right.mean(axis=0))[None], draws, axis=0)
    elif paired:
        by_prompt = _shares(len(left), draws, rng) @ (left - right)
    else:
        by_prompt = _shares(len(left), draws, rng) @ left - _shares(len(right), draws, rng) @ right
    if not over_prompts:
        return by_prompt.mean(axis=1)
    return np.einsum("dm,dm->d", by_prompt, _shares(by_prompt.shape[1], draws, rng))


def _shares(n: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """(draws, n): how much of each draw with replacement is item i."""
    return rng.multinomial(n, np.full(n, 1 / n), size=draws) / n
