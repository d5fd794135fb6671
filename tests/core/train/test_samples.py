"""A split's rollouts as they come from an engine, with and without entropies, in one draw and in several."""

import numpy as np
import pytest

from core.engines.base import Rollouts
from core.tasks.base import Prompt, Verdict
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
