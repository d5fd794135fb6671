"""Which prompts got the mass: weight x |advantage| by difficulty, by length and by prompt, before and after."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app import urls, widgets
from app.favorability.view import View, pick, rollouts
from app.theme import theme
from app.views import favorability_mass as views
from core.store.queries import favorability as queries

HOW = """
Advantage **mass** is the sum of loss weight × |advantage| over trained tokens: how much of the update goes somewhere.
*Before weighting* is the mass of the base rule's advantages (GRPO's, say), *as trained* after every factor of the
method. The dash is the share of the groups (left) or rollouts (right): where a bar is above it, these count more than
their number.

Groups that are all wrong or all right have no mass where a rule compares a rollout with its group.
"""
TOP_HOW = """
The prompts with the largest share of the window's mass, before and after weighting. Click a bar to go to the prompt's
latest visit in the window.
"""


def show(view: View) -> None:
    """The window's picker, one sentence, and both figures."""
    if (urls.int_param("step"), urls.int_param("group")) != (view.step, view.group):
        st.rerun()  # a bar was clicked: the page is about another prompt now
    older = view.visits["mass"].isna().all()
    names = ["step"] if older else ["step", "recent", "run"]
    window = widgets.choice(
        "Window", names, param="window", default=names[-1],
        format_func=lambda name: views.window_words(name, view.step),
    )  # fmt: skip
    words = views.window_words(window, view.step)
    visits, parts = _from_tokens(view) if older else _window(view, window)
    if older:
        st.caption(
            "This run was recorded by an earlier version of the lab, which kept no mass by rollout: one step at a time "
            "can be shown, summed from its tokens."
        )
    if parts.empty:
        widgets.empty_state(f"{words.capitalize()} kept no tokens, so its mass is not known; choose another step.")
        return
    if not visits["mass"].sum() > 0:
        widgets.empty_state(f"In {words} every advantage is 0: no group had answers of different reward.")
        return
    st.markdown(views.sentence(visits, words))
    rates, lengths = views.by_pass_rate(visits), views.by_length(parts)
    widgets.chart(
        views.split(rates, lengths, theme(), words),
        key="favorability-mass",
        how=HOW,
        frame=pd.concat([rates.assign(by="pass rate"), lengths.assign(by="length")]),
        alt=f"Share of the advantage mass by pass rate and by length, {words}",
    )
    top = views.top_prompts(visits)
    widgets.chart(
        views.top_figure(top, theme(), words),
        key="favorability-top",
        how=TOP_HOW,
        frame=top,
        on_select=lambda: pick("favorability-top"),
        selection_mode="points",
    )


def _window(view: View, window: str) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The window's visits and rollouts."""
    cut = views.windows(view.step)[window]
    return cut(view.visits), cut(rollouts(view))


def _from_tokens(view: View) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The same of the step alone, summed from its tokens."""
    parts = queries.step_mass(view.lab.step(view.info.id, view.step))
    total = parts.groupby("group")[["mass", "base_mass"]].sum()
    return view.now.drop(columns=["mass", "base_mass"]).merge(total, on="group"), parts
