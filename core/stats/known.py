"""Prompts whose policy is known, to see whether the estimates of `labels` are right; beside them the biased way."""

from __future__ import annotations

import numpy as np

from core.stats.classes import CLASSES, ClassRule
from core.stats.labels import simulate
from core.stats.policies import Visits


def flip_by_resampling(
    correct: np.ndarray, length: np.ndarray, truncated: np.ndarray, rule: ClassRule, draws: int = 400, seed: int = 0
) -> float:
    """The biased estimate, for comparison: redraw the observed group (G,) with replacement and compare the redraws."""
    rng = np.random.default_rng(seed)
    index = rng.integers(0, len(correct), (draws, len(correct)))
    labels = rule.labels(correct[index], length[index], truncated[index])
    share = np.bincount(labels, minlength=len(CLASSES)) / draws
    return float(1 - (share * (share * draws - 1)).sum() / (draws - 1))


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
