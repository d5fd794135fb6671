"""Runs that were imported: what of them was taken, and the button that brings them up to date."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from app import data, urls
from app.importing import report
from app.importing.preview import start
from app.importing.source import at_the_machine
from app.importing.told import manifest_of, origin_of, told
from app.inert import inert_markdown
from app.words import age, count
from core.importers.jobs import Asked
from core.importers.manifest import Manifest
from core.runs import RunInfo

SHOWN = 12


def show() -> None:
    """The newest of them."""
    imported = [info for info in data.runs() if info.imported and not info.example]
    if not imported:
        return
    st.subheader("Imported before", anchor=False)
    seen: set[tuple[str, str]] = set()
    for info in imported[:SHOWN]:
        manifest = manifest_of(info)
        newest = manifest is not None and (manifest.format, manifest.source) not in seen
        if manifest is not None:
            seen.add((manifest.format, manifest.source))
        _row(info, manifest, newest)
    if len(imported) > SHOWN:
        urls.link("runs", f"{count(len(imported) - SHOWN, 'more run')} among all runs", find="imported")


def chosen() -> None:
    """The report of the run that the address names."""
    wanted = urls.param("run")
    if not wanted:
        return
    info = data.run(wanted)
    if info is None:
        st.warning(f"There is no run “{inert_markdown(wanted[:80])}” in this folder.")
    elif not info.imported:
        st.caption("The run of this address was trained by the lab, not imported: the other pages show it.")
    else:
        with st.container(border=True):
            st.subheader(inert_markdown(info.name), anchor=False)
            report.show(info)


def _row(info: RunInfo, manifest: Manifest | None, newest: bool) -> None:
    about = [told(info)]
    if manifest is not None:
        size = f"{count(manifest.steps, 'step')}, {count(manifest.rollouts, 'rollout')}"
        about = [f"{told(info)} · {size} · {age(manifest.imported)}", inert_markdown(manifest.source)]
    elif sent := origin_of(info):
        about = [f"{told(info)} · {count(info.step, 'step')} · {age(sent.opened)}"]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        lines = "  \n".join(f":small[:gray[{line}]]" for line in about)
        st.markdown(f"**{inert_markdown(info.name)}**  \n{lines}", width="stretch")
        if manifest is not None and newest and _there(info, manifest):
            st.button(
                "Import again", key=f"again:{info.id}", icon=":material/refresh:", type="tertiary", on_click=start,
                args=(Asked(manifest.source, manifest.format),), help="What is new in the files joins the run",
            )  # fmt: skip
        st.button(
            "What was taken", key=f"taken:{info.id}", icon=":material/fact_check:", type="tertiary",
            on_click=urls.set_params, kwargs={"run": info.id, "job": None},
        )  # fmt: skip
        urls.link("tokens", "Tokens", icon=":material/grid_on:", run=info.id)


def _there(info: RunInfo, manifest: Manifest) -> bool:
    """Whether its files are still on this machine, so that it can be brought up to date."""
    if info.packed or not at_the_machine():
        return False
    try:
        path = Path(manifest.source)
        return path.is_absolute() and path.exists()
    except (OSError, ValueError):
        return False
