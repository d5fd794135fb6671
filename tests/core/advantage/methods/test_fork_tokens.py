import numpy as np

from core.advantage import build, compute
from tests.core.advantage.batches import batch

ENTROPY = np.array([[9, 0.1, 0.2, 0.3, 5], [1, 2, 0, 0, 0], [0, 0, 0, 0, 0], [8, 0, 0, 0, 0]], dtype=float)


def test_the_most_uncertain_tokens_of_the_whole_step_stay():
    one = batch([0, 0, 1, 1], [1, 0, 1, 1], [5, 5, 5, 1], entropy=ENTROPY)
    trace = compute(build("fork_tokens", base="grpo"), one)
    assert trace.kept.sum() == 3  # a fifth of 16
    assert trace.kept[[0, 0, 3], [0, 4, 0]].all()
    assert not trace.advantage[~trace.kept].any()
    assert "H = 9 nats is among the 3 most uncertain of the step's 16 tokens" in trace.factors[0].explain(0, 0)


def test_tokens_that_other_selections_drop_are_not_ranked():
    one = batch([0, 0, 1, 1], [1, 0, 1, 1], [5, 5, 5, 1], entropy=ENTROPY)
    dapo = compute(build("fork_tokens"), one)  # the second group has no signal
    assert dapo.kept.sum() == 2 and not dapo.kept[2:].any()
    wrong = compute(build("fork_tokens", also=["nsr"]), one)
    assert np.argwhere(wrong.kept).tolist() == [[1, 1]]
    assert wrong.factors[0].explain(0, 0).startswith("dropped: a correct response")


def test_equal_entropies_go_by_group_rollout_and_position():
    flat = batch([1, 0, 1, 0], [1, 0, 0, 1], [5] * 4, entropy=np.ones((4, 5)))
    assert np.argwhere(compute(build("fork_tokens"), flat).kept).tolist() == [[1, 0], [1, 1], [1, 2], [1, 3]]
