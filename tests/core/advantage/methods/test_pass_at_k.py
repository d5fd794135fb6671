from itertools import combinations

import numpy as np
import pytest

from core.advantage import AdvantageError, build, compute
from tests.core.advantage.batches import batch


@pytest.mark.parametrize(("correct", "n", "k"), [(1, 4, 2), (2, 6, 3), (3, 5, 1), (1, 8, 4), (4, 8, 4)])
def test_it_is_the_mean_over_all_subsets_of_k(correct, n, k):
    """A rollout's advantage: the whitened reward of the subsets that it is in, averaged over them."""
    reward = [1] * correct + [0] * (n - correct)
    subsets = list(combinations(range(n), k))
    value = np.array([max(reward[i] for i in subset) for subset in subsets], dtype=float)
    whitened = (value - value.mean()) / (value.std() + 1e-6)
    expected = [whitened[[i in subset for subset in subsets]].mean() for i in range(n)]
    found = compute(build("pass_at_k", params={"k": k}), batch([0] * n, reward)).advantage[:, 0]
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_groups_in_which_every_subset_succeeds_or_none_are_flat():
    found = compute(build("pass_at_k"), batch([0] * 4 + [1] * 5, [0] * 4 + [1, 1, 0, 0, 0]))
    assert not found.advantage.any() and "no signal" in found.explain_base(4, 0)


def test_partial_credit_counts_as_right_or_wrong():
    found = compute(build("pass_at_k", params={"k": 1}), batch([0] * 2, [0.6, 0.4]))
    np.testing.assert_allclose(found.advantage[:, 0], [1, -1], atol=1e-5)


def test_a_group_smaller_than_k_is_refused():
    with pytest.raises(AdvantageError, match=r"pass_at_k\.k is 4, but group 7 has 3 rollouts: give at least k a group"):
        compute(build("pass_at_k"), batch([2] * 4 + [7] * 3, [1, 0, 0, 0, 1, 0, 0]))
