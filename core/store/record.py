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

    What a trainer always knows, an imported run may lack: texts are then None, numbers NaN, `correct` None, `length`
    and `truncated` None as a whole or in places. Without tokens, `trace` and `loss_weight` count a response of unknown
    length as one token.
    """

    split: str
    # one entry a group (P)
    prompt_id: list[str]
    prompt: list[str] | list[str | None]
    answer: list[str] | list[str | None]
    attempt: np.ndarray  # (P,) int: 0, or the refill round of dynamic sampling that drew the group
    group_kept: np.ndarray  # (P,) bool: False for groups that dynamic sampling dropped
    # one entry a rollout (N)
    group: np.ndarray  # (N,) int
    rollout: np.ndarray  # (N,) int: index within its group
    text: list[str] | list[str | None]
    reward: np.ndarray  # (N,)
    correctness: np.ndarray  # (N,) the verifier's correctness part
    correct: np.ndarray | None  # (N,) bool
    parts: list[dict[str, float]]
    traits: list[dict[str, float]]
    length: np.ndarray | list[int | None] | None  # (N,) int
    truncated: np.ndarray | list[bool | None] | None  # (N,) bool
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
    trace: Trace | None = None  # None for eval, and for imported rollouts without rewards
    polarity: np.ndarray | None = None  # (N,) +1 or -1, where neither the trace nor `correct` says it
    imported_advantage: np.ndarray | None = None  # (N,) of an import: the trainer's, NaN where not one a response
    imported_token_advantage: np.ndarray | None = None  # the same of each token

    @property
    def counted(self) -> np.ndarray:
        """(N,) int: the tokens of each response; without tokens at least one, and one where a length is missing."""
        if self.length is None or (isinstance(self.length, list) and None in self.length):
            return np.ones(len(self.group), np.int64)
        return np.asarray(self.length) if self.token_ids is not None else np.maximum(self.length, 1)


@dataclass
class StepRecord:
    """Everything of one step. `metrics` and `eval` have the columns of `schema.METRICS` and `schema.EVALS`."""

    step: int
    splits: list[SplitRecord] = field(default_factory=list)
    metrics: dict[str, Any] | None = None  # None in the last folder of a run, which holds only the final evaluation
    eval: dict[str, Any] | None = None
