"""One method's answer in a few numbers: how much it moves, where, and how it judges each prompt."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core.advantage import Batch, Factor, Per
from core.counterfactual.answer import Answer

CLASSES = ("favorable", "unfavorable", "uniform")
QUARTILES = (0.25, 0.5, 0.75)


@dataclass(frozen=True)
class Mass:
    """Advantage mass, the sum of loss weight x |advantage| over kept tokens, by the responses' polarity."""

    positive: float
    negative: float

    @property
    def total(self) -> float:
        return self.positive + self.negative


@dataclass(frozen=True, eq=False)
class Quartiles:
    """The response tokens in four parts by the probability of the sampled token, dropped tokens included.

    A token is in part k, 0 the least likely, where k of the `edges` lie below its probability: equal probabilities stay
    together, so parts may be uneven, or empty. All but `edges` are (2, 4): positive and negative responses, by part.
    """

    edges: np.ndarray  # (3,) probabilities
    tokens: np.ndarray
    base_mass: np.ndarray  # before the factors
    mass: np.ndarray


@dataclass(frozen=True)
class Span:
    """What a factor is on the response tokens: from `low` to `high`, and not 1 on a `share` of them."""

    id: str
    per: Per
    low: float
    high: float
    share: float
    reason: str


@dataclass(frozen=True)
class Prompt:
    """How the method treats one group. None where a number has no meaning."""

    group: int
    rollouts: int
    correct: int
    reward: float  # mean
    label: str  # favorable, unfavorable or uniform
    length_advantage: bool | None
    difficulty_advantage: bool | None
    weight: float  # the ADORA weight; 1 where the method has none
    kept: bool  # any of its tokens is trained on
    base_advantage: float | None  # mean |base advantage| over its kept tokens
    advantage: float | None  # mean |advantage| over its kept tokens
    factor: float | None  # the second over the first: what all factors together make of the group
    share: float | None  # of the batch's advantage mass


@dataclass(frozen=True, eq=False)
class Summary:
    """An answer in numbers. Masses are over kept tokens, as the method's own loss weighs them."""

    base_mass: Mass  # before the factors: loss weight x |base advantage|
    mass: Mass
    quartiles: Quartiles | None  # None without the sampler's log-probs
    kept_share: float  # of the response tokens
    classes: dict[str, int]  # groups by class, each of CLASSES named
    mean_weight: float | None  # mean ADORA weight over kept groups; None without one
    clip_share: float | None  # of kept tokens with a ratio; None without ratios
    factors: list[Span]
    prompts: list[Prompt]  # in the order of `Batch.groups`

    @property
    def favorable_share(self) -> float:
        return self.classes["favorable"] / len(self.prompts)


def summarise(answer: Answer, batch: Batch) -> Summary:
    """The numbers of `Summary` for an answer to this batch."""
    trace, mask = answer.trace, batch.mask
    base_mass = answer.weight * np.abs(answer.base)
    positive = trace.polarity > 0
    prompts = _prompts(answer, batch)
    weights = [prompt.weight for prompt in prompts if prompt.kept]
    return Summary(
        base_mass=_by_polarity(base_mass, positive),
        mass=_by_polarity(answer.mass, positive),
        quartiles=_quartiles((base_mass, answer.mass), positive, batch),
        kept_share=float(trace.kept.sum() / mask.sum()),
        classes={name: trace.classes.label.count(name) for name in CLASSES},
        mean_weight=float(np.mean(weights)) if weights else None,
        clip_share=answer.clip_share,
        factors=[_span(factor, batch, mask) for factor in trace.factors],
        prompts=prompts,
    )


def _by_polarity(mass: np.ndarray, positive: np.ndarray) -> Mass:
    of_rollouts = mass.sum(axis=1)
    return Mass(float(of_rollouts[positive].sum()), float(of_rollouts[~positive].sum()))


def _quartiles(masses: tuple[np.ndarray, np.ndarray], positive: np.ndarray, batch: Batch) -> Quartiles | None:
    if batch.sampler_logprob is None:
        return None
    mask = batch.mask
    probability = np.exp(np.asarray(batch.sampler_logprob, dtype=np.float64)[mask])
    edges = np.quantile(probability, QUARTILES)
    place = np.searchsorted(edges, probability) + 4 * np.broadcast_to(~positive[:, None], mask.shape)[mask]
    tokens, before, after = (
        np.bincount(place, weights, minlength=8).reshape(2, 4) for weights in (None, *(mass[mask] for mass in masses))
    )
    return Quartiles(edges, tokens, before, after)


def _span(factor: Factor, batch: Batch, mask: np.ndarray) -> Span:
    values = factor.spread(batch)[mask]
    return Span(
        id=factor.id,
        per=factor.per,
        low=float(values.min()),
        high=float(values.max()),
        share=float((values != 1).mean()),
        reason=factor.reason,
    )


def _prompts(answer: Answer, batch: Batch) -> list[Prompt]:
    trace, classes = answer.trace, answer.trace.classes
    groups, index = np.unique(batch.group, return_inverse=True)

    def total(of_rollouts: np.ndarray) -> np.ndarray:
        return np.bincount(index, of_rollouts, minlength=len(groups))

    rollouts = np.bincount(index)
    kept = total(trace.kept.sum(axis=1))
    base = total(np.where(trace.kept, np.abs(answer.base), 0.0).sum(axis=1))
    advantage = total(np.abs(trace.advantage).sum(axis=1))
    mass = total(answer.mass.sum(axis=1))
    correct, reward = total(batch.correct), total(batch.reward) / rollouts
    return [
        Prompt(
            group=int(group),
            rollouts=int(rollouts[g]),
            correct=int(correct[g]),
            reward=float(reward[g]),
            label=classes.label[g],
            length_advantage=classes.length_advantage[g],
            difficulty_advantage=classes.difficulty_advantage[g],
            weight=float(classes.weight[g]),
            kept=bool(kept[g]),
            base_advantage=_over(base[g], kept[g]),
            advantage=_over(advantage[g], kept[g]),
            factor=_over(advantage[g], base[g]),
            share=_over(mass[g], mass.sum()),
        )
        for g, group in enumerate(groups)
    ]


def _over(part: float, whole: float) -> float | None:
    return float(part / whole) if whole > 0 else None
