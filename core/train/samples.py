"""The rollouts of a split while a step is made: what the store will get, and the prompts' tokens beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.advantage import Batch
from core.config_settings import OverlongSettings
from core.engines.base import Rollouts
from core.store.record import SplitRecord
from core.tasks.base import Prompt, Verdict
from core.tasks.overlong import soft_overlong
from core.train.forward import Sequences


@dataclass
class Samples:
    """N rollouts of P groups; `record` is filled in as the step goes on."""

    record: SplitRecord
    prompt_ids: list[list[int]]  # (P,) the prompts' tokens
    scored: bool = False  # the trainer has scored the tokens itself: its log-probs are not the sampler's numbers

    @property
    def sequences(self) -> Sequences:
        prompts = [self.prompt_ids[group] for group in self.record.group]
        return Sequences(prompts, self.record.token_ids, self.record.length)

    def batch(
        self, step: int, total_steps: int, seed: int = 0, minibatches: int = 1, proxy_min_p: float | None = None
    ) -> Batch:
        """What the advantage rules see: the arrays as they are stored, in float32.

        `seed` is the run's; `proxy_min_p` the one that `record.proxy_logprob` was made with.
        """
        record = self.record
        return Batch(
            group=record.group,
            reward=record.reward,
            correct=record.correct,
            length=record.length,
            truncated=record.truncated,
            max_length=record.max_length,
            step=step,
            total_steps=total_steps,
            sampler_logprob=record.sampler_logprob,
            trainer_logprob=record.trainer_logprob,
            ref_logprob=record.ref_logprob,
            entropy=record.entropy,
            proxy_logprob=record.proxy_logprob,
            proxy_min_p=None if record.proxy_logprob is None else proxy_min_p,
            rollout=record.rollout,
            minibatches=minibatches if record.split == "train" else 1,
            seed=seed,
        )


def assemble(
    split: str,
    prompts: Sequence[Prompt],
    rollouts: Rollouts,
    verdicts: Sequence[Verdict],
    max_length: int,
    threshold: float,
    first_group: int = 0,
    attempt: int = 0,
    overlong: OverlongSettings | None = None,
    length_weight: float = 0.0,
) -> Samples:
    """Rollouts and their verdicts as one split's record; groups count from `first_group`.

    The sampler's log-probs stand for the trainer's until the trainer scores the tokens itself. `entropy` is None where
    the engine gives none, and must then be scored. With an `overlong` buffer, the penalty joins the rewards and their
    parts, as does what length costs: `length_weight` for a response of `max_length`, in proportion for a shorter one.
    Correctness stays the verifier's.
    """
    groups, count = len(prompts), len(rollouts.length)
    correctness = np.array([verdict.correctness for verdict in verdicts], dtype=np.float32)
    reward = np.array([verdict.reward for verdict in verdicts])
    parts = [verdict.parts for verdict in verdicts]
    if length_weight:
        cost = -length_weight * np.asarray(rollouts.length, dtype=np.float64) / max_length
        reward = reward + cost
        parts = [{**part, "length": float(lost)} for part, lost in zip(parts, cost, strict=True)]
    if overlong and overlong.buffer:
        penalty = soft_overlong(rollouts.length, max_length, overlong.buffer, overlong.factor)
        reward = reward + penalty
        parts = [{**part, "overlong": float(lost)} for part, lost in zip(parts, penalty, strict=True)]
    record = SplitRecord(
        split=split,
        prompt_id=[prompt.id for prompt in prompts],
        prompt=[prompt.text for prompt in prompts],
        answer=[prompt.answer for prompt in prompts],
        attempt=np.full(groups, attempt, dtype=np.int32),
        group_kept=np.ones(groups, dtype=bool),
        group=first_group + np.repeat(np.arange(groups), count // groups),
        rollout=np.tile(np.arange(count // groups), groups),
        text=rollouts.text,
        reward=reward.astype(np.float32),
        correctness=correctness,
        correct=correctness >= threshold,
        parts=parts,
        traits=[verdict.traits for verdict in verdicts],
        length=rollouts.length,
        truncated=rollouts.truncated,
        max_length=max_length,
        token_ids=rollouts.token_ids,
        token_text=rollouts.token_text,
        sampler_logprob=rollouts.logprob,
        trainer_logprob=rollouts.logprob,
        entropy=rollouts.entropy,
    )
    return Samples(record, rollouts.prompt_ids)


def join(parts: Sequence[Samples]) -> Samples:
    """The rollouts of several draws as one; arrays are padded to the longest response."""
    if len(parts) == 1:
        return parts[0]
    records = [part.record for part in parts]
    first = records[0]
    lists = {
        name: [item for record in records for item in getattr(record, name)]
        for name in ("prompt_id", "prompt", "answer", "text", "parts", "traits", "token_text")
    }
    rows = {
        name: np.concatenate([getattr(record, name) for record in records])
        for name in (
            "attempt", "group_kept", "group", "rollout", "reward", "correctness", "correct", "length", "truncated",
        )
    }  # fmt: skip
    width = max(record.token_ids.shape[1] for record in records)
    tokens = {
        name: np.concatenate([_widen(getattr(record, name), width) for record in records])
        for name in ("token_ids", "sampler_logprob", "trainer_logprob", "entropy")
        if all(getattr(record, name) is not None for record in records)
    }
    record = SplitRecord(split=first.split, max_length=first.max_length, **lists, **rows, **tokens)
    return Samples(record, [ids for part in parts for ids in part.prompt_ids])


def _widen(array: np.ndarray, width: int) -> np.ndarray:
    return np.pad(array, ((0, 0), (0, width - array.shape[1])))
