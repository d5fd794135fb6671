import numpy as np
import pytest

from core.advantage import build, compute
from tests.core.advantage.batches import batch


def test_the_authors_rule_by_hand():
    one = batch([0, 0, 0, 0, 1, 1], [1, 0, 0, 0, 1, 1])
    trace = compute(build("a_grae"), one)
    whole, root = (0.25 + 1) / 2, 0.5
    focus = (1 - whole) * 0.5 / (1 - root + 1e-6) + whole * 0.5 / (root + 1e-6)
    base = compute(build("grpo"), one).advantage[:4, 0]
    np.testing.assert_allclose(trace.advantage[:4, 0], base * focus * np.where(base > 0, whole, 1), rtol=1e-9)
    assert not trace.advantage[4:].any()
    assert trace.factors[0].explain(0, 0).endswith("× 0.625 on positive advantages")


def test_positives_count_fully_from_a_on():
    one = batch([0, 0], [1, 0])
    damped, full = (compute(build("a_grae", params={"a": a}), one).advantage[0, 0] for a in (1, 0.5))
    assert damped == pytest.approx(full / 2)


@pytest.mark.parametrize(
    ("base", "reward"), [("grpo", [1, 0, -1, 0]), ("grpo", [2, 1, 1, 0.5]), ("pm1", [1] * 4), ("pm1", [0] * 4)]
)
def test_a_group_without_a_share_between_0_and_1_keeps_its_advantage(base, reward):
    """No group may drown the batch by a division by almost nothing."""
    one = batch([0] * 4 + [1] * 4, [*reward, 1, 0, 0, 0])
    trace = compute(build("a_grae", base=base), one)
    np.testing.assert_array_equal(trace.factors[-1].values[:4], 1)
    assert abs(trace.advantage).max() < 10
    assert "no difficulty to go by" in trace.factors[-1].explain(0, 0)


def test_groups_that_dynamic_sampling_drops_do_not_count():
    mixed = compute(build("a_grae"), batch([0] * 4, [1, 0, 0, 0])).advantage
    beside = compute(build("a_grae", base="dapo"), batch([0] * 4 + [1] * 4, [1, 0, 0, 0, 1, 1, 1, 1])).advantage
    np.testing.assert_allclose(beside[:4], mixed)
    nothing = compute(build("a_grae", base="dapo"), batch([0, 0], [1, 1]))
    assert np.isfinite(nothing.factors[-1].values).all() and not nothing.advantage.any()
