"""Sampling and verifying: a step's groups with their refills, held-out evaluations, probes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.config import RunConfig
from core.engines.base import Engine, SampleKey, Sampling
from core.ranks import ALONE, Ranks
from core.tasks.base import Prompt, Task, Verdict
from core.train.clock import Clock
from core.train.prompts import Cursor
from core.train.reporter import TrainingError
from core.train.samples import Samples, assemble, join


@dataclass
class Collected:
    """A step's training rollouts."""

    samples: Samples
    refills: int  # rounds of fresh prompts for dropped groups
    shortfall: int  # groups still missing after them


class Sampler:
    """Draws from the current policy and has the task judge the responses."""

    def __init__(self, engine: Engine, task: Task, config: RunConfig, ranks: Ranks = ALONE):
        self.engine = engine
        self.ranks = ranks
        self.task = task
        self.config = config

    def collect(self, cursor: Cursor, step: int, version: int, refill: bool, clock: Clock) -> Collected:
        """The step's groups from the pool. With `refill` (dynamic sampling), groups of equal rewards are replaced by
        fresh prompts, for at most `dynamic_sampling.max_refills` rounds; the dropped ones stay among the samples."""
        prompts = cursor.take(self.config.prompts_per_step)
        parts = [self.draw("train", prompts, self.config.group_size, step, version, clock)]
        taken = [prompt.id for prompt in prompts]
        missing = _without_signal(parts[0]) if refill else 0
        refills = 0
        while missing and refills < self.config.dynamic_sampling.max_refills:
            prompts = cursor.take(missing, taken)
            if not prompts:
                break
            refills += 1
            fresh = self.draw(
                "train", prompts, self.config.group_size, step, version, clock, first_group=len(taken), attempt=refills
            )
            parts.append(fresh)
            taken += [prompt.id for prompt in prompts]
            missing -= len(prompts) - _without_signal(fresh)
        return Collected(join(parts), refills, missing)

    def draw(
        self,
        split: str,
        prompts: Sequence[Prompt],
        group_size: int,
        step: int,
        version: int,
        clock: Clock,
        first_group: int = 0,
        attempt: int = 0,
        temperature: float | None = None,
    ) -> Samples:
        """`group_size` judged responses a prompt, at the run's temperature unless another is given."""
        settings = self.config.sampling
        chosen = settings.temperature if temperature is None else temperature
        with clock("sample"):
            rollouts = self.engine.generate(
                [prompt.text for prompt in prompts],
                group_size,
                Sampling(chosen, settings.max_new_tokens, settings.stop),
                SampleKey(self.config.seed, split, step, first_group),
                version,
            )
        with clock("verify"):
            verdicts = self._judge_all(prompts, group_size, rollouts.text)
        return assemble(
            split,
            prompts,
            rollouts,
            verdicts,
            settings.max_new_tokens,
            self.config.correct_threshold,
            first_group,
            attempt,
            self.config.overlong,
            self.config.task.reward.length,
        )

    def _judge_all(self, prompts: Sequence[Prompt], group_size: int, texts: Sequence[str]) -> list[Verdict]:
        """Each rank judges its own groups' responses, and all get the same verdicts."""
        owners = np.repeat(self.ranks.owners(np.ones(len(prompts))), group_size)
        own = [
            self._judge(prompts[row // group_size], text)
            for row, text in enumerate(texts)
            if owners[row] == self.ranks.rank
        ]
        return [verdict for verdicts in self.ranks.gather(own) for verdict in verdicts]

    def _judge(self, prompt: Prompt, response: str) -> Verdict:
        verdict = self.task.verify(prompt, response)
        if not (np.isfinite(verdict.reward) and np.isfinite(verdict.correctness)):
            raise TrainingError(
                f"the task {self.task.name!r} gave the reward {verdict.reward} to a response to {prompt.text[:60]!r}: "
                "its verifier must return finite numbers"
            )
        return verdict


def without_signal(group: np.ndarray, reward: np.ndarray) -> np.ndarray:
    """(P,) bool in the order of the distinct groups: all rewards of the group are equal, none beats another."""
    _, index = np.unique(group, return_inverse=True)
    high, low = np.full(index.max() + 1, -np.inf), np.full(index.max() + 1, np.inf)
    np.maximum.at(high, index, reward)
    np.minimum.at(low, index, reward)
    return high == low


def _without_signal(samples: Samples) -> int:
    return int(without_signal(samples.record.group, samples.record.reward).sum())
