import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.advantage import AdvantageError, build, compute, loss_weights
from tests.core.advantage.batches import batch, batches

LENGTH = np.array([2, 4, 1, 3])
KEPT = np.arange(4) < LENGTH[:, None]
ONE = np.zeros(4, dtype=int)


def test_token_mean_by_hand():
    found = loss_weights(KEPT, LENGTH, 8, "token_mean", ONE)
    np.testing.assert_allclose(found, np.where(KEPT, 1 / 10, 0))


def test_sequence_mean_by_hand():
    found = loss_weights(KEPT, LENGTH, 8, "sequence_mean", ONE)
    np.testing.assert_allclose(found[:, 0], [1 / 8, 1 / 16, 1 / 4, 1 / 12])


def test_fixed_length_by_hand():
    found = loss_weights(KEPT, LENGTH, 8, "fixed_length", ONE)
    np.testing.assert_allclose(found, np.where(KEPT, 1 / 32, 0))


@pytest.mark.parametrize(
    ("aggregation", "first"), [("token_mean", 1 / 6), ("sequence_mean", 1 / 4), ("fixed_length", 1 / 16)]
)
def test_denominators_are_the_minibatchs_own(aggregation, first):
    found = loss_weights(KEPT, LENGTH, 8, aggregation, np.array([3, 3, 1, 1]))
    assert found[0, 0] == pytest.approx(first)


def test_dropped_rollouts_leave_the_denominators_and_zero_advantages_stay():
    mixed = batch([0, 0, 1, 1], [1, 0, 1, 1])
    psr, grpo = compute(build("psr"), mixed), compute(build("grpo"), mixed)
    assert loss_weights(psr.kept, mixed.length, 20, "token_mean", ONE)[0, 0] == pytest.approx(1 / 12)
    assert loss_weights(grpo.kept, mixed.length, 20, "token_mean", ONE)[0, 0] == pytest.approx(1 / 16)
    dropped = compute(build("dapo"), mixed)
    assert loss_weights(dropped.kept, mixed.length, 20, "sequence_mean", ONE)[:, 0].tolist() == [1 / 8, 1 / 8, 0, 0]


def test_tokens_kept_within_a_response():
    kept = KEPT.copy()
    kept[1, :3] = False
    found = loss_weights(kept, LENGTH, 8, "sequence_mean", ONE)
    assert found[1].tolist() == [0, 0, 0, 0.25]


def test_an_empty_minibatch_weighs_nothing():
    kept = KEPT & (np.array([0, 0, 1, 1]) > 0)[:, None]
    found = loss_weights(kept, LENGTH, 8, "token_mean", np.array([0, 0, 1, 1]))
    assert not found[:2].any() and found[2:].sum() == pytest.approx(1)


@settings(max_examples=60, deadline=None)
@given(one=batches(), seed=st.integers(0, 99), name=st.sampled_from(["grpo", "psr", "dapo"]))
def test_sums(one, seed, name):
    minibatch = np.random.default_rng(seed).integers(0, 3, len(one.group))
    kept = compute(build(name), one).kept
    for aggregation in ("token_mean", "sequence_mean", "fixed_length"):
        weights = loss_weights(kept, one.length, one.max_length, aggregation, minibatch)
        assert (weights[kept] > 0).all() and not weights[~kept].any()
        for part in np.unique(minibatch):
            own = kept[minibatch == part]
            tokens, rollouts = own.sum(), own.any(axis=1).sum()
            expected = float(tokens > 0)
            if aggregation == "fixed_length" and tokens:
                expected = tokens / (rollouts * one.max_length)
            assert weights[minibatch == part].sum() == pytest.approx(expected)


def test_unknown_aggregation():
    with pytest.raises(AdvantageError, match="token_mean, sequence_mean or fixed_length"):
        loss_weights(KEPT, LENGTH, 8, "mean", ONE)
