import numpy as np
import pytest

from core.advantage import build, compute
from tests.core.advantage.batches import batch


def advantages(name, group, reward, **params):
    return compute(build(name, params=params), batch(group, reward)).advantage[:, 0]


def test_grpo_by_hand():
    found = advantages("grpo", [0] * 4, [1, 0, 0, 0], eps=0)
    np.testing.assert_allclose(found, [1.5, -0.5, -0.5, -0.5], atol=1e-12)


@pytest.mark.parametrize(("params", "first"), [({"eps": 1e-4}, 1.4997), ({"ddof": 0}, 1.7320), ({}, 1.5)])
def test_ddof_and_eps_change_the_number(params, first):
    assert advantages("grpo", [0] * 4, [1, 0, 0, 0], **params)[0] == pytest.approx(first, abs=5e-5)


def test_dr_grpo_is_reward_minus_mean():
    np.testing.assert_allclose(advantages("dr_grpo", [0] * 4, [1, 0, 0, 0]), [0.75, -0.25, -0.25, -0.25])


def test_pm1_has_no_baseline():
    assert advantages("pm1", [0, 0, 1, 1], [1, 1, 0, 1]).tolist() == [1, 1, -1, 1]


@pytest.mark.parametrize("name", ["grpo", "dapo", "dr_grpo"])
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 0.7, 1 / 3])
@pytest.mark.parametrize("n", [1, 3, 7])
def test_a_group_of_equal_rewards_gives_exactly_zero(name, reward, n):
    assert not advantages(name, [0] * n, [reward] * n).any()


def test_a_group_of_one_is_zero_even_with_eps_zero_and_ddof_zero():
    assert advantages("grpo", [0, 1, 1], [1, 0, 1], eps=0, ddof=0).tolist() == pytest.approx([0, -1, 1])


def test_groups_do_not_touch_each_other():
    alone = advantages("grpo", [0] * 3, [1, 0, 0])
    together = advantages("grpo", [7, 3, 7, 3, 7, 3], [1, 0, 0, 1, 0, 1])
    np.testing.assert_allclose(together[[0, 2, 4]], alone)


def test_explained_with_this_rollouts_numbers():
    trace = compute(build("grpo"), batch([0] * 4 + [1] * 2, [1, 1, 0, 0, 0, 0]))
    assert trace.explain_base(2, 0).startswith("(0 − 0.5) / 0.577")
    assert trace.explain_base(4, 1) == "all 2 rollouts of the group have reward 0: no signal"
    assert "mean of its 4 rollouts" in trace.explain_base(0, 0)
    alone = compute(build("dr_grpo"), batch([0], [1]))
    assert "only rollout" in alone.explain_base(0, 0)
