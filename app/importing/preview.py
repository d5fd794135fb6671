"""A look at what was chosen, how it is to be imported, and the button."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from app import actions, data, urls, widgets
from app.importing.source import Source, at_the_machine
from app.inert import inert_markdown, visible
from app.words import count, size
from core.importers import follow, jobs
from core.importers.base import ImportFailed
from core.importers.bundles import is_bundle
from core.importers.fit import CONVENTIONS
from core.importers.follow import Wishes
from core.importers.formats import all_formats
from core.importers.glimpse import Glimpse, glimpse
from core.importers.jobs import Asked
from core.importers.lab import LAB

BEST, AUTO = "best", "auto"
_SEEN = "import:seen"


def show(source: Source) -> None:
    """What was recognised, and what may be chosen about it."""
    if is_bundle(source.path):
        if why := _no_bundle(source.path):
            st.error(inert_markdown(why), icon=":material/error:")
            return
        st.markdown("A **run of another lab**: data alone, which every page opens and nothing can start.")
        _button("Open it", source, Asked(str(source.path)))
        return
    form = urls.choice_param("format", [AUTO, *all_formats()], AUTO)
    tokenizer = _tokenizer() or None
    seen = _look(source, None if form == AUTO else form, tokenizer)
    if isinstance(seen, str):
        seen = seen if source.job is None else seen.replace(str(source.path), source.name)  # not the copy's own place
        st.error(inert_markdown(seen), icon=":material/error:")
        _options(source, None, form)
        return
    _recognised(seen)
    asked = _options(source, seen, form)
    _again(source, seen, asked)
    _button("Import", source, asked)


def _no_bundle(path: Path) -> str:
    """Why a zip file is no run of another lab, by what it lists; "" where it may be one."""
    from core.exporters.bundle import BundleError
    from core.exporters.bundle.unpack import look

    try:
        look(path)
    except BundleError as error:
        return str(error)
    return ""


def _look(source: Source, form: str | None, tokenizer: str | None) -> Glimpse | str:
    """What is to be seen, or why nothing is; kept for as long as the choice is the same."""
    key = (str(source.path), source.look, form, tokenizer)
    kept: tuple[Any, Glimpse | str] | None = st.session_state.get(_SEEN)
    if kept is None or kept[0] != key:
        with st.spinner("Looking into the files…"):
            kept = key, _glimpse(source.path, form, tokenizer)
        st.session_state[_SEEN] = kept
    return kept[1]


def _glimpse(path: Path, form: str | None, tokenizer: str | None) -> Glimpse | str:
    try:
        return glimpse(path, form, Path(tokenizer).expanduser() if tokenizer else None)
    except ImportFailed as error:
        return str(error)
    except (OSError, ValueError) as error:  # a path that cannot be, a folder that may not be read
        return f"{path} cannot be read ({getattr(error, 'strerror', None) or error}): name a readable file or folder"


def _recognised(seen: Glimpse) -> None:
    files = count(len(seen.found.files), "file")
    names = ", ".join(inert_markdown(name) for name in seen.names)
    more = " …" if len(seen.found.files) > len(seen.names) else ""
    st.markdown(f"Recognised as **{inert_markdown(seen.label)}**: {files}, {size(seen.bytes)}.")
    st.caption(f"{names}{more}")
    if seen.lab:
        st.markdown(f"{LAB} beside them says that their advantages are the lab's own: **{inert_markdown(seen.lab)}**.")
    if seen.rows:
        table = pd.DataFrame([{name: _cell(value) for name, value in row.items()} for row in seen.rows])
        there = [name for name in table.columns if table[name].notna().any()]
        st.dataframe(table[there].rename(columns={"text": "response"}), hide_index=True, height="content")
    else:
        st.warning("The first files have no rollout that can be taken; the report of the import says why.")
    if seen.lacks:
        st.caption(f"Not in the first rollouts: {inert_markdown('; '.join(seen.lacks))}.")
    for note in seen.notes:
        st.caption(inert_markdown(note))


def _cell(value: Any) -> Any:
    return visible(value) if isinstance(value, str) else value


def _options(source: Source, seen: Glimpse | None, form: str) -> Asked:
    """The choices, all in the address."""
    left, right = st.columns(2)
    forms = {AUTO: "recognised by content", **{name: own.label for name, own in all_formats().items()}}
    left.selectbox("Format", list(forms), format_func=lambda name: visible(forms[name]), **urls.bound("format", form))
    lab = f"as {LAB} says: {seen.lab}" if seen and seen.lab else ""
    ways = {BEST: lab or "the one that fits best", **{name: own.label for name, own in CONVENTIONS.items()}}
    with right:
        convention = widgets.choice(
            "Advantages recomputed with", list(ways), param="convention", kind="select",
            format_func=lambda name: visible(ways[name]),
            help="Where the files hold advantages, every convention is held against them, and the report names the one "
            "that fits; the trainer's own stay beside the recomputed ones.",
        )  # fmt: skip
    with left:
        name = urls.param("name") or ""
        st.text_input("Name", max_chars=120, placeholder=visible(source.name)[:60], **urls.bound("name", name[:120]))
    tokenizer = _tokenizer()
    if tokenizer or (seen and seen.ids_alone and at_the_machine()):
        with right:
            st.text_input(
                "Tokenizer: the model's folder", placeholder="~/models/Qwen2.5-0.5B",
                help="On this machine. The files have token ids without texts; the model's tokenizer.json spells them.",
                **urls.bound("tokenizer", tokenizer),
            )  # fmt: skip
    called = name or (source.name if source.job else "")
    return Asked(
        path=str(source.path),
        format=None if form == AUTO else form,
        convention=None if convention == BEST else convention,
        name=called[:120] or None,
        tokenizer=tokenizer or None,
        origin=source.origin,
    )


def _tokenizer() -> str:
    """The folder of a tokenizer on the lab's machine, which only those who sit at it may name."""
    return (urls.param("tokenizer") or "").strip() if at_the_machine() else ""


def _again(source: Source, seen: Glimpse, asked: Asked) -> None:
    """That these files were imported before, where they were."""
    if source.job:
        return
    wishes = Wishes(asked.name, asked.convention, Path(asked.tokenizer).absolute() if asked.tokenizer else None)
    before = follow.find(data.root(), seen.found.format, source.path.resolve(), wishes)
    info = before and data.run(before.name)
    if info:
        st.info(
            f"These are in the run **{inert_markdown(info.name)}** already: importing again adds what is new to it.",
            icon=":material/history:",
        )  # fmt: skip


def _button(label: str, source: Source, asked: Asked) -> None:
    st.button(
        label, key="import:start", type="primary", icon=":material/download:", on_click=start, args=(asked, source.job)
    )


def start(asked: Asked, job: str | None = None) -> None:
    """Callback: start an import, and show how it goes."""
    try:
        urls.set_params(job=jobs.start(data.root(), asked, job))
    except (ImportFailed, OSError) as error:
        actions.flash(inert_markdown(error), "bad")
