"""The one protocol between the training loop and whatever samples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np


class EngineError(RuntimeError):
    """Sampling cannot go on; the message is one sentence that says why."""


@dataclass(frozen=True)
class Sampling:
    """How responses are drawn. `temperature` 0 means greedy (log-probs are then those at temperature 1).

    A response ends with the token that completes one of the `stop` strings, which is part of its tokens and text.
    """

    temperature: float = 1.0
    max_new_tokens: int = 72
    stop: tuple[str, ...] = ()


@dataclass(frozen=True)
class SampleKey:
    """What the sampling uniforms depend on, beside the row's (group, rollout, position)."""

    seed: int
    split: str  # "train", "probe" or "eval"
    step: int
    first_group: int = 0  # index of prompts[0]'s group within the step, so that refills never repeat a draw


@dataclass(frozen=True)
class Rollouts:
    """N = prompts x group_size responses, those of one prompt next to each other; T = the longest of them.

    Log-probs and entropies are in nats at the sampling temperature, of the sampled ids themselves (text is never
    re-tokenised). Padding: id = the pad id, everything else 0.
    """

    prompt_ids: list[list[int]]  # one list a prompt: its tokens as the model saw them
    token_ids: np.ndarray  # (N, T) int32, end-of-sequence included
    length: np.ndarray  # (N,) int32
    truncated: np.ndarray  # (N,) bool: no end-of-sequence and no stop string within max_new_tokens
    logprob: np.ndarray  # (N, T) float32
    entropy: np.ndarray | None  # (N, T) float32; None where the engine has none: the trainer must score the tokens
    text: list[str]  # (N,) decoded without special tokens
    token_text: list[list[str]]  # (N,) lists of length `length`: each token's own text, specials shown by name


class Engine(Protocol):
    """Samples from the current policy. `adapter` is the policy version, for engines that load adapters by version."""

    def generate(
        self, prompts: Sequence[str], group_size: int, sampling: Sampling, key: SampleKey, adapter: int = 0
    ) -> Rollouts: ...

    def close(self) -> None:
        """Give back what the engine holds besides the policy: processes, memory, files. It cannot be used again."""
        ...
