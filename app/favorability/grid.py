"""When did each prompt count? The grid of prompts and visits, and how classes change from one visit to the next."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app import widgets
from app.favorability.view import View, pick, sure_of
from app.theme import theme
from app.views import favorability as views
from app.views import favorability_time as time
from app.views import sureness
from core.stats.classes import CLASSES

ROWS = ("24", "60", "all")
HOW = """
One row a prompt, one square a visit: the prompt was drawn, G rollouts answered it, and their lengths and
correctness alone made the class. **Indigo** is favorable, **hatched grey** unfavorable, an **outline** uniform (no
criterion is defined); faint squares took no part in the update.

Prompts come back only every few steps, so *by step* is sparse. Click a square to see its evidence in the table above.
"""


def show(view: View) -> pd.DataFrame:
    """The grid; gives the prompts that it shows, in its order."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        by = widgets.choice("Columns", ["visit", "step"], param="by", format_func="by {}".format)
        sort = widgets.choice(
            "Order", list(views.SORTS), param="sort", format_func=views.SORTS.__getitem__, kind="select"
        )
        limit = widgets.choice("Prompts", ROWS, param="rows")
        turned = widgets.switch("Reversed", param="reverse")
    visits = view.visits
    every = views.prompt_rows(visits, sort, _sure_now(view) if sort in ("sure", "unsure") else None)
    every = every[::-1].reset_index(drop=True) if turned else every
    rows = every if limit == "all" else every.head(int(limit))
    widgets.chart(
        views.grid(visits, rows, theme(), by, (view.step, view.group)),
        key="favorability-grid",
        how=HOW,
        frame=visits.drop(columns=["answer"]),
        alt=f"Classes of {len(rows)} prompts at each {by}",
        on_select=lambda: pick("favorability-grid"),
        selection_mode="points",
    )
    if note := views.grid_note(visits, rows, len(every), sort, turned):
        st.caption(note)
    return rows


def _sure_now(view: View) -> pd.Series:
    """P(favorable) at each prompt's last visit up to the step, by prompt_id."""
    last = sureness.latest(view.visits, view.visits["prompt_id"].drop_duplicates(), view.step)
    sure = sure_of(view, tuple(last.index.tolist()))
    return pd.Series(sure.probability[:, 0], index=last["prompt_id"])


def transitions(view: View) -> None:
    """The matrix of label changes."""
    before, after = sureness.transitions(view.visits)
    if not len(before):
        st.caption("No prompt has come back yet, so no class could change.")
        return
    counts = time.transition_counts(sureness.labels(view.visits), before, after)
    widgets.chart(
        time.transitions(counts, theme()),
        key="favorability-transitions",
        how="Rows: the class at a visit. Columns: the class at the prompt's next visit. Colour: share of the row.",
        frame=pd.DataFrame(counts, index=list(CLASSES), columns=list(CLASSES)).reset_index(names="from"),
    )
