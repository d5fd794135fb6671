"""pass@k against counting, for numbers and for arrays of prompts."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from core.stats.exam import pass_at_k


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
