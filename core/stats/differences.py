"""Is one method better than another, or is it luck? Intervals whose unit of repetition is named.

Seeds repeat a whole training run; prompts only repeat the exam. With one seed a method there is no interval over
training luck at all, so an interval over prompts (`core.stats.bootstrap`) may be shown beside it, never instead of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

LEVEL = 0.95
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


@dataclass(frozen=True)
class Difference:
    """mean(a) - mean(b) with an interval; `low` and `high` are NaN where the data cannot give one.

    `unit` says what was repeated ("seeds", say); n_a and n_b count the seeds.
    """

    value: float
    low: float
    high: float
    n_a: int
    n_b: int
    unit: str
    level: float = LEVEL

    @property
    def has_interval(self) -> bool:
        return math.isfinite(self.low) and math.isfinite(self.high)

    @property
    def verdict(self) -> str:
        """`higher` or `lower` if the interval leaves 0 out, else `not distinguishable`; `no interval` without one."""
        if not self.has_interval:
            return "no interval"
        if self.low > 0:
            return "higher"
        return "lower" if self.high < 0 else "not distinguishable"


def over_seeds(a: Sequence[float], b: Sequence[float], level: float = LEVEL) -> Difference:
    """Welch's t interval of mean(a) - mean(b), one value a seed (Welch 1947).

    Needs two seeds on each side and some spread; else the interval is NaN. Over two to five seeds it holds the truth as
    often as it says, where a bootstrap does not.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    value = float(a.mean() - b.mean()) if len(a) and len(b) else math.nan
    low = high = math.nan
    if len(a) >= 2 and len(b) >= 2:
        per_a, per_b = a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)
        error = per_a + per_b
        if error > 0:
            df = error**2 / (per_a**2 / (len(a) - 1) + per_b**2 / (len(b) - 1))
            half = t_quantile(0.5 + level / 2, df) * math.sqrt(error)
            low, high = value - half, value + half
    return Difference(value, low, high, len(a), len(b), "seeds", level)


def area(x: Sequence[float], y: Sequence[float]) -> float:
    """Area under a curve over its span of x, so the unit is y's: the mean height. NaN without a point."""
    x, y = _finite(x, y)
    if not len(x):
        return math.nan
    span = x[-1] - x[0]
    return float(np.trapezoid(y, x) / span) if span > 0 else float(y.mean())


def first_reach(x: Sequence[float], y: Sequence[float], threshold: float, rising: bool = True) -> float:
    """The first x whose y is at or past the threshold (at or below it if not `rising`); NaN if never."""
    x, y = _finite(x, y)
    hit = y >= threshold if rising else y <= threshold
    return float(x[np.argmax(hit)]) if hit.any() else math.nan


def final(y: Sequence[float], share: float = 0.1, least: int = 1) -> float:
    """Mean of the last `share` of the finite values, at least `least` of them; NaN without one."""
    y = np.asarray(y, dtype=np.float64)
    y = y[np.isfinite(y)]
    count = max(least, round(share * len(y)))
    return float(y[-count:].mean()) if len(y) else math.nan


def smooth(y: Sequence[float], window: int) -> np.ndarray:
    """Centred running mean over `window` values, NaN left out; the ends use what there is."""
    y = np.asarray(y, dtype=np.float64)
    if window <= 1 or not len(y):
        return y
    ones, valid = np.ones(window), np.isfinite(y)
    low, high = (window - 1) // 2, window - 1 - (window - 1) // 2
    total = np.convolve(np.pad(np.where(valid, y, 0.0), (low, high)), ones, "valid")
    count = np.convolve(np.pad(valid.astype(float), (low, high)), ones, "valid")
    return np.divide(total, count, out=np.full(len(y), np.nan), where=(count > 0) & valid)


def t_quantile(q: float, df: float) -> float:
    """Quantile of Student's t for q in (0.5, 1) and df >= 1: bisection on the integrated density, to about 1e-6.

    With u = atan(t / sqrt(df)) the density is proportional to cos(u)^(df - 1).
    """
    if df > 1e4:
        return NormalDist().inv_cdf(q)
    scale = math.exp(math.lgamma((df + 1) / 2) - math.lgamma(df / 2)) / math.sqrt(math.pi)
    low, high = 0.0, math.pi / 2
    for _ in range(50):
        middle = (low + high) / 2
        mass = scale * middle / 2 * float(_WEIGHTS @ np.cos(middle / 2 * (_NODES + 1)) ** (df - 1))
        low, high = (middle, high) if 0.5 + mass < q else (low, middle)
    return math.tan((low + high) / 2) * math.sqrt(df)


def _finite(x: Sequence[float], y: Sequence[float]) -> tuple[np.ndarray, np.ndarray]:
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    good = np.isfinite(x) & np.isfinite(y)
    return x[good], y[good]
