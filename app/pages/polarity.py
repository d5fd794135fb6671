"""Polarity: what do the right and the wrong answers each teach?"""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app import data, urls, widgets
from app.history import history
from app.theme import theme
from app.views import polarity as view
from app.views import polarity_figures as figures
from app.views.polarity_cells import cell_table, group_table, window_table
from core.runs import RunInfo
from core.store import Lab
from core.store.queries import polarity as query
from core.store.queries.tokens import steps_with_tokens

SPLITS = {"train": "training", "probe": "probes"}

HOW_WINDOW = """
Wrong answers grow to the left, right ones to the right; each row has its own scale, both sides share it. **Advantage
mass** is the sum of loss weight × |advantage| over the tokens that were trained on, a step: how much of the update
each polarity asks for. The thin mark shows where it stood before shaping (the base advantage under the same
selection). The numbers lead to rollouts of the window's last step.
"""
HOW_CURVES = """
Both columns have the same axes, so heights compare directly. The grey band is the chosen window. A rising length of
wrong answers beside flat right ones, or an entropy that falls on one side only, is what the papers on positives-only
and negatives-only training describe. Click a point to open that step at the foot of this page.
"""
HOW_MASS = """
Solid: the mass that the update saw. Dotted: the same tokens with the base rule's advantage alone. Between them the
ratio wrong : right on a log axis; 1 is balance. Where one side has no mass (positives only, negatives only) there is
no ratio.
"""
HOW_DISTRIBUTION = """
Each side shows the share of **its own** tokens in each bin, over all tokens of the chosen window. Read from the
pre-aggregated histograms, so every token counts, dropped ones too for probability and entropy.
"""
HOW_FAN = """
The line is the median token, the bands hold the middle half and the middle 80 %. Quantiles are read from histograms:
exact to a bin's width.
"""
HOW_SIGNAL = """
A group whose answers all have the same reward has advantage 0 everywhere: it costs sampling and teaches nothing. All
wrong is too hard, all right too easy; the dotted line counts the groups with equal rewards. Click a bar to open that
step below.
"""
HOW_CELLS = """
The eight cells of A3PO: {right, wrong} × {probability, entropy} × {lowest, highest 20 % of each answer}. A cell's bar
is its share of the step's whole advantage mass after shaping, the thin mark its share before. **Push** weighs each
token by 1 − p as well: near-certain tokens have mass but no push. The links lead to the token with the most mass (or
push) of the cell.
"""
HOW_GROUPS = "Each prompt of the step with the advantage mass of its wrong and right answers, all on one scale."


def page() -> None:
    widgets.page_header("What do the right and the wrong answers each teach?")
    pick, place = st.columns([3, 1], vertical_alignment="bottom")
    with pick:
        info = widgets.run_picker()
    if info is None:
        return
    lab = data.lab(info)
    with place:
        split = widgets.choice("Rollouts", list(SPLITS), param="split", format_func=SPLITS.__getitem__)
    series = _series(lab, info, split)
    if series.steps.empty:
        _nothing_yet(info, split)
        return
    window = _window(series, info)
    trained = split == "train"
    widgets.verdict(view.verdict(window, trained))
    _summary(info, split, series, window)
    _over_steps(series, window, trained)
    _field(lab, info, split, window)
    chart = figures.signal(series.signal, theme(), (window.first, window.last))
    _clickable(chart, series, key="polarity:signal", how=HOW_SIGNAL, frame=series.signal)
    _one_step(lab, info, split, series)


def _series(lab: Lab, info: RunInfo, split: str) -> view.Series:
    answers = history(info, lab, query.answers_by_step, split)
    steps = view.by_step(answers, history(info, lab, query.fields_by_step, split))
    kept = sorted(steps_with_tokens(lab, info.id) & set(answers["step"].astype(int)))
    return view.Series(steps, view.signal_by_step(answers), kept)


def _nothing_yet(info: RunInfo, split: str) -> None:
    if info.step and split == "probe":
        widgets.empty_state("This run recorded no probes (evaluate.probes), or has not reached its first evaluation.")
    elif data.ended(info):
        how = "failed" if info.state == "failed" else "ended"
        words = f"This run {how} before its first step: there are no answers to compare."
        widgets.empty_state(words, "live", "See its log", run=info.id)
    else:
        words = f"This run is {info.state} and has no step yet. Its answers appear here with its first step."
        widgets.empty_state(words, "live", "See what it is doing", run=info.id)


def _window(series: view.Series, info: RunInfo) -> view.Window:
    """The steps in the URL (`steps=30&steps=39`), by default the last tenth of the run."""
    steps = sorted(series.steps["step"].unique().tolist())
    named = [int(text) for text in urls.list_param("steps") if text.isdigit()]
    if named:
        first, last = (min(max(step, steps[0]), steps[-1]) for step in (min(named), max(named)))
        first = max(step for step in steps if step <= first)
        last = min(step for step in steps if step >= last)
    else:
        first, last = steps[-min(len(steps), max(5, len(steps) // 10))], steps[-1]
    if len(steps) > 1:
        key = f"polarity:window:{first}:{last}"  # a range needs its own default, so the key holds the address's value
        st.select_slider("Window of steps", steps, value=(first, last), key=key, on_change=_move_window, args=(key,))
    else:
        st.caption(f"The run has one step so far: {steps[0]}.")
    return view.window(series.steps, series.signal, first, last)


def _move_window(key: str) -> None:
    urls.set_params(steps=list(st.session_state[key]))


def _summary(info: RunInfo, split: str, series: view.Series, window: view.Window) -> None:
    with st.container(border=True):
        head, tool = st.columns([6, 1], vertical_alignment="center")
        head.markdown(f"**Wrong and right, side by side** · {window.steps}")
        with tool:
            widgets.how_to_read(HOW_WINDOW, "Help")
        behind = max((step for step in series.token_steps if step <= window.last), default=None)
        where = None if behind is None else {"run": info.id, "split": split, "step": behind}
        st.html(window_table(window, theme(), split == "train", where))


def _over_steps(series: view.Series, window: view.Window, trained: bool) -> None:
    chosen = (window.first, window.last)
    fig = figures.curves(series.steps, theme(), chosen)
    _clickable(fig, series, key="polarity:curves", how=HOW_CURVES, frame=series.steps)
    if trained:
        masses = figures.masses(series.steps, theme(), chosen)
        columns = series.steps[["step", "polarity", "base_mass", "mass"]]
        _clickable(masses, series, key="polarity:mass", how=HOW_MASS, frame=columns)


def _field(lab: Lab, info: RunInfo, split: str, window: view.Window) -> None:
    labels = {name: label for name, (label, _) in figures.FIELDS.items()}
    field = widgets.choice("Distribution of", list(labels), param="field", format_func=labels.__getitem__)
    histograms = history(info, lab, query.histograms, field, split)
    if not len(histograms):
        reason = (
            "log-probs after the update were not recorded (record.after_update)"
            if field == "change"
            else "there are no values"
        )
        widgets.empty_state(f"No distribution of {labels[field]}: {reason}.")
        return
    names = view.bucket_names(field)
    counts = view.histogram_window(histograms, window.first, window.last, len(names))
    fig = figures.distribution(counts, names, field, window.steps, theme())
    widgets.chart(fig, key="polarity:distribution", how=HOW_DISTRIBUTION, frame=counts.assign(bucket=names))
    moves = view.quantiles(histograms, field)
    fan = figures.fan(moves, field, theme(), (window.first, window.last))
    widgets.chart(fan, key="polarity:fan", how=HOW_FAN, frame=moves)


def _one_step(lab: Lab, info: RunInfo, split: str, series: view.Series) -> None:
    st.subheader("One step, token by token", anchor=False)
    if not series.token_steps:
        widgets.empty_state("No step of this run kept its tokens, so the eight cells cannot be shown.")
        return
    moved = series.steps.loc[series.steps["base_mass"] > 0, "step"]
    step = widgets.step_picker(series.token_steps, total=info.total, default=int(moved.max()) if len(moved) else None)
    cells, groups = query.cells(lab, info.id, step, split), query.group_masses(lab, info.id, step, split)
    where = {"run": info.id, "split": split, "step": step}
    widgets.what_if(scope="step", **where)
    for title, how, html, frame, key in (
        (
            "The eight cells: which tokens the update hears",
            HOW_CELLS,
            cell_table(cells, theme(), where),
            cells,
            "cells",
        ),
        ("The prompts behind it", HOW_GROUPS, group_table(groups, theme(), where), groups, "groups"),
    ):
        with st.container(border=True):
            with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
                st.markdown(f"**{title}** · step {step}", width="content")
                with st.container(horizontal=True, gap="small", width="content"):
                    widgets.how_to_read(how, "Help")
                    widgets.download_csv(frame, f"{key}_step{step}", key=f"polarity:{key}")
            st.html(html)


def _clickable(fig: object, series: view.Series, *, key: str, how: str, frame: pd.DataFrame) -> None:
    """A figure whose points choose the step at the foot of the page."""

    def chosen() -> None:
        points = st.session_state[key].selection.points
        if points and series.token_steps:
            step = round(points[0]["x"])
            urls.set_params(step=min(series.token_steps, key=lambda there: abs(there - step)))

    widgets.chart(fig, key=key, how=how, frame=frame, on_select=chosen, selection_mode="points")


if __name__ == "__main__":
    page()
