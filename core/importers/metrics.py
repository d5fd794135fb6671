"""The rows of `metrics` and `evals` that an import can know: rewards, groups, lengths, entropies, advantage masses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from core.advantage import gap_metrics
from core.advantage.groups import group_stats
from core.stats.exam import pass_at_k
from core.store.record import SplitRecord


def metrics_row(record: SplitRecord, gap: float) -> dict[str, Any]:
    """One step's training rollouts; what cannot be known is left out, and so null. `gap` is the run's `tis.gap`."""
    length, correct = _lengths(record), record.correct
    groups = len(record.prompt_id)
    row: dict[str, Any] = {
        "rollouts": len(record.group),
        "tokens": None if length is None else int(length.sum()),
        "groups_sampled": groups,
        "groups_kept": groups,
        "length": None if length is None else _mean(length),
        "truncated_share": _known_mean(record.truncated),
        "traits": _traits(record.traits),
    }
    if np.isfinite(record.reward).all():
        row |= {"reward": _mean(record.reward), "reward_std": float(np.std(record.reward))}
        row["no_signal_share"] = _mean(group_stats(record.group, record.reward).equal)
    if correct is not None:
        rate = np.bincount(record.group, correct, groups) / np.bincount(record.group, minlength=groups)
        row |= {"pass_rate": _mean(correct), "all_correct_share": _mean(rate == 1), "all_wrong_share": _mean(rate == 0)}
        row["traits_correct"] = _traits([own for own, right in zip(record.traits, correct, strict=True) if right])
        if length is not None:
            row |= {"length_correct": _mean(length[correct]), "length_wrong": _mean(length[~correct])}
    return row | _of_trace(record) | _of_tokens(record, gap)


def _of_trace(record: SplitRecord) -> dict[str, Any]:
    """Classes and masses. The masses are of what is stored: tokens in single precision, rollouts in double."""
    trace = record.trace
    if trace is None:
        return {}
    labels = np.array(trace.classes.label)
    base = trace.base if trace.base.ndim == 2 else np.broadcast_to(trace.base[:, None], trace.advantage.shape)
    weight = np.where(trace.kept, record.loss_weight, 0.0)
    right = trace.polarity > 0
    row = {f"{label}_share": _mean(labels == label) for label in ("favorable", "unfavorable", "uniform")}
    row["mean_weight"] = _mean(np.asarray(trace.classes.weight))
    for name, values in (("", trace.advantage), ("_base", base)):
        mass = (weight * np.abs(values)).sum(axis=1)
        row |= {f"mass_positive{name}": float(mass[right].sum()), f"mass_negative{name}": float(mass[~right].sum())}
    return row


def _of_tokens(record: SplitRecord, gap: float) -> dict[str, Any]:
    if record.token_ids is None:
        return {}
    mask = np.arange(record.token_ids.shape[1]) < np.asarray(record.length)[:, None]
    row: dict[str, Any] = {}
    if record.entropy is not None:
        row["entropy"] = _mean(record.entropy[mask])
        if record.correct is not None:
            row["entropy_correct"] = _mean(record.entropy[mask & record.correct[:, None]])
            row["entropy_wrong"] = _mean(record.entropy[mask & ~record.correct[:, None]])
    if record.ref_logprob is not None and record.trainer_logprob is not None:
        apart = (record.ref_logprob - record.trainer_logprob)[mask]
        row["kl"] = _mean(np.exp(np.minimum(apart, 50)) - apart - 1)
    both = [own[mask] for own in (record.sampler_logprob, record.trainer_logprob) if own is not None]
    if len(both) == 2 and np.isfinite(both).all():
        row |= gap_metrics(both[0].astype(np.float32), both[1].astype(np.float32), gap, None)
    if record.ratio is not None:
        ratio = record.ratio[mask]
        row |= {"ratio_mean": _mean(ratio), "ratio_max": float(np.nanmax(ratio)) if np.isfinite(ratio).any() else None}
    return row


def eval_row(record: SplitRecord) -> dict[str, Any]:
    """One step's held-out rollouts."""
    n = np.bincount(record.group)
    length = _lengths(record)
    k = int(n.min())
    row: dict[str, Any] = {
        "prompts": len(n),
        "rollouts": int(np.round(np.median(n))),
        "k": k,
        "reward": _mean(record.reward) if np.isfinite(record.reward).all() else None,
        "length": None if length is None else _mean(length),
        "truncated_share": _known_mean(record.truncated),
        "traits": _traits(record.traits),
    }
    if record.correct is not None:
        correct = np.bincount(record.group, record.correct).astype(np.int64)
        row |= {"pass_at_1": _mean(correct / n), "pass_at_k": _mean(pass_at_k(n, correct, k))}
        if length is not None:
            own = record.correct
            row |= {"length_correct": _mean(length[own]), "length_wrong": _mean(length[~own])}
    return row


def _lengths(record: SplitRecord) -> np.ndarray | None:
    return record.length if isinstance(record.length, np.ndarray) else None


def _known_mean(values: np.ndarray | Sequence[bool | None] | None) -> float | None:
    """The mean of booleans that are all known."""
    return _mean(values) if isinstance(values, np.ndarray) else None


def _mean(values: np.ndarray) -> float | None:
    """The mean of the values that are there, in float64; None of nothing."""
    values = np.asarray(values, np.float64)
    values = values[np.isfinite(values)]
    return float(values.mean()) if values.size else None


def _traits(several: Sequence[dict[str, float]]) -> dict[str, float]:
    """The mean of each trait over the rollouts that have it."""
    values: dict[str, list[float]] = {}
    for rollout in several:
        for name, value in rollout.items():
            if np.isfinite(value):
                values.setdefault(name, []).append(value)
    return {name: float(np.mean(found)) for name, found in values.items()}
