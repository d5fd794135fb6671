import numpy as np
import pytest

from core.advantage import build, compute
from tests.core.advantage.batches import batch


def test_whitened_over_tokens_not_over_rollouts():
    one = batch([0, 0], [1, 0], [3, 1])
    found = compute(build("reinforce_pp"), one)
    tokens = np.array([1, 1, 1, 0.0])
    expected = (tokens - 0.75) / np.sqrt(tokens.var(ddof=1) + 1e-8)
    np.testing.assert_allclose(found.advantage[one.mask], expected)
    assert found.base.shape == (2,)


def test_a_discount_makes_it_a_base_per_token():
    one = batch([0, 0], [1, 0], [3, 2])
    found = compute(build("reinforce_pp", params={"gamma": 0.5}), one)
    tokens = np.array([0.25, 0.5, 1, 0, 0])
    expected = (tokens - tokens.mean()) / np.sqrt(tokens.var(ddof=1) + 1e-8)
    np.testing.assert_allclose(found.advantage[one.mask], expected)
    assert found.base.shape == (2, 3)
    assert "× 0.5^2" in found.explain_base(0, 0)


def test_the_baseline_is_the_groups_mean():
    one = batch([0, 0, 1, 1, 1], [1, 0, 1, 1, 0], [1, 2, 3, 4, 5])
    reward = np.repeat([0.5, -0.5, 1 / 3, 1 / 3, -2 / 3], one.length)
    expected = (reward - reward.mean()) / np.sqrt(reward.var(ddof=1) + 1e-8)
    np.testing.assert_allclose(compute(build("reinforce_pp_baseline"), one).advantage[one.mask], expected)


def test_whitening_moves_the_zero_of_an_equal_group():
    one = batch([0, 0, 1, 1], [1, 1, 1, 0], [4, 4, 1, 4])
    found = compute(build("reinforce_pp_baseline"), one).advantage
    assert found[0, 0] == found[1, 0] != 0


@pytest.mark.parametrize("name", ["reinforce_pp", "reinforce_pp_baseline"])
def test_no_difference_in_the_batch_is_exactly_zero(name):
    found = compute(build(name), batch([0, 0, 1], [0.1] * 3, [1, 2, 3]))
    assert not found.advantage.any() and "no signal" in found.explain_base(0, 0)


def test_a_group_of_one_has_an_advantage_where_rules_do_not_compare():
    assert compute(build("reinforce_pp"), batch([0, 1], [1, 0])).advantage.all()


@pytest.mark.parametrize("name", ["reinforce_pp", "reinforce_pp_baseline"])
def test_groups_that_dynamic_sampling_drops_do_not_count(name):
    mixed = batch([0] * 4, [1, 0, 0, 0], [3, 2, 4, 2])
    beside = batch([0] * 4 + [1] * 4, [1, 0, 0, 0, 1, 1, 1, 1], [3, 2, 4, 2, 9, 9, 9, 9])
    found = compute(build(name, dynamic_sampling=True), beside).advantage
    np.testing.assert_allclose(found[:4, :4], compute(build(name), mixed).advantage)
    assert not found[4:].any()
    assert not compute(build(name, dynamic_sampling=True), batch([0, 0], [1, 1])).advantage.any()
