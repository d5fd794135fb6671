"""The whole answer of a SQL statement as a file: every row, with texts and numbers as the store has them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import streamlit as st

from app import downloads
from app.guard import guarded
from app.inert import inert_markdown
from app.words import size
from core.runs import RunInfo
from core.store.errors import StoreError
from core.store.sql import query_file

SECONDS, MEMORY, MOST_BYTES = 60.0, "512MB", 200 * 2**20
"""What the query of a file may take, and the most that the browser is handed."""
MADE = "sql:file"
"""What the session keeps: the statement, the runs and the form, and the file's contents or why there are none."""


def menu(infos: list[RunInfo], statement: str) -> None:
    """A small menu that makes the file and then offers it."""
    st.fragment(lambda: guarded(lambda: _menu(infos, statement)))()


def _menu(infos: list[RunInfo], statement: str) -> None:
    with st.container(horizontal=True, horizontal_alignment="right"):
        place = st.popover(
            "", type="tertiary", icon=":material/download:", key="download:sql", on_change="rerun",
            help="Download every row of the answer",
        )  # fmt: skip
    if not place.open:
        return
    with place:
        st.caption("Every row, whatever the limit: the statement runs again, for up to a minute.")
        with st.container(horizontal=True, gap="small"):
            asked = [form for form in downloads.FORMS if st.button(form, key=f"file:{form}")]
        runs = tuple(info.id for info in infos)
        if asked:
            with st.spinner("Asking the store…"):
                st.session_state[MADE] = ((statement, runs), asked[0], _made(infos, statement, asked[0]))
        about, form, made = st.session_state.get(MADE, (None, "", ""))
        if about == (statement, runs):
            _offer(form, made)


def _made(infos: list[RunInfo], statement: str, form: str) -> bytes | str:
    """The file's contents, or the sentence that says why there are none. Of a CSV no spreadsheet runs a text."""
    with tempfile.TemporaryDirectory(prefix="advantage-lab-") as scratch:
        out = Path(scratch) / f"answer.{form.lower()}"
        try:
            query_file([info.path for info in infos], statement, out, SECONDS, MEMORY, max_bytes=MOST_BYTES, safe=True)
        except StoreError as error:
            return str(error)
        return out.read_bytes()


def _offer(form: str, made: bytes | str) -> None:
    if isinstance(made, str):
        st.error(
            f"{inert_markdown(made[:1].upper() + made[1:])}. `python -m core sql … -o FILE` has wider limits.",
            icon=":material/error:",
        )
        return
    name = f"{downloads.file_name('sql')}.{form.lower()}"
    st.download_button(
        f"Save {form}, {size(len(made))}", made, name, downloads.FORMS[form][1], key="file:save",
        icon=":material/save:", on_click="ignore",
    )  # fmt: skip
