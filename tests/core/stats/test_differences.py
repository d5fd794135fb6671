"""Intervals against numbers worked out elsewhere, and the cases where there is none to give."""

from __future__ import annotations

import math

import numpy as np
import pytest

from core.stats.differences import area, final, first_reach, over_seeds, smooth, t_quantile

NAN = math.nan


@pytest.mark.parametrize(
    ("df", "expected"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (10, 2.2281), (30, 2.0423), (1e6, 1.9600)]
)
def test_t_quantile_matches_the_printed_tables(df: float, expected: float) -> None:
    assert t_quantile(0.975, df) == pytest.approx(expected, abs=2e-4)


def test_welch_interval_of_a_worked_example() -> None:
    # variances 2.5 and 10, errors .5 and 2: se = sqrt(2.5), df = 2.5^2 / (.5^2/4 + 2^2/4) = 5.882
    found = over_seeds([1, 2, 3, 4, 5], [2, 4, 6, 8, 10])
    assert found.value == -3
    assert found.high - found.value == pytest.approx(2.4590 * math.sqrt(2.5), abs=2e-3)
    assert (found.n_a, found.n_b, found.unit) == (5, 5, "seeds")
    assert found.verdict == "not distinguishable"


def test_verdicts_follow_the_interval() -> None:
    assert over_seeds([0.80, 0.81, 0.82], [0.70, 0.71, 0.72]).verdict == "higher"
    assert over_seeds([0.70, 0.71, 0.72], [0.80, 0.81, 0.82]).verdict == "lower"


@pytest.mark.parametrize(("a", "b"), [([0.8], [0.7]), ([0.8, 0.9], [0.7]), ([0.8, 0.8], [0.7, 0.7]), ([], [0.7])])
def test_no_interval_without_two_seeds_and_some_spread(a: list[float], b: list[float]) -> None:
    found = over_seeds(a, b)
    assert not found.has_interval
    assert found.verdict == "no interval"
    assert math.isnan(found.value) == (not a)


def test_welch_covers_the_truth_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    hits = sum(
        found.low <= 0.1 <= found.high
        for found in (over_seeds(rng.normal(0.1, 1, 3), rng.normal(0, 2, 3)) for _ in range(400))
    )
    assert 0.92 <= hits / 400 <= 0.99


def test_area_is_the_mean_height() -> None:
    assert area([0, 10, 20], [0.0, 1.0, 1.0]) == pytest.approx(0.75)
    assert area([5], [0.3]) == 0.3
    assert area([0, 1, 2], [1.0, NAN, 1.0]) == 1.0
    assert math.isnan(area([], []))


def test_first_reach_from_either_side() -> None:
    assert first_reach([0, 1, 2], [0.1, 0.5, 0.4], 0.5) == 1
    assert first_reach([0, 1, 2], [0.9, 0.5, 0.4], 0.5, rising=False) == 1
    assert math.isnan(first_reach([0, 1], [0.1, 0.2], 0.5))


def test_final_takes_the_last_share_of_what_is_there() -> None:
    assert final([*range(100)]) == 94.5
    assert final([1, 2, 3, NAN], share=0) == 3
    assert final([1, 2, 3], least=5) == 2
    assert math.isnan(final([NAN]))


def test_smoothing_keeps_gaps_and_constants() -> None:
    assert smooth([1, 2, NAN, 4, 5], 3)[[0, 1, 3]].tolist() == [1.5, 1.5, 4.5]
    assert math.isnan(smooth([1, 2, NAN, 4, 5], 3)[2])
    assert smooth([2.0] * 9, 4).tolist() == [2.0] * 9
    assert smooth([3.0, 1.0], 1).tolist() == [3.0, 1.0]
