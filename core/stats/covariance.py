"""How the covariance of log-prob and advantage foretells the entropy, and how well (arXiv 2505.22617).

At one state, let a softmax policy pi have its logits moved by a small dz. Its entropy H, in nats, then changes by

    dH = -Cov_{a ~ pi}(log pi(a), dz(a))        to first order in dz.

A natural policy gradient step of size eta moves the logits by eta A(a), so dH = -eta Cov(log pi, A); plain policy
gradient moves them by eta pi(a) (A(a) - E A), so dH = -eta Cov(log pi, pi (A - E A)). Likely tokens reinforced and rare
ones suppressed lower the entropy; rare ones reinforced and likely ones suppressed raise it.

Used here is the first form over all N tokens of a step together, as the authors' own token-wise covariance (that of
Clip-Cov and KL-Cov) is. A token that was not trained on has A = 0, like one of a group without a signal:

    Cov = sum over tokens of (l - mean l) A / N,    l = log pi at the step's start,

in nats x advantage. For mean l stands minus the mean entropy: the same in expectation over a policy's own samples, and
there for tokens that were not trained on as well. Where every state's advantages have mean 0, this is the mean over
states of the covariance within each. What it leaves out: advantages of whole answers have no such mean (then how sure
states with a high A are counts too), each state is seen through one sampled token, and tokens share their weights. eta
is not known either, so one number for the run is fitted to the changes that came.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

LEAST_STEPS = 10
"""Fewer steps give no scale: with 10 points a correlation of .63 may still be luck (p = .05)."""


@dataclass(frozen=True)
class Sums:
    """Sums over sets of tokens, arrays of one shape: how many tokens, and of their entropies (nats), advantages, and
    products log-prob x advantage. Tokens that were not trained on count with an advantage of 0.
    """

    n: np.ndarray
    entropy: np.ndarray
    advantage: np.ndarray
    product: np.ndarray

    def total(self, axis: int = -1) -> Sums:
        """The union of sets that do not overlap, along an axis that stays with length 1."""
        return Sums(*(np.asarray(part).sum(axis, keepdims=True) for part in vars(self).values()))


def contribution(part: Sums, whole: Sums) -> np.ndarray:
    """What sets of tokens add to the covariance over the whole, of the shape of `part`; NaN where the whole is empty.

    sum over the set of (l - mean l) A / N, with mean l and N of the whole; unit nats x advantage. Sets that make up the
    whole add up to its covariance, `contribution(whole, whole)` is that, and a set without an advantage adds nothing.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        return (part.product + whole.entropy / whole.n * part.advantage) / whole.n


@dataclass(frozen=True)
class Fit:
    """Predicted against real changes of entropy over steps. `scale` is eta, `r` Pearson's correlation; NaN without."""

    scale: float
    r: float
    n: int
    """Steps with both."""
    agreed: int
    """Steps whose entropy went the way of -Cov."""
    fell: int
    """Steps whose entropy fell."""

    @property
    def usable(self) -> bool:
        """Whether the scale may turn covariances into nats: it is there, and entropy moves against the covariance."""
        return self.scale > 0


def fit(covariance: np.ndarray, change: np.ndarray) -> Fit:
    """The scale of change = -scale x covariance, by least squares through 0; both (steps,), the change in nats.

    Steps without a finite value of both are left out. Below LEAST_STEPS, or without spread, there is no scale and no r.
    """
    covariance, change = np.asarray(covariance, float), np.asarray(change, float)
    both = np.isfinite(covariance) & np.isfinite(change)
    x, y = -covariance[both], change[both]
    scale = r = np.nan
    if len(x) >= LEAST_STEPS and np.ptp(x) > 0:
        scale = float(x @ y / (x @ x))
        r = float(np.corrcoef(x, y)[0, 1]) if np.ptp(y) > 0 else np.nan
    return Fit(scale, r, len(x), int(np.sum(x * y > 0)), int(np.sum(y < 0)))
