"""What the entropies of sampled tokens cost: their function is timed while a step's rollouts are drawn."""

from __future__ import annotations

import statistics
import time
from typing import Any
from unittest import mock

from core.engines import decode
from core.engines.base import SampleKey, Sampling
from tests.bench.speed.ours import Ours

REPEATS = 3


def entropy_seconds(ours: Ours) -> float:
    """Seconds of a step: the median over a few draws of the same prompts."""
    trainer, config = ours.trainer, ours.trainer.config
    prompts = [prompt.text for prompt in trainer.cursor.take(config.prompts_per_step)]
    sampling = Sampling(config.sampling.temperature, config.sampling.max_new_tokens)
    key = SampleKey(config.seed, "train", config.steps)
    seconds = []
    for _ in range(REPEATS):
        timed = _Timed(decode.entropy_of)
        with mock.patch.object(decode, "entropy_of", timed):
            trainer.sampler.engine.generate(prompts, config.group_size, sampling, key, ours.trainer.updater.count)
        seconds.append(timed.seconds)
    return statistics.median(seconds)


class _Timed:
    """A function, and the seconds spent in it."""

    def __init__(self, function: Any):
        self.function = function
        self.seconds = 0.0

    def __call__(self, *args: Any) -> Any:
        started = time.perf_counter()
        value = self.function(*args)
        self.seconds += time.perf_counter() - started
        return value
