"""The numbers of a step: the row of the store's `metrics`, whose columns `core.store.schema` defines."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from core.advantage import Trace, gap_metrics
from core.advantage.tis import GAP_METRICS
from core.config import TisSettings
from core.store.record import SplitRecord
from core.train.clock import Clock
from core.train.sampler import Collected, without_signal
from core.train.samples import Samples
from core.train.update import Updated

_PHASES = ("sample", "verify", "forward", "reference", "proxy", "advantage", "update", "after")


def step_metrics(step: int, collected: Collected, updated: Updated, tis: TisSettings, clock: Clock) -> dict[str, Any]:
    """One row, but for the times of evaluating and writing. Shares are of sampled groups, or of kept tokens."""
    record = collected.samples.record
    trace = record.trace
    seconds = sum(clock.seconds[phase] for phase in _PHASES)
    return {
        "step": step,
        "time": time.time(),
        **_rewards(record),
        **_groups(collected, trace),
        **by_correctness("length", record.length, record.correct),
        "truncated_share": mean(record.truncated),
        **_entropies(record),
        **_masses(record, trace),
        **_updates(record, trace, updated),
        **_gap(collected.samples, tis),
        "entropy_source": "trainer" if collected.samples.scored else "sampler",
        "tokens_per_second": float(record.length.sum() / seconds) if seconds else None,
        **{f"time_{phase}": clock.seconds[phase] for phase in _PHASES},
        "time_step": seconds,
        **traits_and_parts(record),
    }


def _rewards(record: SplitRecord) -> dict[str, Any]:
    return {
        "reward": mean(record.reward),
        "reward_std": float(np.std(record.reward, dtype=np.float64)),
        "pass_rate": mean(record.correct),
        "rollouts": len(record.reward),
        "tokens": int(record.length.sum()),
    }


def _groups(collected: Collected, trace: Trace) -> dict[str, Any]:
    record = collected.samples.record
    groups = len(record.prompt_id)
    rate = np.bincount(record.group, record.correct, groups) / np.bincount(record.group, minlength=groups)
    labels = np.array(trace.classes.label)
    return {
        "groups_sampled": groups,
        "groups_kept": int(record.group_kept.sum()),
        "refills": collected.refills,
        "shortfall": collected.shortfall,
        "no_signal_share": mean(without_signal(record.group, record.reward)),
        "all_correct_share": mean(rate == 1),
        "all_wrong_share": mean(rate == 0),
        **{f"{label}_share": mean(labels == label) for label in ("favorable", "unfavorable", "uniform")},
        "mean_weight": mean(np.asarray(trace.classes.weight)[record.group_kept]),
    }


def _entropies(record: SplitRecord) -> dict[str, Any]:
    mask = _mask(record)
    after = None if record.entropy_after is None else mean(record.entropy_after[mask])
    return {
        "entropy": mean(record.entropy[mask]),
        "entropy_correct": mean(record.entropy[mask & record.correct[:, None]]),
        "entropy_wrong": mean(record.entropy[mask & ~record.correct[:, None]]),
        "entropy_after": after,
    }


def _masses(record: SplitRecord, trace: Trace) -> dict[str, Any]:
    """Advantage mass by polarity, before and after the method's factors."""
    base = trace.base if trace.base.ndim == 2 else trace.base[:, None]
    weight = np.where(trace.kept, record.loss_weight, 0.0)
    shaped = (weight * np.abs(trace.advantage)).sum(axis=1)
    plain = (weight * np.abs(base)).sum(axis=1)
    positive = trace.polarity > 0
    return {
        "mass_positive_base": float(plain[positive].sum()),
        "mass_negative_base": float(plain[~positive].sum()),
        "mass_positive": float(shaped[positive].sum()),
        "mass_negative": float(shaped[~positive].sum()),
    }


def _updates(record: SplitRecord, trace: Trace, updated: Updated) -> dict[str, Any]:
    passed = trace.kept & np.isfinite(updated.ratio)
    ratio = updated.ratio[passed]
    return {
        "loss": updated.loss,
        "policy_loss": updated.policy_loss,
        "penalty": updated.penalty,
        "penalised_share": None if updated.penalised is None else mean(updated.penalised[passed]),
        "kl": _kl(record),
        "clip_low_share": mean(updated.clipped_low[passed]),
        "clip_high_share": mean(updated.clipped_high[passed]),
        "ratio_mean": mean(ratio),
        "ratio_max": float(ratio.max()) if ratio.size else None,
        "grad_norm": updated.grad_norm,
        "update_norm": updated.update_norm,
        "lr": updated.lr,
        "updates": updated.updates,
        "skipped": updated.skipped,
    }


def _gap(samples: Samples, tis: TisSettings) -> dict[str, float | None]:
    """How far sampler and trainer are apart; None throughout where both are one model, and the numbers the same."""
    if not samples.scored:
        return dict.fromkeys(GAP_METRICS)
    record, mask = samples.record, _mask(samples.record)
    return gap_metrics(record.sampler_logprob[mask], record.trainer_logprob[mask], tis.gap, tis.cap)


def _kl(record: SplitRecord) -> float | None:
    """Mean k3 over the response tokens, of the policy that sampled to the base model."""
    if record.ref_logprob is None:
        return None
    difference = (record.ref_logprob - record.trainer_logprob)[_mask(record)].astype(np.float64)
    return mean(np.exp(difference) - difference - 1)


def _mask(record: SplitRecord) -> np.ndarray:
    return np.arange(record.token_ids.shape[1])[None, :] < record.length[:, None]


def mean(values: np.ndarray) -> float | None:
    """The mean in float64; None of nothing."""
    return float(np.mean(values, dtype=np.float64)) if np.size(values) else None


def by_correctness(name: str, values: np.ndarray, correct: np.ndarray) -> dict[str, float | None]:
    """The mean over rollouts, over correct ones and over wrong ones."""
    return {name: mean(values), f"{name}_correct": mean(values[correct]), f"{name}_wrong": mean(values[~correct])}


def traits_and_parts(record: SplitRecord) -> dict[str, dict[str, float]]:
    """The means of all traits, over all rollouts and over correct ones; where the reward has several parts, of each of
    them too, as `part_NAME`."""
    rows = record.traits
    if any(len(parts) > 1 for parts in record.parts):
        named = [{f"part_{name}": value for name, value in parts.items()} for parts in record.parts]
        rows = [{**traits, **parts} for traits, parts in zip(record.traits, named, strict=True)]
    right = [row for row, correct in zip(rows, record.correct, strict=True) if correct]
    return {"traits": mean_traits(rows), "traits_correct": mean_traits(right)}


def mean_traits(traits: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each trait over the rollouts that have it."""
    values: dict[str, list[float]] = {}
    for rollout in traits:
        for name, value in rollout.items():
            values.setdefault(name, []).append(value)
    return {name: float(np.mean(found)) for name, found in values.items()}
