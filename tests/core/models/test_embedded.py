"""The model that ships, as it stands before any training: what it can do, and what it has left to learn."""

import numpy as np
import pytest
import torch

from core.engines.base import SampleKey, Sampling
from core.engines.transformers import TransformersEngine
from core.models import corpus
from core.models.load import load_model
from core.tasks import get_task

GROUP = 8
TASK = get_task("embedded")
PROMPTS = TASK.held_out(128)


def verdicts(temperature, group_size):
    engine = TransformersEngine(*load_model("embedded"))
    texts = [prompt.text for prompt in PROMPTS]
    rollouts = engine.generate(texts, group_size, Sampling(temperature, 72), SampleKey(0, "eval", 0))
    asked = [prompt for prompt in PROMPTS for _ in range(group_size)]
    return rollouts, [TASK.verify(prompt, text) for prompt, text in zip(asked, rollouts.text, strict=True)]


@pytest.fixture(scope="module")
def sampled():
    torch.manual_seed(0)
    return verdicts(1.0, GROUP)


def share(found, trait):
    return sum(verdict.traits[trait] for verdict in found) / len(found)


def test_it_starts_with_room_to_learn(sampled):
    correct = np.array([verdict.reward for verdict in sampled[1]]).reshape(-1, GROUP)
    assert 0.25 <= correct.mean() <= 0.45
    assert 0.70 <= correct.any(axis=1).mean() <= 0.92  # one group of 8 a prompt; the band .7 to .9, and its noise
    mixed = correct.any(axis=1) & ~correct.all(axis=1)
    assert 0.65 <= mixed.mean() <= 0.92


def test_its_most_likely_answer_is_often_wrong():
    _, found = verdicts(0.0, 1)
    assert 0.30 <= sum(verdict.reward for verdict in found) / len(found) <= 0.65


def test_it_answers_in_every_manner(sampled):
    rollouts, found = sampled
    assert share(found, "answered") > 0.98 and not rollouts.truncated.mean() > 0.02
    assert share(found, "direct") == pytest.approx(corpus.MANNERS["direct"], abs=0.08)
    assert share(found, "self_check") == pytest.approx(corpus.MANNERS["check"], abs=0.08)
    assert share(found, "wait") > 0.005
    assert 0.02 < share(found, "lucky") < 0.2


def test_its_lengths_differ_within_a_group(sampled):
    length = sampled[0].length.reshape(-1, GROUP)
    assert np.median(length.max(axis=1) / length.min(axis=1)) > 3
