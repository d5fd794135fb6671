"""Held-out evaluation: pass@1 and pass@k at the run's temperature, greedy pass, and the probe prompts' rollouts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from core.config import RunConfig
from core.stats.exam import pass_at_k
from core.tasks.base import Prompt
from core.train.clock import Clock
from core.train.metrics import by_correctness, mean, traits_and_parts
from core.train.sampler import Sampler
from core.train.samples import Samples


@dataclass
class Evaluation:
    metrics: dict[str, Any]  # the columns of the store's `evals`
    rollouts: Samples  # split "eval", without tokens
    probes: Samples | None  # split "probe", with tokens


class Evaluator:
    """The task's held-out prompts are fixed; the probes are the first few of them."""

    def __init__(self, sampler: Sampler, config: RunConfig):
        self.sampler = sampler
        self.config = config
        self.prompts: list[Prompt] = list(sampler.task.held_out(config.evaluate.prompts))

    def due(self, step: int) -> bool:
        every = self.config.evaluate.every
        return bool(every) and (step % every == 0 or step == self.config.steps)

    def evaluate(self, step: int, version: int) -> Evaluation:
        """Of the policy with `step` steps behind it."""
        settings, clock = self.config.evaluate, Clock()
        rollouts = self.sampler.draw("eval", self.prompts, settings.rollouts, step, version, clock)
        greedy = None
        if settings.greedy:
            best = self.sampler.draw("eval", self.prompts, 1, step, version, clock, temperature=0)
            greedy = float(best.record.correct.mean())
        probes = None
        if settings.probes:
            chosen = self.prompts[: settings.probes]
            probes = self.sampler.draw("probe", chosen, self.config.group_size, step, version, clock)
        metrics = self._metrics(step, rollouts, greedy)
        rollouts.record.token_ids = rollouts.record.token_text = None
        rollouts.record.trainer_logprob = None
        return Evaluation(metrics, rollouts, probes)

    def _metrics(self, step: int, rollouts: Samples, greedy: float | None) -> dict[str, Any]:
        record, settings = rollouts.record, self.config.evaluate
        correct = record.correct.reshape(len(self.prompts), settings.rollouts).sum(axis=1)
        return {
            "step": step,
            "prompts": len(self.prompts),
            "rollouts": settings.rollouts,
            "pass_at_1": float(record.correct.mean()),
            "k": settings.k,
            "pass_at_k": float(pass_at_k(settings.rollouts, correct, settings.k).mean()),
            "greedy": greedy,
            "reward": mean(record.reward),
            "truncated_share": mean(record.truncated),
            "entropy": (
                None if record.entropy is None else float(record.entropy.sum(dtype=np.float64) / record.length.sum())
            ),
            **by_correctness("length", record.length, record.correct),
            **traits_and_parts(record),
        }
