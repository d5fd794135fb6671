"""What a batch must be before anything is computed from it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from core.advantage.types import AdvantageError, Batch
from core.advantage.words import listed, num

LOGPROBS = ("sampler_logprob", "trainer_logprob", "ref_logprob", "proxy_logprob")
PER_TOKEN = (*LOGPROBS, "entropy")
IN_FILES = {"sampler_logprob": "old_logprob", "trainer_logprob": "old_logprob"}
"""How a batch file calls a field, where it has another name."""
ROUNDING = 1e-5
"""A float32 log-softmax may land this far above 0, an entropy this far below."""


def checked(batch: Batch, needs: frozenset[str] = frozenset(), asker: str = "the method") -> Batch:
    """The batch as rules read it: stored precision (float32), held as float64; needed per-token fields 0 on padding.

    Training and every later recomputation go through here, so both see the same numbers. Raises AdvantageError that
    names the field, and the rollout where it is wrong.
    """
    n = len(batch.group)
    if n == 0:
        raise AdvantageError("the batch has no rollouts")
    for name in ("group", "reward", "correct", "length", "truncated"):
        shape = np.shape(getattr(batch, name))
        if shape != (n,):
            raise AdvantageError(f"{name} has shape {shape}, but group has {n} rollouts: give one number a rollout")
    if batch.rollout is not None and np.shape(batch.rollout) != (n,):
        raise AdvantageError(f"rollout has shape {np.shape(batch.rollout)}, but group has {n} rollouts: give one each")
    if batch.minibatches < 1:
        raise AdvantageError(f"minibatches must be at least 1, but is {batch.minibatches}")
    reward = np.asarray(batch.reward, dtype=np.float32).astype(np.float64)
    _first(~np.isfinite(reward), "reward", reward, "a finite number")
    length = np.asarray(batch.length)
    _first(length < 1, "length", length, "at least 1: a response has its end-of-sequence token at least")
    _first(length > batch.max_length, "length", length, f"at most max_length, {batch.max_length}")
    missing = sorted(name for name in needs if getattr(batch, name) is None)
    if missing:
        called = [f"{name} ({IN_FILES[name]} in a batch file)" if name in IN_FILES else name for name in missing]
        raise AdvantageError(f"{asker} needs {listed(called)}, which this batch doesn't have")
    if "total_steps" in needs and batch.total_steps < 1:
        raise AdvantageError(f"total_steps must be at least 1, but is {batch.total_steps}")
    changes = {"reward": reward, "length": length.astype(np.int64)}
    for name in ("correct", "truncated"):
        changes[name] = np.asarray(getattr(batch, name), dtype=bool)
    for name in needs.intersection(PER_TOKEN):
        changes[name] = _tokens(batch, name, n)
    return replace(batch, group=np.asarray(batch.group), **changes)


def _tokens(batch: Batch, name: str, n: int) -> np.ndarray:
    values = np.asarray(getattr(batch, name), dtype=np.float32).astype(np.float64)
    if values.ndim != 2 or len(values) != n or values.shape[1] != batch.width or values.shape[1] < max(batch.length):
        raise AdvantageError(
            f"{name} has shape {values.shape}, but must be ({n}, {max(batch.width, max(batch.length))}): "
            "one row a rollout, one number a token"
        )
    values = np.where(batch.mask, values, 0.0)
    _first(~np.isfinite(values).all(axis=1), name, values, "finite numbers on every token")
    if name in LOGPROBS:
        _first((values > ROUNDING).any(axis=1), name, values.max(axis=1), "at most 0, as log-probs are")
        return np.minimum(values, 0.0)
    _first((values < -ROUNDING).any(axis=1), name, values.min(axis=1), "at least 0, as entropies are")
    return np.maximum(values, 0.0)


def _first(bad: np.ndarray, name: str, values: np.ndarray, wanted: str) -> None:
    if bad.any():
        i = int(np.flatnonzero(bad)[0])
        shown = f", but is {num(values[i])}" if values.ndim == 1 else ", but are not"
        raise AdvantageError(f"{name} of rollout {i} must be {wanted}{shown}")
