"""How sure is a label? P(favorable) a prompt, the label changes that luck explains, and how both go with G."""

from __future__ import annotations

from collections.abc import Hashable

import pandas as pd
import streamlit as st

from app import widgets
from app.favorability.view import View, estimate, pick, rollouts, sizes, sure_of
from app.theme import theme
from app.views import sureness
from app.words import number
from core.stats.known import check
from core.stats.labels import flips

BARS = 40
DRAWS = 64
HOW = """
What a fresh group of this prompt would be called, at its latest visit up to this step. The bar is P(favorable), the
line its 90 % interval; the square at the left is the label that the visit got. A bar near one half is a coin toss.

Estimated by simulation: the pass rate and the lengths are modelled from the visits next to this one, and fresh groups
are drawn. Redrawing the observed rollouts would look surer than it is. Measured on 200 real groups of six prompts of
the embedded model, two groups get different labels with probability .41 (ADORA attenuate) and .05 (amplify): this
estimate says .45 and .07, redrawing .30 and .09. The switch at the end of the page repeats the check with this run's
lengths.
"""
SIZE_HOW = """
The same modelled prompts in groups of another size: the share of pairs of consecutive visits whose labels would differ
by luck alone, with a 95 % interval that includes the model's own error (15 %). The diamond is what this run showed.

The dotted line is how many groups would be favorable. It rises with G where lengths decide, since the **longest** of
more answers is longer while the mean of the wrong ones stays: a larger group is surer, and calls more prompts
favorable.
Checked at sizes 2 to 64 on 6,400 real answers to each of six prompts; far above the run's own G the estimate is some
hundredths too high.
"""


def show(view: View, rows: pd.DataFrame) -> None:
    """The claim, the bars of the prompts in `rows` (the grid's), and both curves."""
    some, sure = estimate(view)
    labels = sureness.labels(some)
    found = flips(pd.factorize(some["prompt_id"])[0], labels, sure.flip)
    arrays, own_labels, other = sizes(view)
    rates = sureness.rates_by_size(other, arrays, own_labels)
    used = len(some) / len(view.visits)
    st.markdown(
        sureness.flips_sentence(found, view.size, used)
        + " "
        + sureness.size_sentence(rates, found.transitions, view.size)
    )
    left, right = st.columns(2, gap="medium")
    with left:
        _bars(view, rows)
    with right:
        if not found.transitions:
            return
        observed = found.observed / found.transitions
        widgets.chart(
            sureness.by_size_figure(rates, observed, view.size, theme()),
            key="favorability-sizes",
            how=SIZE_HOW,
            frame=rates,
        )
        fig, changes = sureness.changes_over_time(some, sure.flip, theme(), view.window, view.step)
        widgets.chart(
            fig,
            key="favorability-changes",
            how=f"Of the prompts that came back at a step, how many got another label than before, beside what luck "
            f"explains of it: running sums over {view.window} steps. Where the solid line lies clearly above the "
            "dashed one, the policy changed.",
            frame=changes,
        )


def _bars(view: View, rows: pd.DataFrame) -> None:
    shown = sureness.latest(view.visits, rows["prompt_id"], view.step).head(BARS)
    if shown.empty:
        st.caption(f"None of the prompts in the grid had been visited by step {view.step}.")
        return
    sure = sure_of(view, tuple(shown.index.tolist()), DRAWS)
    widgets.chart(
        sureness.bars(shown, sure, theme()),
        key="favorability-sure",
        how=HOW,
        frame=shown[["prompt", "step", "group", "label"]].assign(
            p_favorable=sure.probability[:, 0], low=sure.low, high=sure.high, p_flip=sure.flip
        ),
        alt="Probability that a fresh group of each prompt is favorable",
        on_select=lambda: pick("favorability-sure"),
        selection_mode="points",
    )


def trust(view: View) -> None:
    """The check of the estimate, for those who ask."""
    if not widgets.switch("Check the estimate on prompts whose truth is known", param="check"):
        return
    rows = _check(view.key, view)
    if not rows:
        st.caption("The run has no correct or no wrong rollout yet: there are no lengths to make known prompts from.")
        return
    table = pd.DataFrame(rows)
    mean = table.mean()
    st.markdown(
        f"On made-up prompts with this run's lengths and pass rates from .1 to .9, two groups of one policy get "
        f"different labels with probability **{number(mean['truth'])}** on average. This page's estimate says "
        f"**{number(mean['estimate'])}**; redrawing the observed group would say {number(mean['resampled'])}."
    )
    widgets.chart(
        sureness.check_figure(table, theme()),
        key="favorability-check",
        how="30 prompts a pass rate, three visits each, the middle visit judged; the truth from 1 500 groups.",
        frame=table,
    )


@st.cache_data(show_spinner="Simulating prompts whose truth is known …", max_entries=8)
def _check(key: Hashable, _view: View) -> list[dict[str, float]]:
    return check(sureness.to_visits(_view.visits, rollouts(_view)), _view.rule, _view.size)
