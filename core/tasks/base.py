"""What a task is: a fixed pool of prompts, held-out prompts, and a verifier that scores a response."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

POOL_SEED = 0
"""Every run of a task draws from the same pool, whatever its seed: the seed is that of the walk through it."""


class TaskError(ValueError):
    """A task that cannot be had as it is asked for; one sentence that names the setting."""


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
    parts: dict[str, float] = field(default_factory=dict)  # what each part adds to the reward: they sum to it
    traits: dict[str, float] = field(
        default_factory=dict
    )  # numbers about style: self_check, steps_right, ... (0/1 or counts)


@dataclass(frozen=True)
class Judgement:
    """What a verifier alone says of a response, before weights."""

    correctness: float
    traits: dict[str, float] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)  # further parts of the reward, as they are


class Verifier(Protocol):
    """Compares a response with a prompt's answer. Pure but for a limit on time, and never an exception for hostile
    text."""

    def problem(self, answer: str) -> str:
        """Why no response could be compared with this answer, in a few words; "" if one can."""
        ...

    def judge(self, prompt: Prompt, response: str) -> Judgement: ...


class Source(Protocol):
    """Where prompts come from. Pure and deterministic: the same arguments give the same prompts on every machine."""

    def train_pool(self, size: int, seed: int) -> Sequence[Prompt]: ...

    def held_out(self, count: int) -> Sequence[Prompt]:
        """Prompts that are never trained on; the first `count` of one fixed order."""
        ...


class Task(Source, Protocol):
    """Prompts with their verifier."""

    name: str

    def verify(self, prompt: Prompt, response: str) -> Verdict:
        """Score a response, its end-of-sequence token left out. Hostile text gets 0, never an exception."""
        ...
