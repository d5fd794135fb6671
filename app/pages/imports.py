"""Import: rollouts that another trainer wrote become a run that every page opens."""

from __future__ import annotations

import shutil
from pathlib import Path

import pandas as pd
import streamlit as st

from app import data, downloads, dropped, importing, urls, widgets
from app.guard import guarded
from app.inert import inert_markdown
from app.views import imports as view
from app.words import age, count
from core.exporters.bundle import BundleError, is_bundle, open_bundle
from core.importers.base import Format, Found, ImportFailed
from core.importers.fit import CONVENTIONS
from core.importers.formats import all_formats, find
from core.importers.manifest import read_manifest
from core.runs import RunInfo

JOB, SEEN, FAILED, DROPPED = "imports:job", "imports:seen", "imports:failed", "imports:dropped"
"""What the session keeps: the running import, what was looked at, why the last one failed, what was dropped."""
WAYS = {"files": "Drop files", "folder": "Drop a folder", "path": "On this machine"}
MOST_MB = 500
"""Of one dropped file; what is larger is imported from where it lies."""
EVERY_S = 0.5
LISTED = 10


def page() -> None:
    widgets.page_header(
        "What do rollouts that another trainer wrote have to tell?",
        "Files of TRL, verl, prime-rl and others become a run that every page opens, and so does a run that somebody "
        "sent as one file. Advantages are computed again, and which convention the trainer's own ones follow is said.",
    )
    if JOB in st.session_state:
        st.fragment(lambda: guarded(_follow), run_every=EVERY_S)()
        return
    if failed := st.session_state.pop(FAILED, ""):
        st.error(inert_markdown(failed), icon=":material/error:")
    infos = [info for info in data.runs() if info.imported]
    wanted = urls.param("run")
    chosen = next((info for info in infos if info.id == wanted), None)
    if wanted and any(info.id == wanted for info in data.runs()) and chosen is None:
        st.caption("The run of this address was trained by the lab, not imported: the other pages show it.")
    elif wanted and chosen is None:
        st.warning(f"There is no imported run “{inert_markdown(wanted[:80])}” in this folder.")
    if chosen:
        with st.container(border=True):
            _report(chosen)
    with st.container(border=True):
        _choose()
    _list([info for info in infos if info is not chosen])


def _follow() -> None:
    """The bar of the import on its way; at its end the whole page is drawn again, with the result."""
    job: importing.Job = st.session_state[JOB]
    now = importing.state(job)
    if now.running:
        share, words = view.progress(now.what, now.done, now.of)
        st.progress(share, text=f"**{inert_markdown(job.source)}** · {words}")
        st.caption("It goes on when you look at other pages, and lies among the runs as soon as it is whole.")
        st.button("Cancel", icon=":material/close:", on_click=_cancel)
        return
    _forget(job)
    if now.made:
        urls.set_params(run=str(now.made["id"]), path=None)
        fresh = now.made["new_steps"] or not now.made["followed"]
        st.toast("Imported." if fresh else "There is nothing new in it.", icon=":material/check:")
    else:
        st.session_state[FAILED] = now.error
    data.refresh()
    st.rerun()


def _cancel() -> None:
    _forget(st.session_state[JOB])
    st.toast("The import was ended; nothing of it is left.", icon=":material/close:")


def _forget(job: importing.Job) -> None:
    importing.finish(job)
    for key in (JOB, SEEN, DROPPED):
        st.session_state.pop(key, None)


def _choose() -> None:
    """What to import: files, a folder, or a path of this machine; then what was recognised, and the button."""
    way = widgets.choice("Where from", list(WAYS), param="from", default="files", format_func=WAYS.__getitem__)
    if way == "path":
        _path()
    else:
        _drop(way)
    with st.expander("Which files are understood", icon=":material/help:"):
        st.markdown(
            "\n".join(f"- **{inert_markdown(one.label)}**: {inert_markdown(one.looks_like)}" for one in _forms())
        )
        st.caption(
            "A format is recognised by what is in the files. Pickles (.pt, .pkl) are refused, since reading one runs "
            "code that its maker put there."
        )


def _drop(way: str) -> None:
    several = "directory" if way == "folder" else True
    files = st.file_uploader(
        f"Drop rollout files here, or a run sent as one file (.zip); up to {MOST_MB} MB each",
        accept_multiple_files=several, key=f"imports:{way}", max_upload_size=MOST_MB,
    )  # fmt: skip
    if not files:
        st.caption("Larger ones, and those that a trainer still writes, are imported from where they lie.")
        return
    mark = tuple(sorted((file.file_id, file.name) for file in files))
    kept = st.session_state.get(DROPPED)
    if kept is None or kept[0] != mark:
        if kept is not None:
            shutil.rmtree(kept[1], ignore_errors=True)
        try:
            kept = st.session_state[DROPPED] = (mark, *dropped.keep(files))
        except (ValueError, OSError) as error:
            st.error(inert_markdown(error), icon=":material/error:")
            return
    _, scratch, source = kept
    if is_bundle(source):
        _bundle(source, scratch)
    else:
        _recognised(source, scratch, source.stem if source != scratch else "dropped files")


def _path() -> None:
    """A path of the machine that the lab runs on, for those who sit at it."""
    if st.context.ip_address is not None:
        widgets.empty_state(
            "Files of the lab's own machine are imported by those who sit at it. Drop yours here, or ask them to run "
            "`python -m core import PATH`."
        )
        return
    path = st.text_input(
        "File or folder on this machine",
        placeholder="/data/my-run/completions",
        **urls.bound("path", urls.param("path")),
    )
    st.caption("A folder that a trainer still writes to can be imported again: only what is new is added.")
    if st.button("Look", icon=":material/search:", disabled=not path):
        st.session_state[SEEN] = path
    if path and st.session_state.get(SEEN) == path:
        source = Path(path).expanduser()
        if is_bundle(source):
            _bundle(source, None)
        else:
            _recognised(source, None, source.stem)


def _bundle(source: Path, scratch: Path | None) -> None:
    st.markdown(f"**{inert_markdown(source.name)}** is an archive: a run that somebody sent as one file.")
    if not st.button("Open the run", type="primary", icon=":material/unarchive:"):
        return
    try:
        path = open_bundle(source, data.root())
    except BundleError as error:
        st.error(inert_markdown(error), icon=":material/error:")
        return
    if scratch:
        shutil.rmtree(scratch, ignore_errors=True)
        st.session_state.pop(DROPPED, None)
    data.refresh()
    st.success(f"**{inert_markdown(path.name)}** is among your runs. It can be looked at and compared, not resumed.")
    _links(path.name)


def _recognised(source: Path, scratch: Path | None, name: str) -> None:
    """What the files are, how to take them, and the button that begins."""
    form = _format()
    try:
        found = find(source) if form is None else all_formats()[form].sniff(source)
        if found is None:
            raise ImportFailed(f"{source.name}: nothing there looks like {form}")
    except (ImportFailed, OSError) as error:
        said = str(error).replace(f"{source}", source.name) if scratch else str(error)
        st.error(inert_markdown(said.partition(", which are ")[0]), icon=":material/error:")
        return
    st.markdown(f"Recognised: **{inert_markdown(all_formats()[found.format].label)}** in {_files(found)}.")
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        called = st.text_input("Name of the run", value=name[:80], max_chars=80, key=f"imports:name:{source}")
        convention = st.selectbox(
            "Advantages", [None, *CONVENTIONS], format_func=_convention, key="imports:convention",
            help="Under which convention they are computed again; the best is that of the trainer's own advantages",
        )  # fmt: skip
    tokenizer = ""
    if not scratch:
        tokenizer = st.text_input(
            "Tokenizer (only for files with token ids and no text)", key="imports:tokenizer",
            placeholder="the folder of the model that was trained, with its tokenizer.json",
        )  # fmt: skip
    st.button(
        "Import", type="primary", icon=":material/download:", key="imports:start", on_click=_start,
        args=(source, form, called, convention, tokenizer, scratch),
    )  # fmt: skip


def _format() -> str | None:
    forms = {one.name: one.label for one in _forms()}
    now = urls.choice_param("format", list(forms))
    return st.selectbox(
        "Format", [None, *forms], format_func=lambda name: forms.get(name, "Recognised by content"),
        **urls.bound("format", now),
    )  # fmt: skip


def _convention(name: str | None) -> str:
    return "The convention that fits best" if name is None else CONVENTIONS[name].label


def _files(found: Found) -> str:
    names = [inert_markdown(file.name) for file in found.files[:3]]
    return f"{count(len(found.files), 'file')} ({', '.join(names)}{', …' if len(found.files) > 3 else ''})"


def _start(
    source: Path, form: str | None, name: str, convention: str | None, tokenizer: str, scratch: Path | None
) -> None:
    """Callback: begin. A second press finds the import on its way."""
    if JOB in st.session_state:
        return
    try:
        st.session_state[JOB] = importing.start(
            data.root(),
            source,
            form=form,
            name=name.strip(),
            convention=convention,
            tokenizer=tokenizer.strip(),
            dropped=scratch,
        )
    except OSError as error:
        st.session_state[FAILED] = f"The import could not be started: {error.strerror or error}"


def _report(info: RunInfo) -> None:
    """What an imported run is, what it lacks, and where to look at it."""
    st.subheader(inert_markdown(info.name), anchor=False)
    manifest = read_manifest(info.path)
    if manifest is None:
        widgets.empty_state("This run does not say where it came from: its import.json is missing or damaged.")
        _links(info.id)
        return
    st.markdown(f"{view.taken(manifest)}, {age(manifest.imported)}.")
    st.markdown(inert_markdown(manifest.sentence))
    _links(info.id)
    source = Path(manifest.source)
    if source.is_absolute() and st.context.ip_address is None and source.exists():
        st.button(
            "Import again", icon=":material/sync:", key="imports:again", on_click=_start,
            args=(source, manifest.format, "", None, "", None), help="Adds what the trainer has written since",
        )  # fmt: skip
    _said("Not in the files; each view says what it lacks", view.lacking(manifest))
    _said("Not taken", view.refused(manifest))
    _said("To know", view.notes(manifest))
    table = view.fits(manifest)
    if len(table):
        with st.expander("Which convention fits the trainer's own advantages", icon=":material/straighten:"):
            st.caption(f"Compared on {count(manifest.compared, 'rollout')} that came with an advantage.")
            st.dataframe(table, hide_index=True, width="stretch")
            downloads.menu("conventions", key="imports-fits", frame=pd.DataFrame(map(vars, manifest.fits)))


def _said(title: str, lines: list[str]) -> None:
    if lines:
        st.markdown(f"**{title}**\n" + "\n".join(f"- {line}" for line in lines))


def _links(run: str) -> None:
    with st.container(horizontal=True, gap="small"):
        for name, label in (("live", "Curves"), ("tokens", "Tokens"), ("polarity", "Polarity"), ("whatif", "What if…")):
            urls.link(name, label, icon=":material/arrow_forward:", run=run)


def _list(infos: list[RunInfo]) -> None:
    if not infos:
        return
    st.subheader("Imported before", anchor=False)
    for info in infos[:LISTED]:
        with st.container(horizontal=True, gap="small", vertical_alignment="center"):
            about = f"{count(info.step, 'step')} · {age(info.created)}"
            st.markdown(f"**{inert_markdown(info.name)}** :small[:gray[{about}]]", width="stretch")
            urls.link("imports", "What was taken", icon=":material/fact_check:", run=info.id)
            urls.link("tokens", "Tokens", run=info.id)
    if len(infos) > LISTED:
        urls.link("runs", f"All {count(len(infos), 'imported run')}", find="imported")


def _forms() -> list[Format]:
    return list(all_formats().values())


if __name__ == "__main__":
    page()
