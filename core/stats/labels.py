"""How sure is a label? What sampling luck alone does to favorable, unfavorable and uniform.

A label is a function of G rollouts. Redrawing from the observed G answers too kindly: the longest of a redraw never
exceeds the longest seen, and a group without a wrong answer never gets one. So a prompt's policy is modelled from its
visits next to this one, and fresh groups are drawn from the model:

- pass rate: Beta-smoothed, the prior fitted to all visits of the run;
- lengths of correct and of wrong answers: those seen at these visits, one rollout each, and all prompts' lengths of the
  same period and polarity, which together weigh `BASE_WEIGHT` rollouts, so that a length the prompt has not shown yet
  stays possible.

P(label) and the flips by luck (two independent groups get different labels) are those of this smoothed policy. The
interval of P(favorable) comes from policies drawn around it: Beta pass rates, Dirichlet weights of the lengths.

Calibration at G = 8 and three visits (tests/core/stats print it; `check` does it for a run): over six probe prompts of
the embedded model, 200 real groups each, two groups differ with probability .52 (attenuate) and .18 (amplify); the
estimate says .51 and .17, redrawing the observed group .27 and .13. On made-up prompts the mean estimate is low by up
to 14 %, and a single prompt's is pulled towards the run's average.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core.stats.classes import CLASSES, ClassRule

BASE_WEIGHT = 4.0  # rollouts' worth of belief in lengths seen on other prompts
BASE_SIZE = 64  # lengths that stand for them
NEIGHBOURS = 1  # visits to each side that are pooled
GROUPS = 128  # fresh groups of the smoothed policy
GROUPS_EACH = 64  # and of each policy drawn for the interval
MODEL_ERROR = 0.15  # what the calibration found the mean of many estimates to miss, relative


@dataclass(frozen=True)
class Visits:
    """V visits of prompts in the order of steps, and their R rollouts.

    `prompt` and `step` are (V,); `visit` (R,) is ascending and points at the rollout's visit; `correct` bool, `length`
    in tokens and `truncated` bool are (R,).
    """

    prompt: np.ndarray
    step: np.ndarray
    visit: np.ndarray
    correct: np.ndarray
    length: np.ndarray
    truncated: np.ndarray

    @property
    def size(self) -> np.ndarray:
        """(V,) rollouts of each visit."""
        return np.bincount(self.visit, minlength=len(self.prompt))

    @property
    def passed(self) -> np.ndarray:
        """(V,) correct rollouts of each visit."""
        return np.bincount(self.visit, weights=self.correct, minlength=len(self.prompt))

    def span(self, visit: int) -> tuple[int, int]:
        """The visit's rollouts: [first, last + 1)."""
        return tuple(np.searchsorted(self.visit, [visit, visit + 1]))

    def neighbours(self, reach: int = NEIGHBOURS) -> list[np.ndarray]:
        """Of each visit: the same prompt's visits up to `reach` before and after it, itself included."""
        near: list[np.ndarray] = [np.empty(0, int)] * len(self.prompt)
        for prompt in np.unique(self.prompt):
            mine = np.flatnonzero(self.prompt == prompt)
            for place, visit in enumerate(mine):
                near[visit] = mine[max(0, place - reach) : place + reach + 1]
        return near

    def transitions(self) -> tuple[np.ndarray, np.ndarray]:
        """Consecutive visits of one prompt: (from, to), each (K,) indices of visits."""
        return transitions(self.prompt)


def transitions(prompt: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Consecutive visits of one prompt: (from, to), each (K,) indices into `prompt` (V,), which is in step order."""
    order = np.argsort(prompt, kind="stable")
    same = prompt[order][1:] == prompt[order][:-1]
    return order[:-1][same], order[1:][same]


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


def pass_rate_prior(passed: np.ndarray, size: np.ndarray) -> tuple[float, float]:
    """A Beta(a, b) fitted to the visits' pass rates by moments of the beta-binomial; a + b within [0.5, 20]."""
    if not len(size) or not size.sum():
        return 0.5, 0.5
    mean = float(np.clip(passed.sum() / size.sum(), 0.02, 0.98))
    rate, n = passed / np.maximum(size, 1), float(np.mean(size))
    between = float(np.mean((rate - mean) ** 2)) / (mean * (1 - mean))  # = (1 + (n - 1) rho) / n
    rho = (n * between - 1) / (n - 1) if n > 1 else 0.5
    strength = float(np.clip(1 / rho - 1, 0.5, 20)) if rho > 0 else 20.0
    return mean * strength, (1 - mean) * strength


def simulate(
    visits: Visits,
    rule: ClassRule,
    which: np.ndarray | None = None,
    groups: int = GROUPS,
    draws: int = 0,
    reach: int = NEIGHBOURS,
    seed: int = 0,
) -> Sureness:
    """The sureness of the labels of visits `which` (all by default), from `groups` >= 2 fresh groups each.

    With `draws` policies the interval is given too. Deterministic for a seed; about half a millisecond a visit without
    the interval, ten with 64 draws.
    """
    which = np.arange(len(visits.prompt)) if which is None else np.asarray(which, dtype=int)
    rng = np.random.default_rng(seed)
    size, passed, near = visits.size, visits.passed, visits.neighbours(reach)
    prior = pass_rate_prior(passed, size)
    probability, low, high = np.zeros((len(which), len(CLASSES))), *np.full((2, len(which)), np.nan)
    for row, visit in enumerate(which):
        window = near[visit]
        right, wrong = prior[0] + passed[window].sum(), prior[1] + (size - passed)[window].sum()
        sides = (_lengths(visits, window, True, rng), _lengths(visits, window, False, rng))
        rate, weights = np.array([right / (right + wrong)]), [_smoothed(own) for _, own in sides]
        labels = _fresh(visits, rule, sides, rate, weights, (1, groups, int(size[visit])), rng)
        probability[row] = np.bincount(labels[0], minlength=len(CLASSES)) / groups
        if draws:
            rate, weights = rng.beta(right, wrong, draws), [_around(own, draws, rng) for _, own in sides]
            labels = _fresh(visits, rule, sides, rate, weights, (draws, GROUPS_EACH, int(size[visit])), rng)
            low[row], high[row] = np.quantile((labels == 0).mean(axis=1), [0.05, 0.95])
    flip = 1 - (probability * (probability * groups - 1)).sum(axis=1) / (groups - 1)
    return Sureness(probability, np.clip(flip, 0, 1), low, high)


def flips(visits: Visits, label: np.ndarray, flip: np.ndarray) -> Flips:
    """Observed label changes against those expected if each prompt's policy stood still; `label`, `flip` are (V,).

    A transition's chance is the mean of its two visits' `flip`; transitions count as independent in `spread`.
    """
    before, after = visits.transitions()
    chance = (flip[before] + flip[after]) / 2
    changed = int((label[before] != label[after]).sum())
    return Flips(len(before), changed, float(chance.sum()), float(np.sqrt((chance * (1 - chance)).sum())))


def flip_by_resampling(
    correct: np.ndarray, length: np.ndarray, truncated: np.ndarray, rule: ClassRule, draws: int = 400, seed: int = 0
) -> float:
    """The biased estimate, for comparison: redraw the observed group (G,) with replacement and compare the redraws."""
    rng = np.random.default_rng(seed)
    index = rng.integers(0, len(correct), (draws, len(correct)))
    labels = rule.labels(correct[index], length[index], truncated[index])
    share = np.bincount(labels, minlength=len(CLASSES)) / draws
    return float(1 - (share * (share * draws - 1)).sum() / (draws - 1))


Lengths = tuple[np.ndarray, int]
"""Rollouts that stand for the lengths of one polarity, the prompt's own first; and how many are its own."""


def _lengths(visits: Visits, window: np.ndarray, right: bool, rng: np.random.Generator) -> Lengths:
    """The own rollouts of these visits, and BASE_SIZE of all prompts' from the period that they span."""
    spans = [visits.span(visit) for visit in window]
    mine = np.concatenate([np.arange(*span) for span in spans])
    mine = mine[visits.correct[mine] == right]
    low, high = spans[0][0], spans[-1][1]
    others = low + np.flatnonzero(visits.correct[low:high] == right)
    if not len(others):
        others = np.flatnonzero(visits.correct == right)
    if not len(others):
        others = np.arange(len(visits.correct))
    return np.concatenate([mine, rng.choice(others, BASE_SIZE)]), len(mine)


def _smoothed(own: int) -> np.ndarray:
    """(1, own + BASE_SIZE) weights of the lengths under the best guess."""
    weights = np.concatenate([np.ones(own), np.full(BASE_SIZE, BASE_WEIGHT / BASE_SIZE)])
    return weights[None, :] / weights.sum()


def _around(own: int, draws: int, rng: np.random.Generator) -> np.ndarray:
    """(draws, own + BASE_SIZE) weights of policies around the best guess."""
    trust = rng.beta(own, BASE_WEIGHT, (draws, 1)) if own else np.zeros((draws, 1))
    among = rng.dirichlet(np.ones(own), draws) if own else np.zeros((draws, 0))
    return np.hstack([among * trust, np.repeat((1 - trust) / BASE_SIZE, BASE_SIZE, axis=1)])


def _fresh(
    visits: Visits,
    rule: ClassRule,
    sides: tuple[Lengths, Lengths],
    rate: np.ndarray,
    weights: list[np.ndarray],
    shape: tuple[int, int, int],
    rng: np.random.Generator,
) -> np.ndarray:
    """Labels (policies, groups) of fresh groups; `shape` is (policies, groups, G), `rate` the policies' pass rates."""
    correct = rng.random(shape) < rate[:, None, None]
    chosen = np.where(correct, *(_pick(rows, w, shape, rng) for (rows, _), w in zip(sides, weights, strict=True)))
    flat = (-1, shape[2])
    truncated = visits.truncated[chosen] & ~correct
    labels = rule.labels(correct.reshape(flat), visits.length[chosen].reshape(flat), truncated.reshape(flat))
    return labels.reshape(shape[:2])


def _pick(rows: np.ndarray, weights: np.ndarray, shape: tuple[int, int, int], rng: np.random.Generator) -> np.ndarray:
    """Rollouts drawn by each policy's weights (policies, len(rows)): an array of `shape`, policies first."""
    edge = np.cumsum(weights, axis=1)
    edge /= edge[:, -1:]
    policy = np.arange(shape[0])[:, None]
    place = np.searchsorted((edge + policy).ravel(), (rng.random((shape[0], shape[1] * shape[2])) + policy).ravel())
    column = place.reshape(shape) - (policy * edge.shape[1])[:, :, None]
    return rows[np.clip(column, 0, edge.shape[1] - 1)]


def check(
    visits: Visits, rule: ClassRule, group_size: int, histories: int = 30, truth: int = 1500, seed: int = 0
) -> list[dict[str, float]]:
    """The estimate on prompts whose policy is known: pass rates .1 to .9, lengths drawn from those in `visits`.

    Each of `histories` prompts a pass rate is visited three times; the middle visit is judged. Rows of pass_rate,
    truth, estimate (of this module) and resampled (the biased one): P(two groups get different labels).
    """
    rng = np.random.default_rng(seed)
    rates = np.round(np.linspace(0.1, 0.9, 9), 1)
    right, wrong = (np.flatnonzero(visits.correct == side) for side in (True, False))
    if not len(right) or not len(wrong):
        return []

    def groups(rate: float, many: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        correct = rng.random((many, group_size)) < rate
        drawn = np.where(correct, rng.choice(right, correct.shape), rng.choice(wrong, correct.shape))
        return correct, visits.length[drawn], visits.truncated[drawn] & ~correct

    drawn = [groups(rate, 3 * histories) for rate in rates]
    count = 3 * histories * len(rates)
    known = Visits(
        prompt=np.repeat(np.arange(count // 3), 3),
        step=np.tile(np.arange(3), count // 3),
        visit=np.repeat(np.arange(count), group_size),
        correct=np.concatenate([d[0].ravel() for d in drawn]),
        length=np.concatenate([d[1].ravel() for d in drawn]),
        truncated=np.concatenate([d[2].ravel() for d in drawn]),
    )
    middle = np.arange(1, count, 3)
    estimate = simulate(known, rule, middle, seed=seed).flip.reshape(len(rates), histories).mean(axis=1)
    rows = []
    for place, rate in enumerate(rates):
        share = np.bincount(rule.labels(*groups(rate, truth)), minlength=len(CLASSES)) / truth
        naive = [
            flip_by_resampling(*(part[i] for part in drawn[place]), rule, draws=100, seed=seed + i)
            for i in range(1, 3 * histories, 3)
        ]
        rows.append(
            {
                "pass_rate": float(rate),
                "truth": float(1 - (share**2).sum()),
                "estimate": float(estimate[place]),
                "resampled": float(np.mean(naive)),
            }
        )
    return rows
