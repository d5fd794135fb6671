"""pass@k against counting, for numbers and for arrays of prompts."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from core.stats.exam import pass_at_k, wilson


@pytest.mark.parametrize(("n", "correct", "k"), [(5, 0, 1), (5, 2, 2), (6, 1, 4), (6, 5, 3), (4, 4, 4)])
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_one(n, correct, k):
    results = [i < correct for i in range(n)]
    assert pass_at_k(n, correct, k) == pytest.approx(np.mean([any(s) for s in combinations(results, k)]))


def test_pass_at_k_needs_k_rollouts():
    with pytest.raises(ValueError, match="needs at least 4"):
        pass_at_k(3, 1, 4)


def test_an_exam_at_once_is_its_prompts_one_by_one():
    n, correct = np.array([8, 8, 4]), np.array([0, 3, 4])
    assert pass_at_k(n, correct, 4) == pytest.approx([pass_at_k(8, 0, 4), pass_at_k(8, 3, 4), 1.0])
    with pytest.raises(ValueError, match="there are 4"):
        pass_at_k(n, correct, 5)


def test_wilsons_interval_is_that_of_the_score_test():
    """Its ends are the shares p whose test of `solved` of `n` is just at the level: |s - n p| = z sqrt(n p (1 - p))."""
    solved, n = np.array([0.0, 5, 32, 64]), np.array([8.0, 8, 64, 64])
    low, high = wilson(solved, n)
    for end in (low, high):
        distance = np.abs(solved - n * end)
        inside = (end > 1e-9) & (end < 1 - 1e-9)
        assert distance[inside] == pytest.approx(1.959964 * np.sqrt(n * end * (1 - end))[inside], rel=1e-5)
    assert low[0] == pytest.approx(0, abs=1e-12) and high[3] == pytest.approx(1) and 0.94 < low[3] < 0.95
    assert np.isnan(wilson(np.array([np.nan]), np.array([np.nan]))).all()
