"""How sure is a label? What sampling luck alone does to favorable, unfavorable and uniform.

A label is a function of G rollouts. Redrawing from the observed G answers too kindly: the longest of a redraw never
exceeds the longest seen, and a group without a wrong answer never gets one. So a prompt's policy is modelled from its
visits next to this one (`policies`), and fresh groups are drawn from the model.

P(label) and the flips by luck (two independent groups get different labels) are those of the smoothed policy. The
interval of P(favorable) comes from policies drawn around it: Beta pass rates, Dirichlet weights of the lengths. Groups
of another size come from the same policies (`by_size`).

Calibration, from three visits of 8 (tests/core/stats print it; `known` does it for a run): over six probe prompts of
the embedded model, 200 real groups each, two groups differ with probability .41 (attenuate) and .05 (amplify); this
says .45 and .07, redrawing the observed group .30 and .09. For groups of 2 the truth of attenuate is .52 and the
estimate .53, for groups of 32 they are .08 and .13. On made-up prompts the mean estimate is low by some 10 %, and a
single prompt's is pulled towards the run's average.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from core.stats.classes import CLASSES, FAVORABLE, ClassRule
from core.stats.policies import Model, Policies, Visits, fit, transitions

GROUPS = 128  # fresh groups of the smoothed policy
GROUPS_EACH = 64  # and of each policy drawn for the interval
MODEL_ERROR = 0.15  # what the calibration found the mean of many estimates to miss, relative
SIZES = (2, 4, 8, 16, 32, 64)
AT_ONCE = 400_000  # fresh groups in memory


@dataclass(frozen=True)
class Sureness:
    """What the model says of the visits it was asked about, in their order.

    `probability` (V, 3) in the order of CLASSES; `flip` (V,) is P(two independent groups get different labels); `low`
    and `high` (V,) bound P(favorable) at 90 %, NaN where no interval was asked for.
    """

    probability: np.ndarray
    flip: np.ndarray
    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Flips:
    """Label changes between consecutive visits: how many there were, how many luck alone explains (mean and sd)."""

    transitions: int
    observed: int
    expected: float
    spread: float

    @property
    def margin(self) -> float:
        """Half of a 95 % interval of the number luck gives: its own spread, and MODEL_ERROR of the mean."""
        return float(np.hypot(1.96 * self.spread, MODEL_ERROR * self.expected))


@dataclass(frozen=True)
class BySize:
    """The same visits in groups of other sizes: `flip` and `favorable` (S, V), in the order of `size` (S,)."""

    size: np.ndarray
    flip: np.ndarray
    favorable: np.ndarray


def simulate(
    visits: Visits,
    rule: ClassRule,
    which: np.ndarray | None = None,
    groups: int = GROUPS,
    draws: int = 0,
    model: Model | None = None,
    seed: int = 0,
) -> Sureness:
    """The sureness of the labels of visits `which` (all by default), from `groups` >= 2 fresh groups each.

    With `draws` policies the interval is given too. `model`: `fit(visits)`, where it is at hand. Deterministic for a
    seed; a thousand visits of 8 take a tenth of a second without the interval, and 40 visits with one of 64 draws as
    long.
    """
    which = np.arange(len(visits.prompt)) if which is None else np.asarray(which, dtype=int)
    rng = np.random.default_rng(seed)
    model, size = model or fit(visits), visits.size
    probability, low, high = np.zeros((len(which), len(CLASSES))), *np.full((2, len(which)), np.nan)
    for rows, n in _alike(size[which]):
        mine = model.of(which[rows])
        (probability[rows],) = _shares(mine.policies, rule, [n], groups, rng)
        if draws:
            near = mine.around(draws, rng)
            (around,) = _shares(near, rule, [n], GROUPS_EACH, rng)
            favorable = around[:, FAVORABLE].reshape(len(rows), draws)
            low[rows], high[rows] = np.quantile(favorable, [0.05, 0.95], axis=1)
    return Sureness(probability, _differ(probability, groups), low, high)


def by_size(
    visits: Visits,
    rule: ClassRule,
    sizes: Sequence[int] = SIZES,
    groups: int = 32,
    seed: int = 0,
) -> BySize:
    """What groups of these sizes (ascending) would be called, were each visit's policy what the model says.

    A larger group is the smaller one and more rollouts, so that sizes differ by nothing but size.
    """
    shares = _shares(fit(visits).policies, rule, sizes, groups, np.random.default_rng(seed))
    return BySize(np.array(sizes), np.array([_differ(share, groups) for share in shares]), shares[:, :, FAVORABLE])


def flips(prompt: np.ndarray, label: np.ndarray, flip: np.ndarray) -> Flips:
    """Observed label changes against those expected if each prompt's policy stood still; all (V,), in step order.

    A transition's chance is the mean of its two visits' `flip`; transitions count as independent in `spread`.
    """
    before, after = transitions(prompt)
    chance = (flip[before] + flip[after]) / 2
    changed = int((label[before] != label[after]).sum())
    return Flips(len(before), changed, float(chance.sum()), float(np.sqrt((chance * (1 - chance)).sum())))


def _alike(size: np.ndarray) -> Iterator[tuple[np.ndarray, int]]:
    """Places of the visits with the same number of rollouts, and that number."""
    for n in np.unique(size):
        yield np.flatnonzero(size == n), int(n)


def _differ(share: np.ndarray, groups: int) -> np.ndarray:
    """(V,) P(two groups get different labels), unbiased, from the shares (V, 3) of labels among `groups` groups."""
    return np.clip(1 - (share * (share * groups - 1)).sum(axis=1) / (groups - 1), 0, 1)


def _shares(
    policies: Policies, rule: ClassRule, sizes: Sequence[int], groups: int, rng: np.random.Generator
) -> np.ndarray:
    """(S, P, 3) shares of labels among `groups` fresh groups of every policy, for groups of these ascending sizes."""
    many = len(policies.rate)
    shares = np.zeros((len(sizes), many, len(CLASSES)))
    step = max(1, AT_ONCE // groups)
    for start in range(0, many, step):
        part = slice(start, start + step)
        for place, labels in enumerate(_growing(policies.part(part), rule, sizes, groups, rng)):
            for index in range(len(CLASSES)):
                shares[place, part, index] = (labels == index).mean(axis=1)
    return shares


def _growing(
    policies: Policies, rule: ClassRule, sizes: Sequence[int], groups: int, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """Labels (P, groups) of groups that grow by one rollout at a time, whenever they have one of the sizes."""
    right, usable, longest, total = np.zeros((4, len(policies.rate), groups), np.int32)
    for n in range(1, max(sizes) + 1):
        correct, length, truncated = policies.draw(groups, rng)
        wrong = ~(correct | truncated)
        right += correct
        usable += wrong
        np.maximum(longest, length * correct, out=longest)
        total += length * wrong
        if n in sizes:
            yield rule.label_index(n, right, usable, longest, total)
