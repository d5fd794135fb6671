from types import SimpleNamespace

import numpy as np
import pytest

from core.config import parse_run
from core.engines.base import Rollouts
from core.tasks.base import Prompt, Verdict
from core.train.clock import Clock
from core.train.prompts import Cursor
from core.train.reporter import TrainingError
from core.train.sampler import Sampler, without_signal

POOL = [Prompt(f"{i}", str(i)) for i in range(40)]


class Engine:
    """Responses name their prompt, rollout and key; prompts in `flat` get the same response from every rollout."""

    def __init__(self, flat):
        self.flat, self.keys = flat, []

    def generate(self, prompts, group_size, sampling, key, adapter=0):
        self.keys.append((key, len(prompts)))
        count = len(prompts) * group_size
        width = 2 + len(self.keys)  # every draw has another width
        text = [f"{p} {0 if p in self.flat else i % 2}" for p in prompts for i in range(group_size)]
        return Rollouts(
            prompt_ids=[[int(p)] for p in prompts],
            token_ids=np.full((count, width), 7, np.int32),
            length=np.full(count, width, np.int32),
            truncated=np.zeros(count, bool),
            logprob=np.full((count, width), -0.5, np.float32),
            entropy=np.full((count, width), 0.25, np.float32),
            text=text,
            token_text=[["x"] * width] * count,
        )


def verify(prompt, response):
    name, right = response.split()
    assert name == prompt.text
    return Verdict(float(right), float(right))


def collect(flat, refill=True, max_refills=4, pool=POOL):
    config = parse_run({"prompts_per_step": 6, "group_size": 4, "dynamic_sampling": {"max_refills": max_refills}})
    engine = Engine(flat)
    task = SimpleNamespace(name="toy", verify=verify)
    collected = Sampler(engine, task, config).collect(Cursor(pool, 0), 3, 0, refill, Clock())
    return collected, engine


def test_without_dynamic_sampling_every_group_is_taken_as_it_is():
    collected, engine = collect({p.text for p in POOL}, refill=False)
    assert (collected.refills, collected.shortfall, len(engine.keys)) == (0, 0, 1)


def test_every_draw_has_the_runs_overlong_penalty():
    settings = {"sampling": {"max_new_tokens": 6}, "overlong": {"buffer": 4, "factor": 2}, "prompts_per_step": 2}
    task = SimpleNamespace(name="toy", verify=verify)
    sampler = Sampler(Engine(set()), task, parse_run(settings))
    for split, length in (("train", 3), ("probe", 4)):  # the toy engine's responses grow by a token a draw
        record = sampler.draw(split, POOL[:2], 2, 0, 0, Clock()).record
        penalty = -2.0 * (length - 2) / 4
        assert record.reward.tolist() == [penalty, 1 + penalty] * 2
        assert [part["overlong"] for part in record.parts] == [penalty] * 4
        assert record.correct.tolist() == [False, True] * 2


def test_dropped_groups_are_replaced_by_fresh_prompts():
    flat = {p.text for p in POOL[::2]}
    collected, engine = collect(flat)
    record = collected.samples.record
    kept = [text for text in record.prompt if text not in flat]
    assert len(kept) == 6
    assert collected.shortfall == 0
    assert collected.refills == record.attempt.max() == len(engine.keys) - 1 > 0
    assert len(set(record.prompt)) == len(record.prompt)
    assert np.array_equal(record.group, np.repeat(np.arange(len(record.prompt)), 4))
    assert [key.first_group for key, _ in engine.keys] == np.cumsum([0] + [n for _, n in engine.keys])[:-1].tolist()
    for row, text in enumerate(record.text):
        assert text.split()[0] == record.prompt[record.group[row]]
    assert record.token_ids.shape == (len(record.text), max(record.length))


def test_refills_are_bounded_and_the_shortfall_is_told():
    collected, engine = collect({p.text for p in POOL}, max_refills=2)
    assert (collected.refills, collected.shortfall, len(engine.keys)) == (2, 6, 3)
    assert len(collected.samples.record.prompt) == 18


def test_refills_end_with_the_pool():
    collected, _ = collect({p.text for p in POOL}, max_refills=60)
    assert sorted(collected.samples.record.prompt) == sorted(p.text for p in POOL)
    assert collected.shortfall == 6


def test_without_signal_goes_by_equal_rewards():
    group, reward = np.array([0, 0, 2, 2, 5]), np.array([0.5, 0.5, 0.5, 0.5000001, 1], np.float64)
    assert without_signal(group, reward).tolist() == [True, False, True]


def test_a_reward_that_is_no_number_names_the_task():
    config = parse_run({"prompts_per_step": 2, "group_size": 2})
    task = SimpleNamespace(name="toy", verify=lambda prompt, response: Verdict(float("nan"), 0.0))
    with pytest.raises(TrainingError, match=r"'toy' gave the reward nan .* finite"):
        Sampler(Engine(set()), task, config).collect(Cursor(POOL, 0), 0, 0, False, Clock())
