"""What `check` asks of imported rollouts that came without tokens: one advantage a response, not one a token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from core.advantage import loss_weights
from core.store.open import StepLab

if TYPE_CHECKING:
    from core.store.replay import Replay

TOLERANCE = 1e-6
MASS_TOLERANCE = 1e-5
"""Relative: of the stored float64 masses, whose rewards were rounded to float32 once."""
MASSES = {
    "mass_positive": (1, "mass"), "mass_negative": (-1, "mass"),
    "mass_positive_base": (1, "base_mass"), "mass_negative_base": (-1, "base_mass"),
}  # fmt: skip


class Told(Protocol):
    """What is told of a problem."""

    largest_difference: float
    where: str

    def say(self, problem: str) -> None: ...


def without_rewards(lab: StepLab, split: str) -> bool:
    """Whether no rollout of the split has a reward: then it has no advantage either, and nothing is recomputed."""
    (row,) = lab.rows(
        "SELECT count(reward) AS rewards, count(base_advantage) AS advantages FROM rollouts WHERE split = ?", [split]
    )
    return not row["rewards"] and not row["advantages"]


def without_tokens(lab: StepLab, split: str) -> bool:
    """Whether the split has rollouts alone."""
    return not lab.rows("SELECT count(*) AS n FROM tokens WHERE split = ?", [split])[0]["n"]


def check_rollouts(lab: StepLab, again: Replay, split: str, report: Told) -> None:
    """Advantages, masses and polarity of rollouts without tokens equal the recomputed ones."""
    batch, trace = again.batch, again.trace
    weight = loss_weights(trace.kept, batch.length, batch.max_length, trace.method.loss.aggregation, trace.minibatch)
    base = np.where(batch.mask, trace.base if trace.base.ndim == 2 else trace.base[:, None], 0.0)
    expected = {
        "polarity": trace.polarity,
        "kept": trace.kept.any(axis=1),
        "mass": (weight * np.abs(trace.advantage)).sum(axis=1),
        "base_mass": (weight * np.abs(base)).sum(axis=1),
    }
    if trace.base.ndim == 1:
        expected["base_advantage"] = trace.base
    columns = ", ".join(f"{name}::DOUBLE AS {name}" for name in expected)
    stored = lab.arrays(f'SELECT {columns} FROM rollouts WHERE split = ? ORDER BY "group", rollout', [split])
    keys = list(again.row)
    for name, wanted in expected.items():
        if name in ("mass", "base_mass") and split != "train":
            continue
        found, wanted = np.asarray(stored[name], np.float64), np.asarray(wanted, np.float64)
        difference = np.abs(found - wanted) / np.maximum(1.0, np.abs(wanted))
        worst = int(np.argmax(np.nan_to_num(difference, nan=np.inf)))
        where = f"step {lab.step}, {split}, group {keys[worst][0]}, rollout {keys[worst][1]}"
        if name == "base_advantage" and difference[worst] > report.largest_difference:
            report.largest_difference, report.where = float(difference[worst]), where
        if not difference[worst] <= TOLERANCE:
            report.say(f"{where}: {name} is {found[worst]:.9g} in the store, {wanted[worst]:.9g} recomputed")
    if split == "train":
        _check_masses(lab, report)


def _check_masses(lab: StepLab, report: Told) -> None:
    """The metrics' advantage masses are what the rollouts add up to."""
    rollouts = lab.arrays("SELECT polarity, mass, base_mass FROM rollouts WHERE split = 'train'")
    for row in lab.rows(f"SELECT {', '.join(MASSES)} FROM metrics"):
        for name, (polarity, column) in MASSES.items():
            expected = float(rollouts[column][rollouts["polarity"] == polarity].sum())
            if row[name] is None or not np.isclose(row[name], expected, rtol=MASS_TOLERANCE, atol=1e-12):
                found = "missing" if row[name] is None else f"{row[name]:.9g}"
                report.say(f"step {lab.step}: {name} is {found} in the metrics, {expected:.9g} over the rollouts")
