"""The paired bootstrap: what it repeats, what pairing takes out, and how often it holds the truth."""

from __future__ import annotations

import math

import numpy as np
import pytest

from core.stats.bootstrap import APART, PAIRED, coverage, paired_bootstrap

EASE = np.linspace(0.05, 0.95, 40)
"""(M,) pass rates of prompts from hard to easy."""


def seeds(*values: float) -> dict[int, np.ndarray]:
    return {seed: np.array([value]) for seed, value in enumerate(values)}


def width(found) -> float:
    return found.high - found.low


def test_pairing_by_seed_takes_out_what_the_seeds_share() -> None:
    luck = [0.1, -0.2, 0.3, 0.05, -0.1]
    a, b = seeds(*(0.6 + x for x in luck)), seeds(*(0.5 + x for x in luck))
    paired = paired_bootstrap(a, b)
    assert (paired.low, paired.high) == (pytest.approx(0.1), pytest.approx(0.1))
    assert (paired.unit, paired.n_a, paired.n_b, paired.paired) == ("seeds", 5, 5, True)
    apart = paired_bootstrap(a, {seed + 10: value for seed, value in b.items()})
    assert width(apart) > 0.2 and not apart.paired and apart.value == pytest.approx(0.1)


def test_pairs_go_by_seed_and_not_by_place() -> None:
    a = {0: np.array([0.1]), 1: np.array([0.9])}
    b = {1: np.array([0.9]), 0: np.array([0.1])}
    assert width(paired_bootstrap(a, b)) == 0


def test_prompts_are_paired_so_that_their_difficulty_cancels() -> None:
    found = paired_bootstrap({0: EASE + 0.05}, {0: EASE})
    assert found.value == pytest.approx(0.05) and width(found) == pytest.approx(0, abs=1e-12)
    mixed = np.random.default_rng(1).permutation(EASE)
    assert width(paired_bootstrap({0: mixed}, {0: EASE})) > 0.1


def test_one_seed_draws_prompts_alone_and_says_so() -> None:
    found = paired_bootstrap({0: EASE**2}, {0: EASE, 1: EASE, 2: EASE})
    assert (found.unit, found.n_a, found.n_b, found.prompts, found.paired) == ("prompts", 1, 3, 40, False)
    assert found.verdict == "lower"


@pytest.mark.parametrize("values", [{}, {0: np.array([0.5])}, {0: np.array([0.1, 0.2, 0.3, 0.4])}])
def test_neither_two_seeds_nor_five_prompts_is_no_interval(values) -> None:
    found = paired_bootstrap(values, {0: np.zeros(len(values.get(0, [0.0])))})
    assert not found.has_interval and found.unit == "nothing"
    assert math.isnan(found.value) == (not values)


def test_seeds_and_prompts_together_are_wider_than_either() -> None:
    rng = np.random.default_rng(3)
    gap = rng.normal(0, 0.2, 40)
    a = {seed: EASE + gap + luck for seed, luck in enumerate([-0.1, 0.0, 0.05, 0.1])}
    b = dict.fromkeys(a, EASE)
    both = paired_bootstrap(a, b)
    assert both.unit == "seeds and prompts" and both.prompts == 40
    over_seeds = paired_bootstrap(
        {s: v.mean(keepdims=True) for s, v in a.items()}, {s: np.array([EASE.mean()]) for s in b}
    )
    over_prompts = paired_bootstrap({0: np.mean([*a.values()], axis=0)}, {0: EASE})
    assert width(both) > max(width(over_seeds), width(over_prompts))
    assert both.value == pytest.approx(over_seeds.value) == pytest.approx(over_prompts.value)


def test_the_draws_are_the_same_each_time_and_in_any_portion(monkeypatch) -> None:
    a, b = {0: EASE**2, 1: EASE}, {0: EASE, 1: EASE**3}
    assert paired_bootstrap(a, b) == paired_bootstrap(a, b)
    whole = paired_bootstrap(a, b)
    monkeypatch.setattr("core.stats.bootstrap._AT_ONCE", 40 * 100)
    portions = paired_bootstrap(a, b)
    assert portions.low == pytest.approx(whole.low, abs=0.02) and portions.high == pytest.approx(whole.high, abs=0.02)


@pytest.mark.parametrize(
    ("n", "paired"), [(2, True), (3, True), (5, True), (10, True), (2, False), (3, False), (6, False)]
)
def test_over_few_seeds_it_holds_the_truth_as_seldom_as_it_is_said_to(n: int, paired: bool) -> None:
    rng = np.random.default_rng(n)
    hits = 0
    for _ in range(600):
        a, b = seeds(*rng.normal(0.3, 1, n)), seeds(*(rng.normal(0, 1, n) * (not paired)))
        found = paired_bootstrap(a, b if paired else {seed + n: value for seed, value in b.items()}, draws=400)
        hits += found.low <= 0.3 <= found.high
    assert hits / 600 == pytest.approx((PAIRED if paired else APART)[n], abs=0.05)


def test_what_lies_between_is_read_off() -> None:
    assert coverage(3, True) == 0.75 < coverage(3, False) and 0.86 < coverage(7, True) < 0.89
    assert coverage(100, True) == coverage(20, True) < 0.95


def test_crossed_with_prompts_it_covers_seeds_prompts_and_rollouts() -> None:
    """Ten seed pairs, forty prompts of which every method likes others, eight rollouts each: the truth is 0."""
    rng = np.random.default_rng(11)
    hits = 0
    for _ in range(200):
        liked = rng.normal(0, 0.1, 40)
        sides = []
        for sign in (1, -1):
            luck = rng.normal(0, 0.05, (10, 1))
            p = np.clip(0.5 + sign * liked / 2 + luck, 0, 1)
            sides.append(dict(enumerate(rng.binomial(8, p) / 8)))
        found = paired_bootstrap(*sides, draws=400)
        hits += found.low <= 0 <= found.high
    assert 0.88 <= hits / 200 <= 1
