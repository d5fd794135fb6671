"""Queries whose rows each belong to one step, kept up to date while a run grows.

A live run of 2,000 steps is 2,000 files a table: reading them all takes a second, reading the one new step a few
milliseconds. A `ByStep` remembers what it has read and asks only for steps that are new, or that a resume wrote anew.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from core.store.files import identity, settled

if TYPE_CHECKING:
    import pandas as pd

    from core.store.open import Lab, StepLab

AT_ONCE = 16
"""More unseen steps than this are read in one query over the whole run."""


class ByStep:
    """The rows of one query over one run, by step. Safe to share between threads; treat the frame as read-only.

    `query(lab, run)` must give the same rows for a step whether it sees the whole run or that step alone, in a frame
    with a column `step`, ordered by it.
    """

    def __init__(self, query: Callable[[Lab | StepLab, str], pd.DataFrame]) -> None:
        self._query = query
        self._lock = threading.Lock()
        self._sealed: object = None
        self._seen: dict[int, object] = {}
        self._frame: pd.DataFrame | None = None
        self.full_reads = 0
        """Times that the whole run was read."""

    def read(self, lab: Lab, run: str) -> pd.DataFrame:
        """The rows of all steps that `lab` shows."""
        import pandas as pd

        source = lab.source(run)
        with self._lock:
            sealed = (settled(source.path), source.sealed_steps)
            here = {step: identity(folder) for step, folder in source.live.items()}
            fresh = [step for step, mark in here.items() if self._seen.get(step) != mark]
            gone = self._seen.keys() - here.keys()
            if self._frame is None or sealed != self._sealed or len(fresh) > AT_ONCE:
                self._frame = self._query(lab, run)
                self.full_reads += 1
            elif fresh or gone:
                kept = self._frame[~self._frame["step"].isin([*fresh, *gone])]
                parts = [self._query(lab.step(run, step), run) for step in sorted(fresh)]
                parts = [part for part in (kept, *parts) if len(part)]
                joined = pd.concat(parts, ignore_index=True) if parts else kept
                self._frame = joined.sort_values("step", kind="stable", ignore_index=True)
            self._sealed, self._seen = sealed, here
            return self._frame
