"""What-if questions: four methods on one batch, beside loops over its rollouts; then masses and all pairs too."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import torch

from core.advantage import Batch, Method, compute
from core.config import RunConfig
from core.counterfactual import Spec, answer, compare, summarise
from tests.bench.speed.result import Comparison, PeerError
from tests.bench.speed.whatif_peer import Tensors, four

SPECS = ("grpo", "a3po;base=grpo", "adora_code_llm", "a3po;base=grpo;also=adora_code_llm")
GROUP = 8


@dataclass(frozen=True)
class WhatIfBench:
    """`rounds` turns on batches of their own: `rollouts` responses of up to `tokens` tokens."""

    config: RunConfig
    rounds: int
    warm_up: int
    rollouts: int = 64
    tokens: int = 512

    def run(self) -> Comparison:
        """Raises PeerError where the two sides' advantages differ."""
        torch.set_num_threads(self.config.threads or torch.get_num_threads())
        methods = [Spec.parse(spec).build() for spec in SPECS]
        ours, theirs, page = [], [], []
        for turn in range(self.warm_up + self.rounds):
            batch = made_up(self.rollouts, self.tokens, seed=turn)
            tensors = as_tensors(batch)
            traces, seconds = timed(lambda batch=batch: [compute(method, batch) for method in methods])
            ours.append(seconds)
            found, seconds = timed(lambda tensors=tensors: four(tensors))
            theirs.append(seconds)
            same(found, [trace.advantage for trace in traces])
            page.append(timed(lambda batch=batch: everything(methods, batch))[1])
        fast, slow, whole = (statistics.median(times[self.warm_up :]) for times in (ours, theirs, page))
        return Comparison(
            what=f"the advantages of {len(methods)} methods on {self.rollouts} rollouts x {self.tokens} tokens",
            unit="s a batch",
            peer="loops",
            ours=fast,
            theirs=slow,
            ratio=slow / fast,
            rounds=self.rounds,
            threads=torch.get_num_threads(),
            more={"page_s": whole},
        )


def everything(methods: list[Method], batch: Batch) -> None:
    """What a slider move recomputes: advantages, weights, masses, prompts, quartiles, and every pair compared."""
    answers = [answer(method, batch) for method in methods]
    for one in answers:
        summarise(one, batch)
    for first, second in combinations(answers, 2):
        compare(first, second, batch)


def made_up(rollouts: int, tokens: int, seed: int) -> Batch:
    """Groups of 8, wrong and correct answers of all lengths; half of the tokens are as good as certain."""
    random = np.random.default_rng(seed)
    length = random.integers(tokens // 4, tokens + 1, rollouts)
    mask = np.arange(length.max()) < length[:, None]
    certain = random.random(mask.shape) < 0.5
    logprob = np.where(mask, -random.exponential(1.0, mask.shape) * np.where(certain, 1e-3, 1.0), 0.0)
    correct = random.random(rollouts) < 0.4
    return Batch(
        group=np.arange(rollouts) // GROUP,
        reward=correct.astype(float),
        correct=correct,
        length=length,
        truncated=length == tokens,
        max_length=tokens,
        sampler_logprob=logprob.astype(np.float32),
        trainer_logprob=logprob.astype(np.float32),
    )


def as_tensors(batch: Batch) -> Tensors:
    """The same batch as verl has it."""
    mask = torch.tensor(batch.mask)
    rewards = torch.zeros(mask.shape)
    rewards[torch.arange(len(mask)), torch.tensor(batch.length) - 1] = torch.tensor(batch.reward, dtype=torch.float32)
    return Tensors(
        rewards=rewards,
        mask=mask.float(),
        old_log_prob=torch.tensor(batch.sampler_logprob),
        index=[str(group) for group in batch.group],
        correct=torch.tensor(batch.correct),
        max_length=batch.max_length,
    )


def same(theirs: list[torch.Tensor], ours: list[np.ndarray]) -> None:
    """Raises PeerError where a response's advantages differ; which of equally likely tokens `topk` takes is its own."""
    for spec, peer, own in zip(SPECS, theirs, ours, strict=True):
        if not np.allclose(np.sort(peer.numpy(), axis=1), np.sort(own, axis=1), rtol=1e-4, atol=1e-4):
            raise PeerError(f"the loops' advantages under {spec} are not the lab's")


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What it gives, and the seconds it took."""
    started = time.perf_counter()
    found = work()
    return found, time.perf_counter() - started
