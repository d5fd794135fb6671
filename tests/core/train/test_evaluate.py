from itertools import combinations

import numpy as np
import pytest

from core.train.evaluate import pass_at_k


@pytest.mark.parametrize(("n", "correct", "k"), [(5, 0, 1), (5, 2, 2), (6, 1, 4), (6, 5, 3), (4, 4, 4)])
def test_pass_at_k_is_the_share_of_subsets_with_a_correct_one(n, correct, k):
    results = [i < correct for i in range(n)]
    assert pass_at_k(n, correct, k) == pytest.approx(np.mean([any(s) for s in combinations(results, k)]))


def test_pass_at_k_needs_k_rollouts():
    with pytest.raises(ValueError, match="needs at least 4"):
        pass_at_k(3, 1, 4)
