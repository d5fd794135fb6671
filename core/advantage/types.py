"""The nouns of the advantage computation: a padded batch in, a factor trace out.

Axis names in this package: N rollouts of a step, T positions (padded to the longest response), P groups (prompts).
Positions at or beyond a rollout's length are padding: `mask` is False there and every per-token value is 0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

Per = Literal["rollout", "token", "group"]


class AdvantageError(ValueError):
    """Bad input to the advantage computation: one sentence that names the field and what would be right."""


@dataclass(frozen=True)
class Batch:
    """One step's rollouts as the advantage rules see them. All log-probs are at the sampling temperature, in nats.

    `sampler_logprob` comes from the engine that sampled, `trainer_logprob` from the trainer at the start of the step;
    either may be None where no rule of the method needs it. Inputs may be float32; arithmetic is float64.
    """

    group: np.ndarray  # (N,) int: index of the prompt's group
    reward: np.ndarray  # (N,) float
    correct: np.ndarray  # (N,) bool: the correctness part of the reward reached the threshold
    length: np.ndarray  # (N,) int: response tokens, end-of-sequence included
    truncated: np.ndarray  # (N,) bool: stopped by the length limit
    max_length: int  # the limit on new tokens
    step: int = 0  # the rollout step, from 0: what schedules run on
    total_steps: int | None = None  # the run's length, for schedules given as a fraction of it
    sampler_logprob: np.ndarray | None = None  # (N, T)
    trainer_logprob: np.ndarray | None = None  # (N, T)
    ref_logprob: np.ndarray | None = None  # (N, T)
    entropy: np.ndarray | None = None  # (N, T), of the full sampling distribution
    proxy_logprob: np.ndarray | None = None  # (N, T) under the min-p proxy: see `methods/lp_reg.py`
    proxy_min_p: float | None = None  # the min-p that `proxy_logprob` was made with; None: not known
    rollout: np.ndarray | None = None  # (N,) int: index within its group, for random choices and ties; None: by order
    minibatches: int = 1  # the optimizer's updates a pass over the step; each takes whole groups
    seed: int = 0  # of the run, for rules that draw
    dropped: np.ndarray | None = None  # (N,) bool: rollouts of groups that dynamic sampling drops; `compute` sets it
    trained: np.ndarray | None = None  # (N, T) bool: what the trainer's own mask left in the loss; None: every token
    measured: bool = True  # False: no response's length is known, each counts as one token

    @property
    def width(self) -> int:
        """T: the positions the per-token arrays have."""
        for name in ("sampler_logprob", "trainer_logprob", "entropy", "ref_logprob", "proxy_logprob"):
            if (array := getattr(self, name)) is not None:
                return int(array.shape[1])
        return int(self.length.max(initial=0))

    @property
    def mask(self) -> np.ndarray:
        """(N, T) bool: True on response tokens."""
        return np.arange(self.width)[None, :] < self.length[:, None]

    @property
    def counted(self) -> np.ndarray:
        """(N,) bool: the rollouts that statistics over the whole batch are about."""
        return np.ones(len(self.group), dtype=bool) if self.dropped is None else ~self.dropped

    @property
    def groups(self) -> np.ndarray:
        """(P,) the distinct group indices, ascending."""
        return np.unique(self.group)


@dataclass(frozen=True)
class Rule:
    """A named rule of the registry (a base rule or a weight) with its parameters filled in."""

    name: str
    params: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Loss:
    """What the policy update does with the advantages (`core/train/losses.py` computes it)."""

    objective: Literal["clip", "ratio", "gspo", "cispo", "reinforce"] = "clip"
    aggregation: Literal["token_mean", "sequence_mean", "fixed_length"] = "token_mean"
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None  # c > 1: bounds the loss of negative advantages at c * |A|
    kl: float = 0.0  # coefficient of the k3 KL to the base model


@dataclass(frozen=True)
class Method:
    """A composition: base rule -> sample weights and token weights, in order -> loss."""

    name: str
    label: str  # as pages show it: "A3PO on DAPO"
    base: Rule
    weights: tuple[Rule, ...] = ()
    loss: Loss = field(default_factory=Loss)
    dynamic_sampling: bool = False  # groups of equal rewards are dropped and refilled
    mass_matched: bool = False  # the advantages are rescaled to the base rule's mass; see `mass.py`
    needs: frozenset[str] = frozenset()  # optional Batch fields that its rules read


@dataclass(frozen=True)
class Factor:
    """One named multiplier of the advantage.

    `values` is (N,) for "rollout", (N, T) for "token", (P,) in the order of `Batch.groups` for "group".
    `reason` says in one sentence what the factor is at this step, with its numbers; `explain(i, t)` says why token t of
    rollout i got its value.
    """

    id: str  # [a-z0-9_]+, unique within a method; the store's column is f_<id>
    per: Per
    values: np.ndarray
    reason: str
    explain: Callable[[int, int], str]

    def spread(self, batch: Batch) -> np.ndarray:
        """(N, T) the factor on every position."""
        values = np.asarray(self.values, dtype=np.float64)
        if self.per == "group":
            values = values[np.searchsorted(batch.groups, batch.group)]
        return values if self.per == "token" else np.broadcast_to(values[:, None], (len(batch.group), batch.width))


@dataclass(frozen=True)
class Penalty:
    """A term that the loss adds on chosen tokens, weighed like their own: coefficient x distance.

    On a token with a coefficient the objective's term is the unclipped -A r, as the rules' authors have it. `form`:
    - "absolute": the distance is |log-prob - trainer's at the start of the step| (KL-Cov);
    - "proxy": it is the k3 of the KL to `Batch.proxy_logprob`, and only while the token's log-prob lies below that
      (Lp-Reg); above it, the token has its objective's term alone.
    """

    id: str
    form: Literal["absolute", "proxy"]
    coefficient: np.ndarray  # (N, T) float64, 0 on tokens without a penalty
    reason: str
    explain: Callable[[int, int], str]


@dataclass(frozen=True)
class Classes:
    """What ADORA's criteria say of each group, (P,) in the order of `Batch.groups`."""

    label: list[str]  # "favorable", "unfavorable" or "uniform"
    length_advantage: list[bool | None]  # None: not defined for this group
    difficulty_advantage: list[bool | None]
    longest_correct: np.ndarray  # (P,) tokens, NaN without a correct rollout
    mean_wrong: np.ndarray  # (P,) mean tokens of the usable (not truncated) wrong rollouts, NaN without one
    weight: np.ndarray  # (P,) the weight the method gave the group, 1 where it has no ADORA weight
    trained: bool  # whether the method itself uses these classes


@dataclass(frozen=True)
class Trace:
    """The advantages of a batch and where each came from: advantage = base * product of the factors.

    Equality holds to float64 rounding on every response token; selection is the 0/1 factor `selected`.
    """

    method: Method
    base: np.ndarray  # (N,) or (N, T) for a base rule that is per token
    base_reason: str
    explain_base: Callable[[int, int], str]
    factors: list[Factor]
    advantage: np.ndarray  # (N, T) float64, 0 on padding and on dropped tokens
    kept: np.ndarray  # (N, T) bool: the token takes part in the loss and its denominators
    polarity: np.ndarray  # (N,) int8: +1 or -1
    classes: Classes
    minibatch: np.ndarray  # (N,) int32: the optimizer's minibatch of each rollout, by the groups this method trains on
    penalty: Penalty | None = None
