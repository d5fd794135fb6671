"""The whole run on the Tokens page: the mean of a field by step and place in the response, and what the updates did."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import streamlit as st

from app import urls, widgets
from app.history import history
from app.theme import theme
from app.tokens.steps import SPLITS, nothing_yet
from app.views import tokens_map as view
from app.words import count
from core.runs import RunInfo
from core.store import Lab, fingerprint
from core.store.queries import tokens as token_query
from core.store.queries import tokens_run as query

HOW = f"""
Each cell is the mean of the chosen field over all tokens at that place of the responses in that step. **Relative**
places are tenths of each response (0 % is its first token), **absolute** ones count tokens. Colours span the 2nd to
the 98th percentile of the cells; fields with a sign have their zero at the page's background, teal above it and
vermilion below. **Grey** cells hold fewer than {view.FEW} tokens and are left blank.

Below, the mean over the whole responses: **click a point** to choose its step. On the right, the mean at each place
over the first tenth of the steps (dotted), over the last tenth (solid), and in the chosen step.
"""
HOW_AGREED = """
A positive advantage should raise a token's log-prob, a negative one lower it. Of the tokens with an advantage whose
log-prob moved at all, this is the share that moved that way in the step's own update. Tokens share weights, so a push
on one moves others: the dotted line, one half, is what chance alone would give.
"""
PLACES = {"relative": "relative", "absolute": "absolute"}
ANSWER_WORDS = {"all": "all", "right": "+ right", "wrong": "− wrong"}
NEEDS_AFTER = ("change", "entropy_change", "agreed")


def show(info: RunInfo, lab: Lab) -> None:
    """The heat map of a run, its margins, and how many of its tokens moved as pushed."""
    index = history(info, lab, token_query.group_index)
    if not index["split"].isin(SPLITS).any():
        nothing_yet(info)
        return
    field, place, whose, split = _choices(index)
    steps = np.sort(index.loc[index["split"] == split, "step"].unique()).astype(int)
    every = view.window_of(steps)
    agreed = view.agreed_by_window(history(info, lab, query.agreement, split), every)
    if sentence := view.verdict(agreed):
        widgets.verdict(sentence + (" Probes are not trained: only their neighbours were." if split == "probe" else ""))
    absolute = place == "absolute"
    frame = _means(info, lab, field.id, split, every, absolute)
    if frame.empty:
        widgets.empty_state(_missing(info, lab, field, split, absolute))
    else:
        shown = view.grid(frame, steps, every, view.ANSWERS[whose], absolute)
        _map(info, shown, steps, field, whose, split)
    if len(agreed):
        fig = view.agreement(agreed, theme())
        widgets.chart(fig, key="tokens:agreed", how=HOW_AGREED, frame=agreed)
        st.caption("For one step, token by token: **One group** says which of its tokens moved the other way.")
    elif field.id != "agreed":
        widgets.empty_state(_missing(info, lab, view.MAP_FIELDS["agreed"], split, absolute=False))


def _choices(index: pd.DataFrame) -> tuple[view.Field, str, str, str]:
    labels = {key: field.label for key, field in view.MAP_FIELDS.items()}
    now = urls.choice_param("field", list(labels), "advantage")
    picked = st.pills(
        "Mean of", list(labels), format_func=labels.__getitem__, required=True, wrap=True, **urls.bound("field", now)
    )
    with st.container(horizontal=True, gap="medium"):
        place = widgets.choice("Place in the response", list(PLACES), param="place")
        whose = widgets.choice("Answers", list(ANSWER_WORDS), param="answers", format_func=ANSWER_WORDS.__getitem__)
        there = [split for split in SPLITS if (index["split"] == split).any()]
        split = widgets.choice("Rollouts", there, param="split", format_func=SPLITS.__getitem__)
    return view.MAP_FIELDS[picked or now], place, whose, split


def _means(info: RunInfo, lab: Lab, field: str, split: str, every: int, absolute: bool) -> pd.DataFrame:
    if not absolute:
        return history(info, lab, query.by_tenth, field, split)
    if every == 1:
        return history(info, lab, query.by_position, field, split)
    return _in_windows(lab, info.id, field, split, every, fingerprint([info.path]))


@st.cache_data(max_entries=24, show_spinner=False)
def _in_windows(_lab: Lab, run: str, field: str, split: str, every: int, mark: object) -> pd.DataFrame:
    """A long run's positions, added up in windows of steps where they lie: a million rows would fill the memory."""
    return query.by_position(_lab, run, field, split, every)


def _missing(info: RunInfo, lab: Lab, field: view.Field, split: str, absolute: bool) -> str:
    """Why the chosen mean is not there. Markdown without foreign text."""
    opening = f"There is no mean {field.label} here: "
    if field.id == "agreed":
        opening = "It is not known here how many tokens moved as pushed: "
    if field.id == "mass" and split == "probe":
        return opening + "probes are not trained, so their tokens have no loss weight."
    if field.id in NEEDS_AFTER and history(info, lab, query.by_tenth, "change", split).empty:
        return opening + "log-probs after the update were not recorded (`record.after_update`)."
    if absolute and len(history(info, lab, query.by_tenth, field.id, split)):
        return (
            "This run was recorded by an earlier version of the lab, which did not keep sums by absolute position. "
            "Choose **relative** above."
        )
    if field.id in ("entropy_change", "agreed"):
        return opening + "the run was recorded by an earlier version of the lab, which did not keep it."
    return opening + "no token of this run has a value of it."


def _map(info: RunInfo, shown: view.Grid, steps: np.ndarray, field: view.Field, whose: str, split: str) -> None:
    wanted = urls.int_param("step")
    chosen = None if wanted is None else shown.column(wanted)
    fig = view.heatmap(shown, field, whose, theme(), chosen)

    def click() -> None:
        points = st.session_state["tokens:map"].selection.points
        if points:
            urls.set_params(step=_nearest(steps, points[0]["x"]))

    widgets.chart(
        fig, key="tokens:map", how=HOW, frame=view.table(shown, field), on_select=click, selection_mode="points"
    )
    _notes(shown)
    if chosen is not None and wanted is not None:
        _to_step(info, split, _nearest(steps, wanted))
    else:
        st.caption("Click a point of the curve under the map to choose a step and to open it token by token.")


def _to_step(info: RunInfo, split: str, step: int) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        where: dict[str, Any] = {"run": info.id, "split": split, "step": step}
        urls.link("tokens", f"Open step {step}, token by token", icon=":material/grid_on:", **where)
        widgets.what_if(scope="step", **where)
        st.button("Clear the step", key="tokens:unchoose", type="tertiary", on_click=urls.set_params,
                  kwargs={"step": None}, icon=":material/close:")  # fmt: skip


def _nearest(steps: np.ndarray, x: float) -> int:
    return int(steps[np.abs(steps - x).argmin()])


def _notes(shown: view.Grid) -> None:
    """What the picture leaves out, in words."""
    words = [f"Grey: fewer than {view.FEW} tokens."]
    most = int((shown.steps[:, 1] - shown.steps[:, 0]).max()) + 1
    if most > 1:
        words.append(f"Each column is the mean over the tokens of up to {count(most, 'step')}.")
    wide = int((shown.places[:, 1] - shown.places[:, 0]).max()) + 1
    if shown.absolute and wide > 1:
        words.append(f"Late positions share a row, up to {wide} of them.")
    st.caption(" ".join(words))
