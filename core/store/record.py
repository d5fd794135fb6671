"""What the training loop hands to the store for one step: plain arrays, one record a split."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core.advantage.types import Trace


@dataclass
class SplitRecord:
    """The rollouts of one split (train, probe or eval) at one step.

    N rollouts, T positions, P groups in the order of `group`'s indices 0..P-1. Optional arrays are None where they were
    not recorded. Arrays are (N, T) unless said otherwise; padding is ignored.
    """

    split: str
    # one entry a group (P)
    prompt_id: list[str]
    prompt: list[str]
    answer: list[str]
    attempt: np.ndarray  # (P,) int: 0, or the refill round of dynamic sampling that drew the group
    group_kept: np.ndarray  # (P,) bool: False for groups that dynamic sampling dropped
    # one entry a rollout (N)
    group: np.ndarray  # (N,) int
    rollout: np.ndarray  # (N,) int: index within its group
    text: list[str]
    reward: np.ndarray  # (N,)
    correctness: np.ndarray  # (N,) the verifier's correctness part
    correct: np.ndarray  # (N,) bool
    parts: list[dict[str, float]]
    traits: list[dict[str, float]]
    length: np.ndarray  # (N,) int
    truncated: np.ndarray  # (N,) bool
    max_length: int
    # one entry a token; None as a whole where tokens are not recorded (eval)
    token_ids: np.ndarray | None = None
    token_text: list[list[str]] | None = None
    sampler_logprob: np.ndarray | None = None
    trainer_logprob: np.ndarray | None = None
    ref_logprob: np.ndarray | None = None
    entropy: np.ndarray | None = None
    proxy_logprob: np.ndarray | None = None  # under the min-p filtered policy of the start of the step
    after_logprob: np.ndarray | None = None
    entropy_after: np.ndarray | None = None
    ratio: np.ndarray | None = None
    clipped: np.ndarray | None = None
    loss_weight: np.ndarray | None = None
    tis: np.ndarray | None = None  # None where the sampler's log-probs are the trainer's own, or nothing is corrected
    minibatch: np.ndarray | None = None  # (N,) int: the optimizer's minibatch; None where there is one, or no update
    trace: Trace | None = None  # None for eval


@dataclass
class StepRecord:
    """Everything of one step. `metrics` and `eval` have the columns of `schema.METRICS` and `schema.EVALS`."""

    step: int
    splits: list[SplitRecord] = field(default_factory=list)
    metrics: dict[str, Any] | None = None  # None in the last folder of a run, which holds only the final evaluation
    eval: dict[str, Any] | None = None
