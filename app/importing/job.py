"""An import on its way, and the report of what it took, what not, and why."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pandas as pd
import streamlit as st

from app import data, urls, widgets
from app.guard import guarded
from app.importing.preview import start
from app.inert import inert_markdown, visible
from app.words import count, share
from core.importers import jobs
from core.importers.jobs import Job

EVERY_S = 1.0
MOST_NOTES = 50
LINKS = {
    "tokens": ("Open in Tokens", ":material/grid_on:"),
    "live": ("Live", ":material/monitor_heart:"),
    "polarity": ("Polarity", ":material/exposure:"),
    "favorability": ("Favorability", ":material/star:"),
    "whatif": ("What if…", ":material/alt_route:"),
    "compare": ("Compare", ":material/stacked_line_chart:"),
}


def show(job_id: str) -> None:
    """The import that the address names, kept up to date while it lives."""
    job = jobs.read(data.root(), job_id)
    if job is None:
        st.warning(f"There is no import “{inert_markdown(job_id[:40])}” any more; its run, if it made one, is below.")
        return
    if not job.live:
        jobs.settle(data.root(), job)
        _ended(job)
        return

    def look() -> None:
        now = jobs.read(data.root(), job_id)
        if now is None or not now.live:
            data.refresh()
            st.rerun()
        _running(now)

    with st.container(border=True):
        st.fragment(lambda: guarded(look), run_every=EVERY_S)()


def elsewhere() -> None:
    """Imports that run while the address names none."""
    for job in jobs.running(data.root()):
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"An import of {_what(job)} is running.", width="stretch")
            st.button(
                "Show it", key=f"show:{job.id}", on_click=urls.set_params, kwargs={"job": job.id}, type="tertiary"
            )


def _what(job: Job) -> str:
    return f"“{inert_markdown((job.asked.origin or job.asked.path)[-80:])}”"


def _running(job: Job) -> None:
    text, part = f"Starting to import {_what(job)}", 0.0
    if job.doing == "reading":
        text = f"Reading {_what(job)}: {count(job.done, 'rollout')} so far"
    elif job.doing == "writing" and job.of:
        text, part = f"Writing {_what(job)}: step {job.done} of {job.of}", min(1.0, job.done / job.of)
    st.progress(part, text=text)
    st.button(
        "Stop", key="import:stop", icon=":material/stop_circle:", type="tertiary", on_click=jobs.stop,
        args=(data.root(), job.id), help="Nothing of it stays; runs that were there before stay as they are",
    )  # fmt: skip


def _ended(job: Job) -> None:
    with st.container(border=True):
        if job.state == "done":
            _report(job)
        elif job.state == "stopped":
            widgets.verdict(f"The import of {_what(job)} was stopped; nothing of it stays.")
        else:
            widgets.verdict(inert_markdown(job.error), "bad")
        with st.container(horizontal=True, gap="small"):
            if not job.asked.origin:
                label = "Import again" if job.state == "done" else "Try again"
                st.button(
                    label, key="import:again", icon=":material/refresh:", on_click=start, args=(job.asked,),
                    help="Of a run that its trainer still writes: what is new joins it",
                )  # fmt: skip
            st.button("Import something else", key="import:other", on_click=urls.set_params, kwargs={"job": None},
                      type="tertiary")  # fmt: skip


def _report(job: Job) -> None:
    made, run = job.made, str(job.made.get("id", ""))
    if (info := data.run(run)) is None:  # the list may be a second old
        data.refresh()
        info = data.run(run)
    name = inert_markdown(info.name if info else run)
    if made.get("opened"):
        widgets.verdict(f"Opened **{name}**.", "good")
        _links(run)
        return
    widgets.verdict(_headline(made, name), "good" if made.get("new_steps") else "neutral")
    _links(run)
    if made.get("new_steps"):
        st.markdown(inert_markdown(made.get("sentence", "")))
        _fits(made.get("fits") or [])
    if lacking := made.get("lacking"):
        st.caption(f"Not in the files: {inert_markdown('; '.join(lacking))}. Views that need it say so.")
    _reasons(made)
    st.download_button(
        "The report", lambda: json.dumps(made, indent=1).encode(), "import.json", "application/json",
        key="import:report", icon=":material/download:", type="tertiary", on_click="ignore",
    )  # fmt: skip


def _headline(made: dict[str, Any], name: str) -> str:
    label, steps = inert_markdown(made.get("label", "")), int(made.get("new_steps") or 0)
    if not steps:
        return f"Nothing new for **{name}**: its files hold what was imported before."
    what = f"{count(steps, 'step')} new or with new rollouts" if made.get("followed") else count(steps, "step")
    return f"**{name}**: {count(int(made.get('taken') or 0), 'rollout')} of {what}, from {label}."


def _links(run: str) -> None:
    with st.container(horizontal=True, gap="small"):
        for page, (label, icon) in LINKS.items():
            urls.link(page, label, icon=icon, run=run)


def _fits(fits: list[dict[str, Any]]) -> None:
    """How near each convention comes to the imported advantages."""
    if not fits:
        return
    with st.expander(f"How near each of {len(fits)} conventions comes", icon=":material/straighten:"):
        rows = [
            {
                "convention": visible(fit["label"]),
                "rollouts that agree": share(fit["within"]),
                "mean difference": fit["mean"],
                "largest": fit["largest"],
            }
            for fit in fits
        ]
        numbers = {name: st.column_config.NumberColumn(format="%.3g") for name in ("mean difference", "largest")}
        st.dataframe(pd.DataFrame(rows), hide_index=True, height="content", column_config=numbers)


def _reasons(made: dict[str, Any]) -> None:
    """Rows that were not taken, and what else there is to say of the files."""
    refused, notes = made.get("refused") or {}, made.get("notes") or []
    if refused:
        rows = sum(refused.values())
        with st.expander(f"{count(rows, 'row')} not taken, and why", icon=":material/rule:", expanded=True):
            st.markdown("\n".join(_table(refused, made.get("examples") or {})))
    if notes:
        with st.expander(
            f"{count(len(notes), 'remark')} on the files", icon=":material/info:", expanded=len(notes) < 4
        ):
            st.markdown("\n".join(f"- {inert_markdown(note)}" for note in notes[:MOST_NOTES]))
            if len(notes) > MOST_NOTES:
                st.caption(f"The report has the other {len(notes) - MOST_NOTES}.")


def _table(refused: dict[str, int], examples: dict[str, str]) -> Iterator[str]:
    yield from ("| reason | rows | first |", "|:--|--:|:--|")
    for reason, rows in sorted(refused.items(), key=lambda item: -item[1]):
        yield f"| {inert_markdown(reason)} | {rows:,} | {inert_markdown(examples.get(reason, ''))} |"
