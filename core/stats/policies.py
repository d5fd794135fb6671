"""The policy behind each visit of a prompt, modelled from few rollouts, and fresh groups drawn from it.

- pass rate: Beta-smoothed over the visits next to this one, the prior fitted to all visits of the run;
- lengths of correct and of wrong answers: those seen at these visits, one rollout each, and all prompts' lengths of the
  same period and polarity, which together weigh `BASE_WEIGHT` rollouts, so that a length the prompt has not shown yet
  stays possible.

V visits, R rollouts; P policies, one a visit or several drawn around it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BASE_WEIGHT = 4.0  # rollouts' worth of belief in lengths seen on other prompts
NEIGHBOURS = 1  # visits to each side that are pooled
RIGHT, WRONG = 1, 0
OWN, OTHERS = 0, 1


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


def transitions(prompt: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Consecutive visits of one prompt: (from, to), each (K,) indices into `prompt` (V,), which is in step order."""
    order = np.argsort(prompt, kind="stable")
    same = prompt[order][1:] == prompt[order][:-1]
    return order[:-1][same], order[1:][same]


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


@dataclass(frozen=True)
class Policies:
    """P policies that rollouts can be drawn from.

    A rollout's length comes from a run of `length`, (pool,) int with `truncated` bool: for polarity s (WRONG or RIGHT)
    from the prompt's OWN rollouts with probability `trust[p, s]`, else from OTHERS. `first` and `count` (P, 2, 2) are
    these runs, by polarity and source. `edges` (P, 2, W): upper ends in [0, 1] of the own rollouts' shares, ascending;
    None where they are all alike.
    """

    rate: np.ndarray
    trust: np.ndarray
    first: np.ndarray
    count: np.ndarray
    length: np.ndarray
    truncated: np.ndarray
    edges: np.ndarray | None = None

    def part(self, which: np.ndarray | slice) -> Policies:
        """Some of the policies."""
        edges = None if self.edges is None else self.edges[which]
        return Policies(
            self.rate[which], self.trust[which], self.first[which], self.count[which], self.length, self.truncated,
            edges,
        )  # fmt: skip

    def draw(self, each: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """`each` fresh rollouts of every policy: correct, length (tokens) and truncated, (P, each)."""
        shape = (len(self.rate), each)
        policy = np.arange(len(self.rate))[:, None]
        correct = rng.random(shape, np.float32) < self.rate[:, None]
        side = 2 * policy + correct
        source = 2 * side + (rng.random(shape, np.float32) >= self.trust.ravel()[side])
        count = self.count.ravel()[source]
        where = rng.random(shape)
        place = np.minimum((where * count).astype(np.int64), count - 1)
        if self.edges is not None:
            own = source == 2 * side + OWN
            width = self.edges.shape[2]
            ends = (self.edges.reshape(-1, width) + np.arange(2 * len(self.rate))[:, None]).ravel()
            found = np.searchsorted(ends, where[own] + side[own]) - width * side[own]
            place[own] = np.minimum(found, count[own] - 1)
        chosen = self.first.ravel()[source] + place
        return correct, self.length[chosen], self.truncated[chosen] & ~correct

    def around(self, beliefs: tuple[np.ndarray, np.ndarray], draws: int, rng: np.random.Generator) -> Policies:
        """`draws` policies around each of these, next to each other, as sure as the rollouts allow.

        Beta pass rates from `beliefs`, (P,) right and wrong rollouts' worth of belief; Dirichlet weights of lengths.
        """
        own = np.repeat(self.count[:, :, OWN], draws, axis=0)
        width = max(int(own.max(initial=0)), 1)
        weight = rng.standard_exponential((*own.shape, width)) * (np.arange(width) < own[:, :, None])
        edges = np.cumsum(weight, axis=2)
        trust = np.where(own > 0, rng.beta(np.maximum(own, 1), BASE_WEIGHT), 0.0)
        return Policies(
            rate=rng.beta(*(np.repeat(side, draws) for side in beliefs)),
            trust=trust,
            first=np.repeat(self.first, draws, axis=0),
            count=np.repeat(self.count, draws, axis=0),
            length=self.length,
            truncated=self.truncated,
            edges=edges / np.maximum(edges[:, :, -1:], np.finfo(float).tiny),
        )


@dataclass(frozen=True)
class Model:
    """The smoothed policies of all visits of a run, and what is believed of their pass rates (rollouts' worth)."""

    policies: Policies
    right: np.ndarray
    wrong: np.ndarray

    def of(self, which: np.ndarray) -> Model:
        """Those of some visits, by their indices."""
        return Model(self.policies.part(which), self.right[which], self.wrong[which])

    def around(self, draws: int, rng: np.random.Generator) -> Policies:
        """`draws` policies around each of them."""
        return self.policies.around((self.right, self.wrong), draws, rng)


def fit(visits: Visits, reach: int = NEIGHBOURS) -> Model:
    """Every visit's policy, from the prompt's visits up to `reach` before and after it."""
    order = np.argsort(visits.prompt, kind="stable")
    rank = np.argsort(order, kind="stable")
    prompts = visits.prompt[order]
    low = np.maximum(rank - reach, np.searchsorted(prompts, visits.prompt, "left"))
    high = np.minimum(rank + reach, np.searchsorted(prompts, visits.prompt, "right") - 1)
    a, b = pass_rate_prior(visits.passed, visits.size)
    passed, missed = (_window(counts[order], low, high) for counts in (visits.passed, visits.size - visits.passed))
    begin = np.searchsorted(visits.step, visits.step[order[low]], "left")  # the period: whole steps
    end = np.searchsorted(visits.step, visits.step[order[high]], "right") - 1
    first, count = np.zeros((2, len(rank), 2, 2), np.int64)
    pool, start = [], 0
    place = rank[visits.visit]
    by_prompt = np.argsort(place, kind="stable")
    for side in (WRONG, RIGHT):
        own = by_prompt[visits.correct[by_prompt] == side]
        others = np.flatnonzero(visits.correct == side)
        ranges = [
            (own, place[own], low, high),
            (others, visits.visit[others], begin, end),
        ]
        for source, (rows, key, left, right) in enumerate(ranges):
            first[:, side, source] = np.searchsorted(key, left, "left")
            count[:, side, source] = np.searchsorted(key, right, "right") - first[:, side, source]
            if source == OTHERS:
                none = count[:, side, source] == 0  # nobody answered so in this period: any time, else any answer
                rows = rows if len(rows) else np.arange(len(visits.correct))
                first[none, side, source], count[none, side, source] = 0, len(rows)
            first[:, side, source] += start
            pool.append(rows)
            start += len(rows)
    own_count = count[:, :, OWN]
    rows = np.concatenate(pool).astype(np.int64)
    return Model(
        Policies(
            rate=(a + passed) / (a + b + passed + missed),
            trust=own_count / (own_count + BASE_WEIGHT),
            first=first,
            count=count,
            length=visits.length[rows],
            truncated=visits.truncated[rows],
        ),
        a + passed,
        b + missed,
    )


def _window(values: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Sums of values[low..high], ends included."""
    total = np.concatenate([[0], np.cumsum(values)])
    return total[high + 1] - total[low]
