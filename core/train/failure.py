"""When the loss or the gradient is no number: the batch is kept for a look, and the message says what to try."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from core.config import RunConfig
from core.train.samples import Samples
from core.train.update import NotFiniteError, Plan

FAILED_BATCH = "failed_batch.npz"


def keep_batch(run_dir: Path, step: int, samples: Samples, plan: Plan) -> str:
    """Write what the update was given to `run_dir/failed_batch.npz` (plain arrays, no pickle); the file's name.

    (N,) group, rollout, reward, length, minibatch; (N, T) token_ids, old_logprob, advantage, loss_weight and, where
    they are used, tis, ref_logprob, penalty and proxy_logprob; (P,) prompt.
    """
    record = samples.record
    arrays = {
        "step": np.array(step),
        "prompt": np.array([prompt.encode("utf-8", "backslashreplace") for prompt in record.prompt]),
        "group": record.group,
        "rollout": record.rollout,
        "reward": record.reward,
        "length": record.length,
        "minibatch": plan.minibatch,
        "token_ids": record.token_ids,
        "old_logprob": plan.old,
        "advantage": plan.advantage,
        "loss_weight": plan.weight,
    }
    optional = {
        "tis": plan.tis,
        "ref_logprob": plan.reference,
        "penalty": None if plan.penalty is None else plan.penalty.coefficient,
        "proxy_logprob": plan.proxy,
    }
    arrays |= {name: values for name, values in optional.items() if values is not None}
    aside = run_dir / f".{FAILED_BATCH}"
    with aside.open("wb") as file:
        np.savez_compressed(file, **arrays)
    aside.replace(run_dir / FAILED_BATCH)
    return FAILED_BATCH


def not_finite(error: NotFiniteError, step: int, config: RunConfig, kept: str) -> str:
    """The sentence about a NaN, with what to try under this config."""
    advice = [f"a lower optimizer.lr (it is {config.optimizer.lr:g})"]
    if config.optimizer.max_grad_norm is None:
        advice.append("optimizer.max_grad_norm: 1")
    if not config.optimizer.warmup_steps:
        advice.append("optimizer.warmup_steps: 10")
    if config.precision != "float32":
        advice.append("precision: float32")
    return (
        f"step {step}: {error} is not a finite number, so this update was not made; the batch is in {kept}. "
        f"Try {', '.join(advice[:-1])}{' or ' if len(advice) > 1 else ''}{advice[-1]} in a new run"
    )
