import numpy as np
import pytest

from core.advantage import build, compute
from tests.core.advantage.batches import batch

MIXED = batch([0, 0, 0, 0, 1, 1, 1, 1], [1, 0, 0, 0, 1, 1, 1, 0])


@pytest.mark.parametrize(("name", "wanted"), [("psr", True), ("nsr", False)])
def test_advantages_come_from_the_full_batch(name, wanted):
    trace, full = compute(build(name), MIXED), compute(build("grpo"), MIXED)
    own = MIXED.correct == wanted
    assert (trace.kept.all(axis=1) == own).all()
    np.testing.assert_array_equal(trace.advantage[own], full.advantage[own])
    assert not trace.advantage[~own].any()
    np.testing.assert_array_equal(trace.base, full.base)


def test_it_is_one_factor_named_selected():
    trace = compute(build("psr", base="dapo"), batch([0, 0, 1, 1], [1, 0, 1, 1]))
    assert [factor.id for factor in trace.factors] == ["selected"]
    assert trace.factors[0].per == "rollout"
    assert trace.factors[0].values.tolist() == [1, 0, 0, 0]  # group 1 has no signal and is dropped whole
    assert trace.factors[0].explain(1, 0) == "dropped: a wrong response, only correct ones are trained on"
    assert trace.factors[0].explain(2, 0) == "dropped: all rewards of its group are equal"
    assert "1 of 2" in trace.factors[0].reason and "3 of 4" in trace.factors[0].reason


def test_an_empty_selection_keeps_nothing():
    trace = compute(build("psr"), batch([0, 0], [0, 0]))
    assert not trace.kept.any() and not trace.advantage.any()


def test_pm1_versions_keep_groups_without_contrast():
    all_correct = batch([0, 0, 0], [1, 1, 1])
    assert compute(build("psr_pm1"), all_correct).advantage[:, 0].tolist() == [1, 1, 1]
    assert not compute(build("psr"), all_correct).advantage.any()
    assert compute(build("psr"), all_correct).kept.all()


def test_w_reinforce_is_lambda_psr_plus_nsr():
    parts = [compute(build(name), MIXED).advantage for name in ("psr_pm1", "nsr_pm1")]
    whole = compute(build("w_reinforce", params={"lambda": 0.3}), MIXED)
    np.testing.assert_allclose(whole.advantage, 0.3 * parts[0] + parts[1])
    assert whole.kept.all()


@pytest.mark.parametrize("name", ["dapo", "a3po"])
def test_dynamic_sampling_drops_groups_of_equal_rewards(name):
    trace = compute(build(name), batch([0, 0, 1, 1, 2], [1, 0, 0.2, 0.2, 1]))
    assert trace.kept.any(axis=1).tolist() == [True, True, False, False, False]
    kept = compute(build(name, dynamic_sampling=False), batch([0, 0, 1, 1, 2], [1, 0, 0.2, 0.2, 1]))
    assert kept.kept.all() and "selected" not in [factor.id for factor in kept.factors]


def test_polarity_by_sign():
    partial = batch([0, 0, 0], [1.0, 0.8, 1.0])  # all correct, one below the mean
    assert compute(build("psr"), partial).kept.all()
    by_sign = compute(build("psr"), partial, polarity_by="sign")
    assert by_sign.polarity.tolist() == [1, -1, 1]
    assert by_sign.kept.any(axis=1).tolist() == [True, False, True]
    flat = compute(build("grpo"), batch([0, 0], [0, 0]), polarity_by="sign")
    assert flat.polarity.tolist() == [-1, -1]  # advantage 0: by correctness
