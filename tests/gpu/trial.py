"""A policy on one device, and the pieces of a training step on rollouts that are given or sampled.

Rewards are drawn, not earned: a random model solves nothing, and what is compared here is arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from core.advantage import Batch, compute, loss_weights
from core.config import parse_run
from core.engines.base import Rollouts, SampleKey, Sampling
from core.engines.transformers import TransformersEngine
from core.tasks import get_task
from core.train.clock import Clock
from core.train.forward import Sequences
from core.train.policy import load_policy
from core.train.update import Plan, Updated, Updater

PHASES = ("sample", "verify", "forward", "advantage", "update", "after")


@dataclass(frozen=True)
class Size:
    """How much a step samples."""

    prompts: int
    group_size: int
    new_tokens: int


class Trial:
    """A run's model, engine and optimizer, without its folder."""

    def __init__(self, model: str, device: str, size: Size, precision: str, **settings: Any):
        self.size = size
        self.config = parse_run({
            "model": model, "device": device, "precision": precision, "lora": {"r": 16, "alpha": 32},
            "prompts_per_step": size.prompts, "group_size": size.group_size,
            "sampling": {"max_new_tokens": size.new_tokens}, "evaluate": {"every": 0}, **settings,
        })  # fmt: skip
        self.method = self.config.build_method()
        self.policy = load_policy(self.config)
        self.engine = TransformersEngine(self.policy.model, self.policy.tokenizer)
        self.updater = Updater(self.policy, self.config, self.method.loss)
        self.task = get_task("embedded")
        self.prompts = list(self.task.train_pool(self.config.task.pool_size, 0))[: size.prompts]

    def stir(self) -> None:
        """Give the adapter something to say: a fresh one's B is zero. The same numbers on every device."""
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for name, parameter in self.policy.parameters.items():
                if "lora_B" in name:
                    parameter.copy_(0.02 * torch.randn(parameter.shape, generator=generator))

    def adapter(self) -> torch.Tensor:
        """(parameters,) float64 on the CPU."""
        return self.policy.flat().double().cpu()

    def adopt(self, adapter: torch.Tensor) -> None:
        """Take over another trial's `adapter()`: in bfloat16 a fresh A is rounded."""
        parameters = list(self.policy.parameters.values())
        parts = adapter.split([parameter.numel() for parameter in parameters])
        with torch.no_grad():
            for parameter, part in zip(parameters, parts, strict=True):
                parameter.copy_(part.view_as(parameter))

    def sample(self, step: int) -> Rollouts:
        """One group a prompt from the policy as it is."""
        sampling = Sampling(self.config.sampling.temperature, self.size.new_tokens)
        texts = [prompt.text for prompt in self.prompts]
        key = SampleKey(self.config.seed, "train", step)
        return self.engine.generate(texts, self.size.group_size, sampling, key, self.updater.count)

    def sequences(self, rollouts: Rollouts) -> Sequences:
        prompts = [ids for ids in rollouts.prompt_ids for _ in range(self.size.group_size)]
        return Sequences(prompts, rollouts.token_ids, rollouts.length)

    def score(self, rollouts: Rollouts) -> tuple[np.ndarray, np.ndarray]:
        """(N, T) log-probs and entropies under this policy."""
        return self.policy.scorer.score(self.sequences(rollouts))

    def plan(self, rollouts: Rollouts, old: np.ndarray, step: int) -> Plan:
        """What an update gets: the advantages of drawn rewards, `old` the log-probs at the start of the step."""
        group = np.repeat(np.arange(self.size.prompts), self.size.group_size)
        right = np.random.default_rng(step).random(len(group)) < 0.5
        batch = Batch(
            group=group, reward=right.astype(np.float32), correct=right, length=rollouts.length,
            truncated=rollouts.truncated, max_length=self.size.new_tokens, step=step, total_steps=100,
            sampler_logprob=rollouts.logprob, trainer_logprob=old, entropy=rollouts.entropy,
        )  # fmt: skip
        trace = compute(self.method, batch)
        minibatch = np.zeros(len(group), dtype=np.int32)
        weight = loss_weights(
            trace.kept, rollouts.length, self.size.new_tokens, self.method.loss.aggregation, minibatch
        )
        return Plan(
            sequences=self.sequences(rollouts), old=old, advantage=trace.advantage, weight=weight, reference=None,
            minibatch=minibatch,
        )  # fmt: skip

    def update(self, plan: Plan, step: int) -> Updated:
        return self.updater.update(plan, step)

    def gradient(self) -> torch.Tensor:
        """(parameters,) of the last update, on the CPU."""
        return torch.cat([p.grad.flatten() for p in self.policy.parameters.values()]).double().cpu()

    def step(self, number: int, clock: Clock) -> int:
        """A whole training step as a run makes it, each phase timed; the tokens it sampled."""
        with clock("sample"):
            rollouts = self.sample(number)
        with clock("verify"):
            for row, text in enumerate(rollouts.text):
                self.task.verify(self.prompts[row // self.size.group_size], text)
        old = rollouts.logprob
        if self.config.precision != "float32":
            with clock("forward"):
                old, _ = self.score(rollouts)
        with clock("advantage"):
            plan = self.plan(rollouts, old, number)
        with clock("update"):
            self.update(plan, number)
        with clock("after"):
            self.score(rollouts)
        return int(rollouts.length.sum())
