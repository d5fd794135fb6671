"""How far several runs have come together: one bar, one time left, and which of them run, wait or have ended."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from core.runs.folders import RunInfo
from core.runs.timing import estimate_of

WORKING = ("loading", "running", "stopping")


@dataclass(frozen=True)
class Progress:
    """`done` of `total` steps over all runs; a run that stopped short or failed counts only the steps that it did.

    `eta_s` is the seconds until all have ended, one after the other; None where nothing says how long a step takes,
    0 where all have ended.
    """

    done: int
    total: int
    eta_s: float | None
    working: tuple[RunInfo, ...]
    queued: tuple[RunInfo, ...]
    finished: tuple[RunInfo, ...]
    short: tuple[RunInfo, ...]
    """Stopped or failed."""

    @property
    def share(self) -> float:
        """Of the steps, in [0, 1]."""
        return min(1.0, self.done / self.total) if self.total else 0.0

    @property
    def live(self) -> bool:
        return bool(self.working or self.queued)


def progress(infos: Sequence[RunInfo], estimate: Callable[[Path], float | None] = estimate_of) -> Progress:
    """The progress of these runs. `estimate` says how long a whole run takes, where none of them has a pace yet."""

    def those(*states: str) -> tuple[RunInfo, ...]:
        return tuple(info for info in infos if info.state in states)

    return Progress(
        done=sum(info.step for info in infos),
        total=sum(info.total if info.live or info.state == "finished" else info.step for info in infos),
        eta_s=_eta(infos, estimate),
        working=those(*WORKING),
        queued=those("queued"),
        finished=those("finished"),
        short=those("stopped", "failed"),
    )


def _eta(infos: Sequence[RunInfo], estimate: Callable[[Path], float | None]) -> float | None:
    """What each says of itself; else its steps at the pace of its method's other runs, or of all of them."""
    total = 0.0
    for info in infos:
        if not info.live:
            continue
        left = info.eta_s
        if left is None:
            pace = _pace(infos, info.label)
            left = estimate(info.path) if pace is None else pace * (info.total - info.step)
        if left is None:
            return None
        total += left
    return total


def _pace(infos: Sequence[RunInfo], label: str) -> float | None:
    """Seconds a step, the median over the runs of this method, or of all where it has none."""
    every = [(info.label, info.step_s) for info in infos if info.step_s]
    paces = [pace for of, pace in every if of == label] or [pace for _, pace in every]
    return statistics.median(paces) if paces else None
