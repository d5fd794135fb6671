"""Find, on the Tokens page: what is asked for and where. `app.tokens.found` draws what was found."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pandas as pd
import streamlit as st

from app import urls, widgets
from app.history import history
from app.tokens import found
from app.tokens.found import Search
from app.tokens.steps import SPLITS, nothing_yet
from app.views.tokens_fields import FIELDS
from core.runs import RunInfo
from core.store import Lab
from core.store.queries import tokens as token_query
from core.store.queries.find import EXTREMES, Text, Where

FINDS = {
    "text": "Text", "tokens": "Extreme tokens", "strings": "Token strings", "longest": "Longest",
    "repeats": "Repeats itself", "same": "Same answer twice", "truncated": "Cut off", "lucky": "Right by luck",
    "suppressed": "Right, suppressed", "reinforced": "Wrong, reinforced",
}  # fmt: skip
ANSWERS = {"all": "all", "right": "+ right", "wrong": "− wrong"}
POLARITY = {"all": 0, "right": 1, "wrong": -1}
AT_FIRST = {"tokens": 100, "text": 1000, "same": 1000}
"""The last steps that are looked through unless a reader asks for more: these finds read every token or text."""

HOW = """
- **Text** is searched in the answers as plain words, or as a regular expression
  ([RE2](https://github.com/google/re2/wiki/Syntax)). Each hit opens the answer at its match. Of a long run, the last
  {text} steps are searched unless you widen the window.
- **Extreme tokens** reads every token of the window, so it starts with the last {tokens} steps.
- **Token strings** adds up, for each token of the vocabulary, the push (advantage × (1 − p)) that it got.
- **Right by luck** needs a verifier that checks the steps of an answer.
- The base advantage is that of the whole answer, before the method's factors.
"""


def show(info: RunInfo, lab: Lab) -> None:
    """The search and its results; everything that is asked stands in the address."""
    index = history(info, lab, token_query.group_index)
    splits = [split for split in SPLITS if (index["split"] == split).any()]
    if not splits:
        nothing_yet(info)
        return
    now = urls.choice_param("find", list(FINDS), "text" if urls.param("q") else "strings")
    find = st.pills(
        "Find", list(FINDS), format_func=FINDS.__getitem__, required=True, wrap=True, **urls.bound("find", now)
    )
    draw = _asked(find or now)
    where = _where(info, index, splits, find or now)
    if draw is not None:
        draw(Search(info, lab, where, _page()))


def _asked(find: str) -> Callable[[Search], None] | None:
    """The choices of a find, and what draws its results; None as long as there is nothing to look for."""
    if find == "text":
        return _text()
    if find == "tokens":
        return _tokens()
    if find == "strings":
        most = widgets.choice("Most", ["reinforced", "suppressed"], param="most")
        return partial(found.strings, reinforced=most == "reinforced")
    return partial(found.ready, find=find)


def _text() -> Callable[[Search], None] | None:
    text_place, regex_place, case_place = st.columns([4, 3, 2], vertical_alignment="bottom")
    with text_place:
        text = st.text_input(
            "Text in the answers", max_chars=500, placeholder="for example: wait",
            **urls.bound("q", urls.param("q") or ""),
        )  # fmt: skip
    with regex_place:
        regex = widgets.switch(
            "Regular expression", param="regex", help=r"For example \\boxed\\{1\\d\\}, as RE2 reads it"
        )
    with case_place:
        case = widgets.switch("Match case", param="case")
    if not text:
        st.caption("Write what to look for, or choose one of the ready finds above.")
        return None
    return partial(found.text, wanted=Text(text, regex, case))


def _tokens() -> Callable[[Search], None]:
    labels = {field.id: field.label for field in FIELDS}
    with st.container(horizontal=True, gap="medium"):
        field = widgets.choice(
            "Extremes of", EXTREMES, param="extreme", format_func=labels.__getitem__, default="push"
        )  # fmt: skip
        end = widgets.choice("Which end", ["largest", "smallest"], param="end")
    return partial(found.tokens, field=field, largest=end == "largest", token=urls.int_param("token", low=0))


def _where(info: RunInfo, index: pd.DataFrame, splits: list[str], find: str) -> Where:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        split = widgets.choice("Rollouts", splits, param="split", format_func=SPLITS.__getitem__)
        whose = widgets.choice("Answers", list(ANSWERS), param="answers", format_func=ANSWERS.__getitem__)
        with st.container(width=420):
            steps = sorted(int(step) for step in index.loc[index["split"] == split, "step"].unique())
            some = min(AT_FIRST.get(find, len(steps)), len(steps))
            first, last = widgets.window_picker(steps, (steps[-some], steps[-1]))
        widgets.how_to_read(HOW.format(**AT_FIRST), "Help")
    return Where(info.id, split, first, last, POLARITY[whose])


def _page() -> int:
    """The page of hits in the address, from 0; another search begins at its first one."""
    asked = {name: st.query_params.get_all(name) for name in st.query_params if name not in ("hits", "view")}
    if st.session_state.get("find:asked", asked) != asked:
        urls.set_params(hits=None)
    st.session_state["find:asked"] = asked
    return (urls.int_param("hits", 1, low=1) or 1) - 1
