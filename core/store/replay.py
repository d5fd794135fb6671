"""The advantages of a stored step, computed again by the very rules that trained.

The store keeps every input of the rules as the trainer saw it (float32), so the trace that comes out equals the trained
one to float32 rounding, reasons included, which are not stored. Always for a whole step and split: rules look across
groups.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from core.advantage import AdvantageError, Batch, Trace, compute
from core.advantage.registry import selects
from core.config import RunConfig, read_run
from core.store.errors import StoreError
from core.store.factors import trained_method
from core.store.open import Lab, StepLab, open_runs

INPUTS = ("sampler_logprob", "trainer_logprob", "ref_logprob", "entropy", "proxy_logprob")


@dataclass(frozen=True)
class Replay:
    """A step's batch as stored, and its trace. Rollout r of group g is row `row[g, r]` of their arrays."""

    config: RunConfig
    batch: Batch
    trace: Trace
    row: dict[tuple[int, int], int]


def replay(lab_or_path: Lab | str | Path, run: str, step: int, split: str = "train") -> Replay:
    """Recompute the advantages of one step and split of a run. Raises StoreError where it does not have them whole."""
    if not isinstance(lab_or_path, Lab):
        with open_runs([lab_or_path]) as lab:
            return replay(lab, run, step, split)
    source = lab_or_path.source(run)
    path, packed = source.path, source.packed
    if packed and packed.token_steps and step in packed.steps - packed.token_steps:
        there = ", ".join(map(str, sorted(packed.token_steps)))
        raise StoreError(f"{run}, step {step}: its tokens were left out of the pack; it has those of steps {there}")
    config = read_run(path / "config.yaml")
    batch, row = stored_batch(lab_or_path.step(run, step), config, split)
    try:
        trace = compute(trained_method(path, config), batch, polarity_by=config.polarity_by)
    except AdvantageError as error:
        raise StoreError(f"{run}, step {step}, {split}: the advantages cannot be recomputed: {error}") from error
    return Replay(config, batch, trace, row)


def stored_batch(lab: StepLab, config: RunConfig, split: str = "train") -> tuple[Batch, dict[tuple[int, int], int]]:
    """The batch of a stored step, rollouts ordered by (group, rollout), and the row of each.

    Rollouts of an import that has no tokens make a batch without any; where it lacks their lengths too, each counts as
    one token. Raises StoreError where there are no rollouts or no rewards, or not exactly one token for each position.
    """
    where = f"{lab.run}, step {lab.step}, {split}"
    rollouts = lab.arrays(
        """SELECT "group", rollout, reward, coalesce(correct, false) AS correct, coalesce(length, -1) AS length,
        coalesce(truncated, false) AS truncated FROM rollouts WHERE split = ? ORDER BY "group", rollout""",
        [split],
    )
    group, rollout, length = rollouts["group"], rollouts["rollout"], rollouts["length"]
    if not len(group):
        raise StoreError(f"{where}: there are no rollouts")
    if config.imported and np.isnan(rollouts["reward"]).any():
        raise StoreError(f"{where}: these rollouts came without rewards, so nothing can be computed from them")
    tokens = lab.arrays(
        f'SELECT "group", rollout, position, kept, {", ".join(INPUTS)} FROM tokens WHERE split = ? ORDER BY ALL',
        [split],
    )
    if config.imported and not len(tokens["position"]):
        return _without_tokens(lab.step, rollouts, config)
    row = {key: i for i, key in enumerate(zip(group.tolist(), rollout.tolist(), strict=True))}
    n, width = len(group), int(length.max())
    not_whole = StoreError(f"{where}: the tokens do not fit the rollouts' lengths; the step is not whole")
    if len(row) != n or length.min() < 0 or len(tokens["position"]) != length.sum(dtype=np.int64):
        raise not_whole  # before lengths that nothing bears out ask for memory
    mask = np.arange(width) < length[:, None]
    for name, values in (("group", group), ("rollout", rollout), ("position", None)):
        expected = np.nonzero(mask)[1] if values is None else np.repeat(values, length)
        if not np.array_equal(tokens[name], expected):
            raise not_whole
    trained = _trained(tokens["kept"], mask) if config.imported and not selects(config.build_method()) else None
    padded = {}
    for name in INPUTS:
        if np.isnan(tokens[name]).all():
            padded[name] = None
            continue
        padded[name] = np.zeros((n, width), np.float32)
        padded[name][mask] = tokens[name]
        if trained is not None:
            padded[name][~trained & np.isnan(padded[name])] = 0
    batch = Batch(
        group=group.astype(np.int64),
        reward=rollouts["reward"],
        correct=rollouts["correct"],
        length=length.astype(np.int64),
        truncated=rollouts["truncated"],
        max_length=config.sampling.max_new_tokens,
        step=lab.step,
        total_steps=config.schedule_steps or config.steps,
        rollout=rollout.astype(np.int64),
        minibatches=config.updates.minibatches if split == "train" else 1,
        seed=config.seed,
        proxy_min_p=None if padded["proxy_logprob"] is None else config.proxy_min_p,
        trained=trained,
        **padded,
    )
    return batch, row


def _trained(kept: np.ndarray, mask: np.ndarray) -> np.ndarray | None:
    """(N, T) what an import's own mask left in the loss, since its method leaves nothing out; None for all."""
    kept = np.ma.filled(kept, False).astype(bool)
    if kept.all():
        return None
    trained = np.zeros(mask.shape, bool)
    trained[mask] = kept
    return trained


def _without_tokens(
    step: int, rollouts: dict[str, np.ndarray], config: RunConfig
) -> tuple[Batch, dict[tuple[int, int], int]]:
    keys = zip(rollouts["group"].tolist(), rollouts["rollout"].tolist(), strict=True)
    return tokenless_batch(
        config, step, rollouts["group"], rollouts["rollout"], rollouts["reward"], rollouts["correct"],
        rollouts["truncated"], rollouts["length"],
    ), {key: i for i, key in enumerate(keys)}  # fmt: skip


def tokenless_batch(
    config: RunConfig,
    step: int,
    group: np.ndarray,
    rollout: np.ndarray,
    reward: np.ndarray,
    correct: np.ndarray,
    truncated: np.ndarray,
    length: np.ndarray,
) -> Batch:
    """The batch of an import's rollouts without tokens, all arrays (N,). With a `length` below 0, which says that it
    is not known, each response counts as one token; an empty one does in any case.
    """
    measured = bool((np.asarray(length) >= 0).all())
    return Batch(
        group=np.asarray(group, np.int64),
        reward=reward,
        correct=correct,
        length=np.maximum(length, 1).astype(np.int64) if measured else np.ones(len(group), np.int64),
        truncated=truncated,
        max_length=config.sampling.max_new_tokens,
        step=step,
        total_steps=config.schedule_steps or config.steps,
        rollout=np.asarray(rollout, np.int64),
        seed=config.seed,
        measured=measured,
    )
