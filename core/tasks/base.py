"""What a task is: a fixed pool of prompts, held-out prompts, and a verifier that scores a response."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

POOL_SEED = 0
"""Every run of a task draws from the same pool, whatever its seed: the seed is that of the walk through it."""


@dataclass(frozen=True)
class Prompt:
    """A prompt with its answer. `id` is a hash of the text, so that a prompt is recognised whenever it comes back."""

    text: str
    answer: str

    @property
    def id(self) -> str:
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True)
class Verdict:
    """A verifier's judgement of one response."""

    reward: float
    correctness: float  # the correctness part alone, before weights and penalties; correct means >= the run's threshold
    parts: dict[str, float] = field(default_factory=dict)  # reward parts by name, summing (weighted) to the reward
    traits: dict[str, float] = field(
        default_factory=dict
    )  # numbers about style: self_check, steps_right, ... (0/1 or counts)


class Task(Protocol):
    """Pure and deterministic: the same arguments give the same prompts on every machine."""

    name: str

    def train_pool(self, size: int, seed: int) -> Sequence[Prompt]: ...

    def held_out(self, count: int) -> Sequence[Prompt]:
        """Prompts that are never trained on; the first `count` of one fixed order."""
        ...

    def verify(self, prompt: Prompt, response: str) -> Verdict:
        """Score a response, its end-of-sequence token left out. Hostile text gets 0, never an exception."""
        ...
