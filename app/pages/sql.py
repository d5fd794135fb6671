"""SQL: whatever the other pages did not think of."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

import pandas as pd
import streamlit as st

from app import answer_file, data, urls, widgets
from app.inert import inert_markdown
from app.theme import theme
from app.views import sql as view
from app.words import count, number
from core.runs import RunInfo
from core.store import Lab, StoreError, schema
from core.store.queries.ready import READY, ready, statement
from core.store.sql import query

ROWS = ("100", "1000", "10000")
SECONDS = ("5", "20", "60")
MEMORY, MOST_BYTES = "512MB", 32 * 2**20
"""What one query may hold, and what of it comes back."""
FIRST = "final-values"
"""The ready statement that a reader starts with."""
LINKED = 4000
"""Characters of the address that a statement may take."""
ONE = "one colour"
NO_CHART = {"x": None, "y": None, "by": None}
"""Another statement has other columns."""
TEXT, LOADED, LONG, ANSWER = "sql:text", "sql:loaded", "sql:long", "sql:answer"
"""What the session keeps: the editor, what was last put into it, a statement too long for the address, the answer."""

STYLE = "<style>.st-key-sql-text textarea { font-family: var(--st-code-font, monospace); font-size: .84rem }</style>"
HOW_CHART = """
The rows of the result as they are, in the order of the statement; nothing is averaged. Points are joined where x grows
from row to row within each colour.
"""


@dataclass(frozen=True)
class Answer:
    """What a statement gave: a table, or the sentence that says why not."""

    statement: str
    runs: tuple[str, ...]
    limit: int
    table: pd.DataFrame | None = None
    truncated: bool = False
    seconds: float = 0.0
    error: str = ""


def page() -> None:
    widgets.page_header(
        "What else do you want to know?",
        "Whatever the other pages did not think of: ask the store of these runs in SQL. It only reads, within limits "
        "of time, rows and memory.",
    )
    infos = widgets.runs_picker(most=12, start=urls.remembered("run"))
    if not infos:
        return
    lab, now = data.lab(infos), _now()
    left, right = st.columns([5, 3], gap="medium")
    with left:
        asked = _editor(now)
        rows, seconds = _limits()
    with right:
        _schema(lab)
    if asked:
        _run(infos, now, rows, seconds)
    _show(infos, now)


def _now() -> str:
    """The statement of the address, or of this session where it was too long for one."""
    chosen = ready(urls.choice_param("ready", [one.id for one in READY]))
    return urls.param("sql") or (statement(chosen) if chosen else st.session_state.get(LONG) or statement(ready(FIRST)))


def _editor(now: str) -> bool:
    """Draw the ready statements and the editor; whether Run was pressed."""
    same = next((one.id for one in READY if statement(one) == now), None)
    titles = {one.id: f"{one.area}: {one.title}" for one in READY}
    st.session_state["sql:ready"] = same
    st.selectbox(
        "Ready questions", list(titles), index=None, placeholder="Your own statement; choose a question to start from",
        format_func=titles.__getitem__, key="sql:ready", on_change=_load,
    )  # fmt: skip
    if same:
        st.caption(ready(same).answers)
    if st.session_state.get(LOADED) != now or TEXT not in st.session_state:
        st.session_state[LOADED] = st.session_state[TEXT] = now
    st.html(STYLE)
    with st.form("sql:form", border=False):
        st.text_area("Statement: one SELECT", key=TEXT, height=300, help="Ctrl+Enter runs it")
        with st.container(horizontal=True, vertical_alignment="center"):
            asked = st.form_submit_button("Run", type="primary", icon=":material/play_arrow:", on_click=_keep)
            st.caption("Ctrl+Enter. Nothing runs before you ask, not even what a link brought.", width="stretch")
    if len(quote(now)) > LINKED:
        st.caption(f"The statement takes more than {number(LINKED)} characters in an address: no link carries it.")
    return asked


def _load() -> None:
    st.session_state.pop(LONG, None)
    urls.set_params(ready=st.session_state["sql:ready"], sql=None, **NO_CHART)


def _keep() -> None:
    """Put what the editor holds into the address: a ready statement's name, or the text if it is short enough."""
    text = st.session_state[LOADED] = st.session_state[TEXT]
    same = next((one.id for one in READY if statement(one) == text.strip()), None)
    short = len(quote(text)) <= LINKED
    st.session_state[LONG] = None if same or short else text
    urls.set_params(ready=same, sql=text if short and not same else None, **NO_CHART)


def _limits() -> tuple[int, float]:
    with st.container(horizontal=True, gap="medium"):
        rows = widgets.choice("Rows at most", ROWS, param="rows", default="1000", format_func=lambda n: number(int(n)))
        seconds = widgets.choice("Seconds at most", SECONDS, param="seconds", default="20")
    return int(rows), float(seconds)


def _schema(lab: Lab) -> None:
    find = st.text_input(
        "Tables and columns", placeholder="Find: entropy, tokens, weight…", **urls.bound("find", urls.param("find", ""))
    )
    tables = {table: view.fields(lab.columns(table), table) for table in schema.TABLES}
    html = view.schema_html(tables, find, theme())
    with st.container(height=470, border=True):
        if html:
            st.html(html)
        else:
            st.caption(f"No table or column has “{inert_markdown(find[:60])}” in its name or meaning.")


def _run(infos: list[RunInfo], text: str, rows: int, seconds: float) -> None:
    """Ask, and keep the answer in the session. A click ends the query: telling the time is then refused."""
    place, told = st.empty(), -1

    def waiting(passed: float) -> None:
        nonlocal told
        if int(passed) > told:
            told = int(passed)
            place.info(f"Running for {told} s of at most {seconds:g} s. Any click on the page ends it.", icon="⏳")

    runs = tuple(info.id for info in infos)
    try:
        result = query(
            [info.path for info in infos], text, seconds, rows, MEMORY, max_bytes=MOST_BYTES, waiting=waiting
        )  # fmt: skip
        answer = Answer(text, runs, rows, view.frame(result), result.truncated, result.seconds)
    except StoreError as error:
        answer = Answer(text, runs, rows, error=str(error))
    place.empty()
    st.session_state[ANSWER] = answer


def _show(infos: list[RunInfo], now: str) -> None:
    answer = st.session_state.get(ANSWER)
    if answer is None or answer.statement != now or answer.runs != tuple(info.id for info in infos):
        widgets.empty_state("The rows of the statement appear here when you press **Run**.")
    elif answer.error:
        st.error(inert_markdown(answer.error[:1].upper() + answer.error[1:]), icon=":material/error:")
    elif answer.table.empty:
        older = [table for table in view.NEWER if table in answer.statement.lower()]
        why = f" Runs recorded by an earlier version of the lab have none in {' and '.join(older)}." if older else ""
        widgets.empty_state(f"The statement ran ({number(answer.seconds, 's')}) and found no rows.{why}")
    else:
        _table(answer, infos)
        if view.numbers(answer.table):
            _chart(answer.table)


def _table(answer: Answer, infos: list[RunInfo]) -> None:
    shown = view.excerpt(answer.table)
    words = count(len(answer.table), "row")
    if answer.truncated:
        words = f"The first {words} of more: the limit was {number(answer.limit)}"
    words += f", in {number(answer.seconds, 's')}."
    if len(shown) < len(answer.table):
        words += f" The first {number(len(shown))} are shown; the download has all."
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown(f"**{words}**", width="stretch")
        answer_file.menu(infos, answer.statement)
    st.dataframe(shown, hide_index=True, width="stretch", height="content" if len(shown) <= 12 else 330)


def _chart(table: pd.DataFrame) -> None:
    x, y, by = view.chart_defaults(table)
    columns = list(table.columns)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        x = widgets.choice("x", columns, param="x", default=x, kind="select")
        y = widgets.choice("y", view.numbers(table), param="y", default=y, kind="select")
        by = widgets.choice("Colour", [ONE, *columns], param="by", default=by or ONE, kind="select")
    by = None if by == ONE else by
    fig, left_out = view.chart(table, x, y, by, theme())
    widgets.chart(fig, key="sql:chart", how=HOW_CHART, frame=table[list(dict.fromkeys(filter(None, (x, y, by))))])
    if left_out:
        st.caption(inert_markdown(left_out[:1].upper() + left_out[1:] + "."))


if __name__ == "__main__":
    page()
