"""What is to be imported: files or a folder that are dropped, or a path of the machine that the lab runs on."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from app import data, urls, widgets
from app.inert import inert_markdown, visible
from app.words import count, size
from core.importers import dropped, jobs
from core.importers.base import ImportFailed
from core.importers.dropped import LARGEST_MB, TOGETHER_MB, Kept
from core.importers.formats import all_formats
from core.importers.formats._look import ENDINGS

WAYS = {"files": "Drop files", "folder": "Drop a folder", "machine": "On this machine"}
_DROP, _LOOKED, _AGAIN = "import:drop", "import:looked", "import:look"


@dataclass(frozen=True)
class Source:
    """What was chosen."""

    path: Path
    name: str
    """What the run is called unless it gets a name. Foreign."""
    job: str | None = None
    """The folder of what was dropped."""
    origin: str | None = None
    """What the run says of where dropped files came from."""
    look: int = 0
    """Rises with each wish to look anew."""


def choose() -> Source | None:
    """Draw the ways; what was chosen, None before anything was."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        way = widgets.choice("Where they are", list(WAYS), param="way", format_func=WAYS.__getitem__)
        with st.popover("Which files?", type="tertiary", icon=":material/help:"):
            st.markdown(_formats())
    return _named() if way == "machine" else _dropped(way)


def _formats() -> str:
    forms = all_formats().values()
    lines = [f"- **{form.label}**: {inert_markdown(form.looks_like.replace('`', ''))}" for form in forms]
    return "\n".join([
        "They are known by what is in them. Whatever they lack stays empty, and each page says what it needs.", "",
        *lines, "- **A run of another lab**, packed as one `.zip` file", "",
        "Files are data here: nothing in them is run, and pickles are not opened.",
    ])  # fmt: skip


def _dropped(way: str) -> Source | None:
    folder = way == "folder"
    files: list[UploadedFile] = st.file_uploader(
        "A folder of rollouts" if folder else "Files of rollouts, or a run of another lab (.zip)",
        accept_multiple_files="directory" if folder else True,
        type=[ending.removeprefix(".") for ending in ENDINGS] if folder else None,
        key=f"import:{way}", max_upload_size=LARGEST_MB,
        help="What is larger, or still being written by its trainer, is named under “On this machine”.",
    )  # fmt: skip
    if not files:
        st.caption(
            f"Up to {LARGEST_MB} MB a file, {TOGETHER_MB} MB together. They stay on the machine that the lab runs on."
            + (f" Of a folder, files that end in {', '.join(ENDINGS)} are taken along." if folder else "")
        )
        return None
    ids = tuple(file.file_id for file in files)
    drop = st.session_state.get(_DROP)
    if drop is None or drop[0] != ids or not drop[1].is_dir():
        drop = (ids, *_keep(files))
        st.session_state[_DROP] = drop
    _, home, kept = drop
    if isinstance(kept, str):
        st.error(inert_markdown(kept), icon=":material/error:")
        return None
    _said(kept)
    return Source(kept.path, kept.name, home.name, f"{_short(kept.name)} (dropped)")


def _keep(files: list[UploadedFile]) -> tuple[Path, Kept | str]:
    """The import's folder, and what of the files is in it; or why nothing is."""
    home = data.root()
    try:
        home = jobs.new_folder(home)
        with st.spinner("Copying the files…"):
            every = [(file.name, file.size, file.getvalue) for file in files]
            return home, dropped.keep(every, home / jobs.FILES)
    except ImportFailed as error:
        return home, str(error)
    except OSError as error:
        return home, f"They cannot be copied to {home} ({error.strerror or error}): it needs room, and leave to write."


def _said(kept: Kept) -> None:
    more = []
    if kept.files == 1 and not kept.left_out and not kept.pickles:
        return
    if kept.left_out:
        more.append(f"{count(kept.left_out, 'file')} of other kinds left out")
    if kept.pickles:
        more.append(f"{count(kept.pickles, 'pickle')} not opened, since reading one runs what its maker put there")
    st.caption(
        f"{count(kept.files, 'file')} of “{inert_markdown(_short(kept.name))}”, {size(kept.bytes)}"
        + (f"; {', '.join(more)}" if more else "")
    )


def at_the_machine() -> bool:
    """Whether who looks sits at the machine that the lab runs on, and may name its files."""
    return st.context.ip_address is None


def _named() -> Source | None:
    """A path of this machine. A link fills it in; it is looked at once somebody says so."""
    if not at_the_machine():
        widgets.empty_state(
            "Files of the lab's own machine are imported by those who sit at it. Drop yours here, or ask them to run "
            "`python -m core import PATH`."
        )
        return None
    path, key = urls.param("path") or "", "url:path"
    st.session_state[key] = path

    def look() -> None:
        urls.set_params(path=st.session_state[key].strip())
        st.session_state[_LOOKED] = st.session_state[key].strip()
        st.session_state[_AGAIN] = st.session_state.get(_AGAIN, 0) + 1

    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.text_input(
            "A folder or file of rollouts", key=key, on_change=look, placeholder="~/output/completions",
            help="On the machine that the lab runs on. A run that its trainer still writes can be imported again and "
            "again: what is new joins it.",
        )  # fmt: skip
        st.button("Look inside", key="import:look-inside", icon=":material/search:", on_click=look, disabled=not path)
    if not path or st.session_state.get(_LOOKED) != path:
        return None
    there = Path(path).expanduser().absolute()
    return Source(there, there.stem, look=st.session_state.get(_AGAIN, 0))


def _short(name: str) -> str:
    name = visible(name)
    return name if len(name) <= 60 else name[:59] + "…"
