"""Several ranks sample what one would have sampled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from core.engines.base import Engine, Rollouts, SampleKey, Sampling
from core.engines.shared import SharedEngine, join
from core.engines.transformers import TransformersEngine
from core.ranks import Ranks
from tests.core import tiny
from tests.ranks import Threads

PROMPTS = ["1+2=", "34-5=", "6+7+8=", "9=", "a+b="]
KEY = SampleKey(seed=3, split="train", step=2, first_group=4)


@pytest.fixture(scope="module")
def engine() -> TransformersEngine:
    return TransformersEngine(tiny.llama(), tiny.tokenizer())


def sample(engine: Engine) -> Rollouts:
    return engine.generate(PROMPTS, 3, Sampling(1.0, 12), KEY)


@pytest.mark.parametrize("world", [2, 3, 7])
def test_the_samples_are_those_of_one_process(world: int, engine: TransformersEngine) -> None:
    one = sample(engine)
    assert len(set(one.length.tolist())) > 1
    for other in Threads(world).run(lambda ranks: sample(SharedEngine(engine, ranks))):
        assert other.prompt_ids == one.prompt_ids
        assert other.text == one.text
        assert other.token_text == one.token_text
        mask = np.arange(one.token_ids.shape[1]) < one.length[:, None]
        assert other.token_ids.shape == one.token_ids.shape
        for name in ("length", "truncated"):
            np.testing.assert_array_equal(getattr(other, name), getattr(one, name))
        np.testing.assert_array_equal(other.token_ids[mask], one.token_ids[mask])
        np.testing.assert_allclose(other.logprob, one.logprob, atol=1e-5)
        np.testing.assert_allclose(other.entropy, one.entropy, atol=1e-5)


def test_an_engine_without_entropies_stays_without(engine: TransformersEngine) -> None:
    one = replace(sample(engine), entropy=None)
    joined = join([one, one])
    assert joined.entropy is None
    assert len(joined.text) == len(joined.length) == 30


def test_closing_closes_the_engine_inside() -> None:
    class Closable:
        closed = False

        def close(self) -> None:
            self.closed = True

    inside = Closable()
    SharedEngine(inside, Ranks()).close()
    assert inside.closed
