"""Several runs as one: a bar, the time left, what runs and what waits; and a page that follows what they write.

Live and Compare share this; `core.runs.progress` has the arithmetic, which the terminal shares too.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path

import streamlit as st

from app import data
from app.guard import guarded
from app.inert import inert_markdown
from app.words import count, duration
from core.runs import RunInfo
from core.runs.progress import WORKING, Progress, progress
from core.runs.timing import estimate_of
from core.store import fingerprint

EVERY_S = 2.0
"""Seconds between looks at the folders, while something trains."""
MOST_NAMED = 3


def family(infos: Sequence[RunInfo]) -> list[RunInfo]:
    """These runs and all others of their experiments, in the order in which they were made."""
    chosen = {info.id for info in infos}
    experiments = {info.experiment for info in infos if info.experiment}
    every = {info.id: info for info in [*data.runs(), *infos] if info.id in chosen or info.experiment in experiments}
    return sorted(every.values(), key=lambda info: (info.created, info.id))


def of_experiment(experiment: str | None) -> list[RunInfo]:
    """Its runs, in the order in which they were made; none without an experiment."""
    found = [info for info in data.runs() if experiment and info.experiment == experiment]
    return sorted(found, key=lambda info: (info.created, info.id))


def telling(runs: Sequence[RunInfo], most: int) -> list[RunInfo]:
    """The runs of an experiment that tell most now: those that train, then the newest of each method, then others. All
    where there are few; of many, those that wait come only where none has begun. In the order in which they were made.
    """
    if len(runs) <= most:
        return list(runs)
    begun = [info for info in runs if info.step or info.state in WORKING]
    if not begun:
        return list(runs[:most])
    methods: set[str] = set()
    ranked: list[tuple[int, int, RunInfo]] = []
    for age, info in enumerate(reversed(begun)):
        place = 0 if info.state in WORKING else 1 if info.label not in methods else 2
        methods.add(info.label)
        ranked.append((place, age, info))
    chosen = {info.id for _, _, info in sorted(ranked, key=lambda one: one[:2])[:most]}
    return [info for info in runs if info.id in chosen]


def show(infos: Sequence[RunInfo]) -> None:
    """One bar and one ETA over all these runs, and in words which run, wait, are done or ended early."""
    now = progress(infos, _estimate)
    left = f" · about {duration(now.eta_s)} left" if now.eta_s else ""
    names = {info.experiment_name for info in infos}
    name = names.pop() if len(names) == 1 else ""
    title = f"**{inert_markdown(name)}**" if name else f"**{count(len(infos), 'run')}**"
    st.progress(now.share, text=f"{title} · {len(now.finished)} of {count(len(infos), 'run')} done{left}")
    st.caption(_words(now))


def follow(infos: Sequence[RunInfo]) -> None:
    """The bar of these runs' experiments, kept up to date; when one of `infos` has written something new, the whole
    page is drawn again. Nothing where none of them lives.
    """
    if not any(info.live for info in family(infos)):
        return
    ids = [info.id for info in infos]
    drawn: list[Hashable] = []

    def look() -> None:
        now = [info for run in ids if (info := data.run(run))]
        mark = written(now)
        every = family(now)
        if drawn and (drawn[0] != mark or not any(info.live for info in every)):
            st.rerun()
        drawn[:] = [mark]
        show(every)

    st.fragment(lambda: guarded(look), run_every=EVERY_S)()


def written(infos: Sequence[RunInfo]) -> Hashable:
    """Changes when one of the runs has a new step on the disk or is in another state."""
    return tuple((info.id, info.state) for info in infos), fingerprint([info.path for info in infos])


def _words(now: Progress) -> str:
    running = [f"**{inert_markdown(info.name)}** ({_doing(info)})" for info in now.working[:MOST_NAMED]]
    pieces = [f"Now: {', '.join(running)}"] if running else []
    if not running and now.queued:
        pieces.append(inert_markdown(now.queued[0].message) or "waiting for its turn")
    if now.queued:
        pieces.append(f"{count(len(now.queued), 'run')} queued: {_names(now.queued)}")
    if now.short:
        pieces.append(f"ended early: {_names(now.short, states=True)}")
    return " · ".join(pieces)


def _doing(info: RunInfo) -> str:
    if info.state == "loading":
        return inert_markdown(info.message) or "loading"
    step = f"step {info.step} of {info.total}"
    return f"stopping, {step}" if info.state == "stopping" else step


def _names(infos: Sequence[RunInfo], states: bool = False) -> str:
    names = [
        inert_markdown(info.name) + (f" ({info.state} at step {info.step})" if states else "")
        for info in infos[:MOST_NAMED]
    ]
    return ", ".join(names) + (f" and {len(infos) - MOST_NAMED} more" if len(infos) > MOST_NAMED else "")


@st.cache_data(ttl=60.0, max_entries=256, show_spinner=False)
def _estimate(path: Path) -> float | None:
    return estimate_of(path)
