"""lab.json: what the lab's own exports say, beside the rollouts, of how their advantages were computed.

`core.exporters` writes it for verl and TRL. It names a method and the settings that its rules read, so that an import
recomputes just that, token by token, and says how far the trainer's own numbers agree. It is a file like any other:
read as data, checked as a config is, and left aside with a note where it makes no sense.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from core.advantage import AdvantageError, Method
from core.advantage.words import num, percent
from core.config import ConfigError, parse_run
from core.importers.base import SCHEMA, Found, Report
from core.importers.fit import ENOUGH, WITHIN, Convention, Rollouts

LAB = "lab.json"
LARGEST = 2**20
"""Bytes; an exported one has some thousand."""
KEPT = {
    "correct_threshold": ("correct_threshold",),
    "seed": ("seed",),
    "total_steps": ("schedule_steps",),
    "max_length": ("sampling", "max_new_tokens"),
    "temperature": ("sampling", "temperature"),
    "minibatches": ("updates", "minibatches"),
    "dynamic_sampling": ("dynamic_sampling", "enabled"),
    "loss": ("loss",),
}
"""What of lab.json a run's config keeps, and where: all that the rules read."""
FROM_ONE = "verl counts steps from 1: its step 1 is step 0 here."


@dataclass(frozen=True)
class Exported:
    """What lab.json says, checked."""

    convention: Convention
    """Its name is that of the file."""
    config: dict[str, Any]
    """Settings of the run's config, the method left out."""
    method: Method
    from_one: bool
    """Whether its trainer counts steps from 1, as verl does."""

    def missing(self, have: Mapping[str, int], rows: int) -> list[str]:
        """What of each token the method reads and not all rollouts have; `have` counts the rows with each column."""
        asked = [name for name in sorted(self.method.needs) if name.endswith("_logprob") or name == "entropy"]
        return [name for name in asked if have.get(name, 0) < rows]


def exported(found: Found, report: Report) -> Exported | None:
    """What the lab.json beside the rollouts says; None without one, or, with a note, where it cannot be used."""
    path = _beside(found)
    if path is None:
        return None
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError("it is larger than 1 MB")
        return _parsed(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        why = str(error) if isinstance(error, ConfigError | AdvantageError) else "it is not what an export writes"
        report.note(f"{LAB} was left aside ({why[:200]}): the convention that fits best was looked for.")
        return None


def _beside(found: Found) -> Path | None:
    """The nearest lab.json from the first file's folder up to what is imported."""
    top = found.root.parent if found.root.is_file() else found.root
    folder = found.files[0].parent if found.files else top
    while folder == top or folder.is_relative_to(top):
        if (folder / LAB).is_file():
            return folder / LAB
        folder = folder.parent
    return None


def _parsed(data: dict[str, Any]) -> Exported:
    """Raises ConfigError, AdvantageError or the errors of wrong types."""
    config: dict[str, Any] = {}
    for name, place in KEPT.items():
        inner = config
        for key in place[:-1]:
            inner = inner.setdefault(key, {})
        inner[place[-1]] = data[name]
    method, prompts = dict(data["method"]), data["prompts_per_step"]
    shape = {"prompts_per_step": prompts, "group_size": data["group_size"], "task": {"pool_size": prompts}}
    run = parse_run({**config, **shape, "method": method, "imported": True, "model": "unknown"})
    composed = run.build_method()

    def compute(_: Rollouts) -> np.ndarray:
        raise AdvantageError(f"{LAB}: {composed.label} has no advantage a response alone")

    convention = Convention(LAB, f"{composed.label}, as {LAB} says", method, compute, composed.label)
    return Exported(convention, config, composed, data["trainer"] == "verl")


def mended(table: pa.Table, said: Exported, report: Report) -> pa.Table:
    """A reader's table as the lab means it: steps from 0; and where no sampler has log-probs of its own, the trainer
    sampled, so that they are the trainer's."""
    if said.from_one:
        step = table.schema.get_field_index("step")
        from_zero = pc.max_element_wise(pc.subtract(table.column(step), 1), 0, skip_nulls=False)
        table = table.set_column(step, SCHEMA.field("step"), from_zero)
        report.note(FROM_ONE)
    sampler, trainer = (table.schema.get_field_index(name) for name in ("sampler_logprob", "trainer_logprob"))
    if table.column(sampler).null_count == table.num_rows > table.column(trainer).null_count:
        table = table.set_column(sampler, SCHEMA.field("sampler_logprob"), table.column(trainer))
    return table


@dataclass
class Agreement:
    """How far the recomputed advantages are the trainer's own, rollout by rollout."""

    rollouts: int = 0
    agree: int = 0
    largest: float = 0.0

    def add(self, recomputed: np.ndarray, imported: np.ndarray, kept: np.ndarray) -> None:
        """(N, T) each; of tokens that are kept and have an imported one."""
        there = kept & np.isfinite(imported)
        apart = np.where(there, np.abs(recomputed - np.where(there, imported, 0.0)), 0.0)
        allowed = WITHIN * np.maximum(1.0, np.abs(np.where(there, imported, 0.0)))
        some = there.any(axis=1)
        self.rollouts += int(some.sum())
        self.agree += int((some & (apart <= allowed).all(axis=1)).sum())
        self.largest = max(self.largest, float(apart.max(initial=0.0)))

    def sentence(self, label: str) -> str:
        """What came of it, for a run whose method is `label`."""
        said = f"{LAB} says that these were computed with {label}"
        if not self.rollouts:
            return f"{said}; the files hold no advantages to compare with."
        share = self.agree / self.rollouts
        how = f"{percent(share)} of {self.rollouts:,} rollouts agree (largest difference {num(self.largest)})"
        if share >= ENOUGH:
            return f"{said}: recomputed so, {how}."
        return f"{said}, but recomputed so, only {how}: the files may be of another run, or their rewards incomplete."
