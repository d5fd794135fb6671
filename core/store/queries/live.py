"""The Live page's questions: the curves of a run that is still being written, and its newest rollouts.

`Follower` keeps what it has read of one run and looks only at steps that it has not seen, or that a resume has written
anew: with 2,000 steps on the disk, one more costs as much as one alone.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq

from core.store.errors import StoreError
from core.store.files import identity, live_steps, settled, table_file
from core.store.open import Lab, open_runs

if TYPE_CHECKING:
    import pandas as pd

Mark = tuple[int, int]
Rows = dict[str, dict[int, dict[str, Any]]]

TABLES = ("metrics", "evals")
AT_ONCE = 16
"""More unseen steps than this are read in one query over the whole run."""
_MAPS = ("traits", "traits_correct")


@dataclass(frozen=True)
class Curves:
    """A run's whole-step numbers so far, by step.

    Columns are those of the tables; each trait is one more (`traits.NAME`, `traits_correct.NAME`), and so is
    `mass_positive_share`, the share of the advantage mass that lies on correct rollouts.
    """

    metrics: pd.DataFrame
    evals: pd.DataFrame
    version: int
    """Grows whenever a read found something new."""

    @property
    def last_step(self) -> int | None:
        """The newest training step; None before the first."""
        return int(self.metrics["step"].iloc[-1]) if len(self.metrics) else None

    def traits(self) -> list[str]:
        """The verifier's traits that were recorded, sorted."""
        return sorted(name.removeprefix("traits.") for name in self.metrics.columns if name.startswith("traits."))


class Follower:
    """Reads the metrics and evaluations of one run, again and again. Safe to share between threads."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock = threading.Lock()
        self._settled: tuple[Mark | None, ...] = (None, None)
        self._seen: dict[int, Mark] = {}
        self._rows: Rows = {table: {} for table in TABLES}
        self._curves = _frames(self._rows, 0)
        self.steps_read = 0
        """Step folders opened one by one so far."""

    def read(self) -> Curves:
        """Everything up to now; a run without a step gives empty frames with the column `step`. Raises StoreError."""
        with self._lock:
            now = settled(self.path)
            folders = live_steps(self.path)
            here = {step: mark for step, folder in folders.items() if (mark := identity(folder))}
            fresh = [step for step, mark in here.items() if self._seen.get(step) != mark]
            gone = self._seen.keys() - here.keys()
            if now != self._settled or len(fresh) > AT_ONCE or (gone and any(now)):  # sealed: only the folders went
                self._rows = _read_all(self.path)
                self._settled, self._seen = now, here
            elif fresh or gone:
                for rows in self._rows.values():
                    for step in gone:
                        rows.pop(step, None)
                self._seen = {step: mark for step, mark in self._seen.items() if step in here}
                for step in fresh:
                    if self._read_step(step, folders[step]):
                        self._seen[step] = here[step]
            else:
                return self._curves
            self._curves = _frames(self._rows, self._curves.version + 1)
            return self._curves

    def _read_step(self, step: int, folder: Path) -> bool:
        """Read one live step; False if it was taken away meanwhile (it is then looked at again next time). Raises
        StoreError for a file that is no Parquet.
        """
        for table, rows in self._rows.items():
            rows.pop(step, None)
            file = folder / table_file(table)
            try:
                if file.is_file():
                    rows.update((row["step"], _flat(row)) for row in pq.read_table(file).to_pylist())
            except FileNotFoundError:
                return False
            except (ValueError, OSError) as error:  # pyarrow's words for what is no Parquet, or was cut off
                raise StoreError(f"{file}: not a Parquet file, or damaged; the step must be recomputed") from error
        self.steps_read += 1
        return True


def newest_with_tokens(lab: Lab, run: str, last: int) -> int:
    """The newest step up to `last` that has tokens: in a pack, which keeps those of some steps, an earlier one."""
    packed = lab.source(run).packed
    return max((step for step in packed.token_steps if step <= last), default=last) if packed else last


def newest_rollouts(lab: Lab, run: str, step: int, count: int = 6) -> pd.DataFrame:
    """Rollouts of one training step, one of each group in turn: group, rollout, prompt, answer, text, reward, correct,
    polarity, length (tokens), truncated, kept, base_advantage, advantage (mean over its tokens)."""
    return lab.step(run, step).df(
        'WITH per AS (SELECT "group", rollout, avg(advantage) AS advantage FROM tokens '
        "WHERE run = $run AND step = $step AND split = 'train' GROUP BY ALL) "
        'SELECT r."group", r.rollout, g.prompt, g.answer, r.text, r.reward, r.correct, r.polarity, r.length, '
        "r.truncated, r.kept, r.base_advantage, per.advantage FROM rollouts r "
        'JOIN groups g ON g.run = r.run AND g.step = r.step AND g.split = r.split AND g."group" = r."group" '
        'LEFT JOIN per ON per."group" = r."group" AND per.rollout = r.rollout '
        "WHERE r.run = $run AND r.step = $step AND r.split = 'train' "
        'ORDER BY row_number() OVER (PARTITION BY r."group", r.correct ORDER BY r.rollout), r."group", r.rollout '
        "LIMIT $count",
        {"run": run, "step": step, "count": count},
    )


def _read_all(path: Path) -> Rows:
    with open_runs([path]) as lab:
        return {table: {row["step"]: _flat(row) for row in lab.rows(f"SELECT * FROM {table}")} for table in TABLES}


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    """Each trait as a column of its own; pyarrow gives maps as pairs, DuckDB as dicts."""
    for name in _MAPS:
        row.update((f"{name}.{trait}", value) for trait, value in dict(row.pop(name, None) or {}).items())
    return row


def _frames(rows: Rows, version: int) -> Curves:
    import pandas as pd

    def frame(by_step: dict[int, dict[str, Any]]) -> pd.DataFrame:
        ordered = [by_step[step] for step in sorted(by_step)]
        return pd.DataFrame(ordered) if ordered else pd.DataFrame({"step": []}, dtype="int64")

    metrics = frame(rows["metrics"])
    if len(metrics):
        mass = metrics["mass_positive"] + metrics["mass_negative"]
        metrics["mass_positive_share"] = (metrics["mass_positive"] / mass).where(mass > 0)
    return Curves(metrics, frame(rows["evals"]), version)
