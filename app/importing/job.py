"""An import on its way, and the report of what it took, what not, and why."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app import data, urls, widgets
from app.guard import guarded
from app.importing import report
from app.importing.preview import start
from app.importing.source import at_the_machine
from app.inert import inert_markdown
from app.words import count
from core.importers import jobs
from core.importers.jobs import Job

EVERY_S = 1.0


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
            if not (job.asked.origin or job.made.get("opened")) and at_the_machine():
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
    if info is None:
        widgets.verdict("The run that it made is not there any more: it was deleted, or the folder of runs is another.")
        return
    fresh = made.get("opened") or made.get("new_steps")
    widgets.verdict(_headline(made, inert_markdown(info.name)), "good" if fresh else "neutral")
    report.show(info)


def _headline(made: dict[str, Any], name: str) -> str:
    if made.get("opened"):
        return f"Opened **{name}**."
    label, steps = inert_markdown(made.get("label", "")), int(made.get("new_steps") or 0)
    if not steps:
        return f"Nothing new for **{name}**: its files hold what was imported before."
    what = f"{count(steps, 'step')} new or with new rollouts" if made.get("followed") else count(steps, "step")
    return f"**{name}**: {count(int(made.get('taken') or 0), 'rollout')} of {what}, from {label}."
