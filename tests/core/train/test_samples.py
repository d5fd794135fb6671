"""A split's rollouts as they come from an engine, with and without entropies, in one draw and in several."""

import numpy as np
import pytest

from core.config_settings import OverlongSettings
from core.engines.base import Rollouts
from core.tasks.base import Prompt, Verdict
from core.train.metrics import traits_and_parts
from core.train.samples import assemble, join


def draw(prompts: int, width: int, entropy: bool, first_group: int = 0):
    random = np.random.default_rng(first_group)
    count = 2 * prompts
    rollouts = Rollouts(
        prompt_ids=[[5, 6]] * prompts,
        token_ids=random.integers(2, 9, (count, width)).astype(np.int32),
        length=np.full(count, width, np.int32),
        truncated=np.zeros(count, bool),
        logprob=-random.random((count, width)).astype(np.float32),
        entropy=random.random((count, width)).astype(np.float32) if entropy else None,
        text=["x"] * count,
        token_text=[["x"] * width] * count,
    )
    asked = [Prompt(f"{first_group + i}=?", "1") for i in range(prompts)]
    return assemble("train", asked, rollouts, [Verdict(1.0, 1.0)] * count, 9, 0.5, first_group)


@pytest.mark.parametrize("entropy", [True, False])
def test_draws_are_joined_whether_the_engine_gives_entropies_or_not(entropy):
    parts = [draw(2, 3, entropy), draw(1, 5, entropy, first_group=2)]
    whole = join(parts)
    assert whole.record.group.tolist() == [0, 0, 1, 1, 2, 2]
    assert not whole.scored
    for name in ("token_ids", "sampler_logprob", "trainer_logprob", "entropy"):
        if name == "entropy" and not entropy:
            assert whole.record.entropy is None
            continue
        joined = getattr(whole.record, name)
        assert joined.shape == (6, 5)
        assert np.array_equal(joined[:4, :3], getattr(parts[0].record, name))
        assert not joined[:4, 3:].any()
        assert np.array_equal(joined[4:], getattr(parts[1].record, name))


def overlong(buffer, factor=1.0):
    """Three rollouts of 4, 8 and 10 of 10 tokens: a right one, a right one worth half, a wrong one."""
    length = np.array([4, 8, 10], np.int32)
    rollouts = Rollouts(
        prompt_ids=[[5]],
        token_ids=np.full((3, 10), 7, np.int32),
        length=length,
        truncated=length == 10,
        logprob=np.full((3, 10), -0.5, np.float32),
        entropy=np.full((3, 10), 0.5, np.float32),
        text=["x"] * 3,
        token_text=[["x"] * 10] * 3,
    )
    verdicts = [Verdict(1.0, 1.0, {"correct": 1.0}), Verdict(0.5, 0.5, {"correct": 0.5}), Verdict(0.0, 0.0, {})]
    settings = OverlongSettings(buffer=buffer, factor=factor)
    return assemble("train", [Prompt("?", "1")], rollouts, verdicts, 10, 0.5, overlong=settings).record


def test_the_overlong_penalty_joins_the_reward_and_leaves_correctness():
    record = overlong(buffer=4, factor=2.0)
    assert record.reward.tolist() == [1.0, -0.5, -2.0]
    assert record.reward.dtype == np.float32
    assert record.correctness.tolist() == [1.0, 0.5, 0.0]
    assert record.correct.tolist() == [True, True, False]
    assert record.parts == [{"correct": 1.0, "overlong": 0.0}, {"correct": 0.5, "overlong": -1.0}, {"overlong": -2.0}]


def test_without_a_buffer_the_reward_and_its_parts_are_the_verifiers():
    record = overlong(buffer=0, factor=2.0)
    assert record.reward.tolist() == [1.0, 0.5, 0.0]
    assert record.parts == [{"correct": 1.0}, {"correct": 0.5}, {}]


def test_length_costs_its_share_of_the_weight_and_leaves_correctness():
    rollouts = Rollouts(
        prompt_ids=[[5]], token_ids=np.full((3, 10), 7, np.int32), length=np.array([2, 5, 10]), text=["x"] * 3,
        truncated=np.zeros(3, bool), logprob=np.zeros((3, 10), np.float32), entropy=None, token_text=[["x"] * 10] * 3,
    )  # fmt: skip
    verdicts = [Verdict(1.5, 1.0, {"correct": 1.0, "format": 0.5})] * 3
    record = assemble("train", [Prompt("?", "1")], rollouts, verdicts, 10, 0.5, length_weight=0.5).record
    assert record.reward.tolist() == pytest.approx([1.4, 1.25, 1.0])
    assert [parts["length"] for parts in record.parts] == pytest.approx([-0.1, -0.25, -0.5])
    assert record.correctness.tolist() == [1, 1, 1]
    assert traits_and_parts(record)["traits"] == pytest.approx(
        {"part_correct": 1.0, "part_format": 0.5, "part_length": -17 / 60}
    )
