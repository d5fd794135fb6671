"""Which runs to compare: whole experiments and single runs, in the address."""

from __future__ import annotations

import streamlit as st

from app import data, urls, widgets
from app.inert import inert_markdown, visible
from app.words import count
from core.runs import RunInfo

MOST = 6
"""Single runs at most; experiments come whole."""


def runs() -> list[RunInfo]:
    """Experiments and runs from the URL; without a choice the newest experiment, or the two newest runs."""
    infos = {info.id: info for info in data.runs()}
    if not infos:
        widgets.empty_state(
            "There is no run yet to compare. The **Quick start** trains three methods on the same prompts.",
            "runs", "Go to the Quick start",
        )  # fmt: skip
        return []
    members = _experiments(infos)
    experiments = urls.list_param("experiment", list(members))
    chosen = urls.list_param("run", list(infos))
    if not experiments and not chosen:
        experiments, chosen = _default(infos, members)
        urls.set_params(experiment=experiments, run=chosen)
    if len(chosen) > MOST:
        st.warning(f"{len(chosen)} runs are named in the address; the first {MOST} are shown.")
        chosen = chosen[:MOST]
    left, right = st.columns(2) if members else (None, st.container())
    if left is not None:
        experiments = left.multiselect(
            "Experiments", list(members), placeholder="All runs of an experiment", wrap=True,
            format_func=lambda key: f"{visible(members[key][0].experiment_name or key)} · "
            f"{count(len(members[key]), 'run')}",
            **urls.bound("experiment", experiments),
        )  # fmt: skip
    labels = widgets.run_labels(list(infos.values()))
    chosen = right.multiselect(
        "Runs", list(infos), placeholder="Two to six runs", max_selections=MOST, format_func=labels.__getitem__,
        wrap=True, **urls.bound("run", chosen),
    )  # fmt: skip
    if not experiments and not chosen:
        widgets.empty_state("Choose two or more runs above, or a whole experiment.")
    for text in dict.fromkeys(members[key][0].look_for for key in experiments):
        if text:
            st.caption(f"What to look for: {inert_markdown(text)}")
    picked = [run.id for key in experiments for run in members[key]] + list(chosen)
    return [infos[key] for key in dict.fromkeys(picked)]


def begun(infos: list[RunInfo], have: set[str]) -> list[RunInfo]:
    """Those with a step; where none has one, what would fill the page."""
    waiting = [info for info in infos if info.id not in have]
    if infos and len(waiting) == len(infos):
        widgets.empty_state("None of these runs has a step yet.", "runs", "See what they wait for")
    elif odd := [info for info in waiting if info.state != "queued"]:  # what waits stands beside the bar
        names = ", ".join(f"**{inert_markdown(info.name)}** ({info.state})" for info in odd)
        st.caption(f"No step yet, so left out: {names}.")
    return [info for info in infos if info.id in have]


def _experiments(infos: dict[str, RunInfo]) -> dict[str, list[RunInfo]]:
    """The runs of each experiment of several, in the order in which they were made."""
    members: dict[str, list[RunInfo]] = {}
    for info in reversed(infos.values()):
        if info.experiment:
            members.setdefault(info.experiment, []).append(info)
    return {key: runs for key, runs in members.items() if len(runs) > 1}


def _default(infos: dict[str, RunInfo], members: dict[str, list[RunInfo]]) -> tuple[list[str], list[str]]:
    """(experiments, runs) for a reader who has chosen nothing."""
    started = [info for info in infos.values() if info.step]
    newest = next(iter(started or infos.values()))
    if newest.example:  # nothing of the reader's own: all that is shipped
        shipped = [info for info in infos.values() if info.example]
        whole = [key for key, runs in members.items() if any(info.example for info in runs)]
        return whole, [info.id for info in shipped if info.experiment not in whole][:MOST]
    if newest.experiment in members:
        return [newest.experiment], []
    whole = [info.id for info in started if info.state != "failed"]
    return [], (whole if len(whole) > 1 else [info.id for info in started])[:2] or [newest.id]
