import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from core.counterfactual import compare
from core.counterfactual.pair import TOLERANCE
from tests.core.advantage.batches import batch, batches
from tests.core.counterfactual.answers import asked, reordered, specs


def pair(first, second, rollouts):
    return compare(asked(first, rollouts), asked(second, rollouts), rollouts)


def about(value):
    return None if value is None else pytest.approx(value, abs=1e-9)


def test_by_hand():
    """Correct +0.5, wrong -0.5, one token and three; the second method doubles the correct one."""
    rollouts = batch([0, 0], [1, 0], [1, 3])
    found = pair("dr_grpo", "polarity;base=dr_grpo;positive=2", rollouts)
    assert found.difference.tolist() == [[-0.5, 0, 0], [0, 0, 0]]
    assert found.changed_share == 0.25 and found.flipped_share == 0
    assert found.scale == pytest.approx(4 / 5)
    assert found.moved == pytest.approx(((2 / 5 - 1 / 4) + 3 * (1 / 4 - 1 / 5)) / 2)
    assert found.rank_correlation == 1
    assert found.by_factor.tolist() == [[True, False, False], [False] * 3]


def test_a_common_scale_changes_every_token_and_moves_nothing():
    rollouts = batch([0, 0, 1, 1], [1, 0, 1, 0])
    found = pair("polarity;positive=3;negative=3", "grpo", rollouts)
    assert (found.changed_share, found.flipped_share) == (1, 0)
    assert found.moved == pytest.approx(0, abs=1e-12) and found.scale == pytest.approx(3)


def test_mass_matching_is_no_factor_of_single_tokens():
    rollouts = batch([0, 0, 1, 1], [1, 0, 1, 0])
    found = pair("polarity;positive=3;mass_matched=1", "grpo", rollouts)
    assert found.scale == pytest.approx(1)
    assert found.changed.all() and found.by_factor.tolist() == [[True] * 4, [False] * 4] * 2


def test_signs_that_flip():
    """Partial credit: above its group's mean, yet wrong by the threshold."""
    rollouts = batch([0, 0, 0], [0.4, 0.2, 0.0], [2, 2, 2])
    found = pair("grpo", "nsr_pm1", rollouts)
    assert found.flipped.tolist() == [[True] * 2, [False] * 2, [False] * 2]
    assert found.flipped_share == pytest.approx(1 / 3)
    assert found.rank_correlation is None


def test_a_flipped_push_is_moved_mass():
    """Half of the mass pushes the other way, though it lies on the same tokens."""
    assert pair("dr_grpo", "pm1", batch([0, 0], [0.4, 0.2])).moved == pytest.approx(0.5)


def test_what_differs_in_the_fifth_digit_is_no_change_whatever_its_size():
    near, far = (f"polarity;base=dr_grpo;positive={value};negative={value}" for value in (1.00005, 1.0002))
    for reward in (100, 1e-3):
        rollouts = batch([0, 0], [reward, 0])
        assert pair("dr_grpo", near, rollouts).changed_share == 0
        assert pair("dr_grpo", far, rollouts).changed_share == 1
    assert pair("grpo;eps=1e-9", "grpo", batch([0, 0], [1, 0])).changed_share == 0


def test_nothing_in_common():
    rollouts = batch([0, 0], [1, 0])
    found = pair("psr", "nsr", rollouts)
    assert found.moved == pytest.approx(1) and found.flipped_share == 0 and found.changed_share == 1


def test_what_neither_keeps_does_not_count():
    rollouts = batch([0, 0, 1, 1], [1, 1, 1, 0])
    found = pair("dapo", "a3po;rho_negative=1;ratio=0.25", rollouts)
    assert found.changed_share == pytest.approx(1 / 8)
    nothing = pair("dapo", "a3po", batch([0, 0], [1, 1]))
    assert (nothing.rank_correlation, nothing.changed_share, nothing.moved, nothing.scale) == (None, 0, None, None)
    assert pair("pm1", "grpo", batch([0, 0], [1, 1])).scale is None


@given(batches(), specs, specs)
def test_the_numbers_are_those_of_the_tokens(rollouts, first, second):
    a, b = asked(first, rollouts), asked(second, rollouts)
    found = compare(a, b, rollouts)
    either = a.trace.kept | b.trace.kept
    assume(either.any())
    ours, theirs = a.trace.advantage[either], b.trace.advantage[either]
    far = np.abs(ours - theirs) > TOLERANCE * np.maximum(np.abs(ours), np.abs(theirs))
    assert found.changed_share == pytest.approx(far.mean())
    assert found.flipped_share == pytest.approx((np.sign(ours) * np.sign(theirs) == -1).mean())
    wanted = pd.Series(ours).rank().corr(pd.Series(theirs).rank())
    assert found.rank_correlation == (None if np.isnan(wanted) else pytest.approx(wanted, abs=1e-9))
    assert not found.changed[~either].any() and not found.by_factor[~rollouts.mask].any()


@given(batches(), specs)
def test_identical_methods_change_nothing(rollouts, spec):
    found = pair(spec, spec, rollouts)
    assert (found.changed_share, found.flipped_share) == (0, 0)
    assert not found.difference.any() and not found.by_factor.any()
    assert found.rank_correlation in (None, pytest.approx(1))
    assert (found.moved, found.scale) in ((0, 1), (None, None))


@given(batches(), specs, specs)
def test_a_pair_is_the_same_from_both_sides(rollouts, first, second):
    one, other = pair(first, second, rollouts), pair(second, first, rollouts)
    np.testing.assert_array_equal(one.difference, -other.difference)
    for name in ("changed", "flipped", "by_factor"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    for name in ("rank_correlation", "changed_share", "flipped_share", "moved"):
        assert getattr(one, name) == about(getattr(other, name))
    if one.scale and other.scale:
        assert one.scale * other.scale == pytest.approx(1)


@given(batches(), specs, specs, st.randoms())
def test_the_order_of_rollouts_does_not_matter(rollouts, first, second, random):
    order = np.array(random.sample(range(len(rollouts.group)), len(rollouts.group)))
    one, other = pair(first, second, rollouts), pair(first, second, reordered(rollouts, order))
    np.testing.assert_allclose(one.difference[order], other.difference, atol=1e-12)
    for name, value in one.numbers.items():
        assert other.numbers[name] == about(value), name
