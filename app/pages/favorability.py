"""Favorability: which prompts count right now, and how sure is that?"""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
import pandas as pd
import streamlit as st

from app import data, urls, widgets
from app.history import history
from app.inert import inert_markdown, visible
from app.theme import theme
from app.views import favorability as views
from app.views import sureness
from app.words import count, number, share
from core.config import ConfigError, read_run
from core.runs import RunInfo
from core.stats.classes import CLASSES, OBSERVED, ClassRule, class_rule
from core.stats.labels import Flips, Sureness, check, flips, simulate
from core.store import Lab, fingerprint
from core.store.queries import favorability as queries

ROWS = ("24", "60", "all")
BARS = 40
GROUPS_FOR_FLIPS = 48
"""Fresh groups a visit for the run's number of flips: a sum over up to 1,000 visits, whose mean they leave unbiased."""

GRID_HOW = """
One row a prompt, one square a visit: the prompt was drawn, G rollouts answered it, and their lengths and
correctness alone made the class. **Indigo** is favorable, **hatched grey** unfavorable, an **outline** uniform (no
criterion is defined).

Prompts come back only every few steps, so *by step* is sparse. Click a square to see its evidence under the grid.
"""
CRITERIA_HOW = """
Above the dotted diagonal the longest correct answer is longer than the mean wrong one: the **length advantage**.
Indigo points pass at most τ of their rollouts: the **difficulty advantage**. Crosses are unfavorable. Truncated
wrong rollouts are left out of the mean. Click a point to choose its prompt.
"""
SURE_HOW = """
What a fresh group of this prompt would be called, at its latest visit up to this step. The bar is P(favorable), the
line its 90 % interval; the square at the left is the label that the visit got. A bar near one half is a coin toss.

Estimated by simulation: the pass rate and the lengths are modelled from the visits next to this one, and fresh groups
are drawn. Redrawing the observed rollouts would look surer than it is. Measured on 200 real groups of six prompts of
the embedded model, two groups get different labels with probability .52 (ADORA attenuate) and .18 (amplify): this
estimate says .51 and .17, redrawing .27 and .13. The switch at the end of the page repeats the check with this run's
lengths.
"""
WEIGHTS_HOW = """
AdamW cancels a factor that all prompts share, so what a weight does is what it does *next to the others*: 1 means
no effect in this step, whatever the weight's own number.
"""


def page() -> None:
    widgets.page_header("Which prompts count right now, and how sure is that?")
    info = widgets.run_picker()
    if info is None:
        return
    rule = _rule(info)
    key = _key(info, rule)  # before the store is opened: what is cached under it is never older than it says
    lab = data.lab(info)
    visits = queries.numbered(history(info, lab, queries.groups))
    if visits.empty:
        widgets.empty_state(
            f"**{inert_markdown(info.name)}** has no step yet: prompts appear here with their first rollouts.",
            "live", "Watch it on the Live page", run=info.id,
        )  # fmt: skip
        return
    defined = visits.loc[visits["length_advantage"].notna(), "step"]
    step = int(
        widgets.step_picker(
            sorted(visits["step"].unique().tolist()),
            total=info.total,
            default=int(defined.max()) if len(defined) else None,
        )
    )
    now = visits[visits["step"] == step]
    group = _chosen_group(now)
    _verdict(info, rule, visits, now)
    left, right = st.columns([11, 9], gap="medium")
    with left:
        rows = _grid(visits, step, group)
        _chosen(info, now, group)
        _transitions(visits)
    with right:
        _criteria(visits, now, rule)
        _how_sure(key, info, lab, rule, visits, rows, step)
    _over_time(info, lab, visits, step)
    _can_it_be_trusted(key, info, lab, rule, visits)


def _rule(info: RunInfo) -> ClassRule:
    """The rule that the run's classes follow; the paper's where the config cannot be read."""
    try:
        return class_rule(read_run(info.path / "config.yaml").build_method())
    except ConfigError:
        return OBSERVED


def _chosen_group(now: pd.DataFrame) -> int:
    groups = now["group"].astype(int).tolist()
    wanted = urls.int_param("group", groups[0])
    return wanted if wanted in groups else groups[0]


def _verdict(info: RunInfo, rule: ClassRule, visits: pd.DataFrame, now: pd.DataFrame) -> None:
    tally = now["label"].value_counts()
    parts = ", ".join(f"{tally[name]} {name}" for name in CLASSES if name in tally)
    label = inert_markdown(info.label)
    use = f"They are **only observed**: {label} gives every prompt weight 1."
    if rule.name:
        kind = "a favorable" if rule.name == "adora_amplify" else "an unfavorable"
        use = f"The run **trains with these classes** ({label}): {kind} prompt weighs {number(rule.weight)}."
    favorable = share(float((visits["label"] == "favorable").mean()))
    widgets.verdict(
        f"Step {int(now['step'].iloc[0])}: of {count(len(now), 'prompt')}, {parts}. Over the run {favorable} of "
        f"{count(len(visits), 'visit')} were favorable. {use}"
    )


def _grid(visits: pd.DataFrame, step: int, group: int) -> pd.DataFrame:
    """The grid; gives the prompts that it shows, in its order."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        by = widgets.choice("Columns", ["visit", "step"], param="by", format_func="by {}".format)
        sort = widgets.choice(
            "Order", list(views.SORTS), param="sort", format_func=views.SORTS.__getitem__, kind="select"
        )
        limit = widgets.choice("Prompts", ROWS, param="rows")
    every = views.prompt_rows(visits, sort)
    rows = every if limit == "all" else every.head(int(limit))
    widgets.chart(
        views.grid(visits, rows, theme(), by, (step, group)),
        key="favorability-grid",
        how=GRID_HOW,
        frame=visits.drop(columns=["answer"]),
        alt=f"Classes of {len(rows)} prompts at each {by}",
        on_select=lambda: _pick("favorability-grid"),
        selection_mode="points",
    )
    if len(rows) < len(every):
        st.caption(f"{len(rows)} of {count(len(every), 'prompt')}, {views.SORTS[sort]} first.")
    return rows


def _pick(key: str) -> None:
    """A click on a square, a point or a bar: its step and group go into the URL."""
    points = (st.session_state.get(key) or {}).get("selection", {}).get("points", [])
    if points and (where := points[0].get("customdata")) is not None:
        step, group = (where[0], where[1]) if isinstance(where, list) else (where["0"], where["1"])
        urls.set_params(step=int(step), group=int(group))


def _chosen(info: RunInfo, now: pd.DataFrame, group: int) -> None:
    """The evidence of one prompt of the step, and the way to its rollouts; the grid's twin for the keyboard."""
    prompts = {str(row.group): visible(row.prompt)[:80] for row in now.itertuples()}
    urls.set_params(group=group)
    with st.container(border=True):
        picked = widgets.choice(
            "Prompt of this step", list(prompts), param="group", kind="select", format_func=prompts.__getitem__
        )
        row = now[now["group"] == int(picked)].iloc[0]
        st.markdown(" · ".join(f"{name} **{value}**" for name, value in views.cell_words(row)))
        place = {"run": info.id, "step": int(row["step"]), "group": int(picked)}
        with st.container(horizontal=True, gap="medium"):
            urls.link("tokens", "Read its rollouts, token by token", icon=":material/grid_on:", **place)
            widgets.what_if(split="train", **place)


def _transitions(visits: pd.DataFrame) -> None:
    before, after = sureness.transitions(visits)
    if not len(before):
        st.caption("No prompt has come back yet, so no class could change.")
        return
    counts = views.transition_counts(sureness.labels(visits), before, after)
    widgets.chart(
        views.transitions(counts, theme()),
        key="favorability-transitions",
        how="Rows: the class at a visit. Columns: the class at the prompt's next visit. Colour: share of the row.",
        frame=pd.DataFrame(counts, index=list(CLASSES), columns=list(CLASSES)).reset_index(names="from"),
    )


def _criteria(visits: pd.DataFrame, now: pd.DataFrame, rule: ClassRule) -> None:
    scope = widgets.choice("Groups in the chart", ["step", "run"], param="scope", format_func="this {}".format)
    groups = now if scope == "step" else visits
    missing = views.without_lengths(groups)
    if missing == len(groups):
        widgets.empty_state(
            f"In this {scope} no group has both a correct and a usable wrong rollout: "
            "the length criterion is defined nowhere."
        )
        return
    widgets.chart(
        views.criteria(groups, theme(), rule.tau),
        key="favorability-criteria",
        how=CRITERIA_HOW,
        frame=groups.drop(columns=["answer"]),
        alt="Longest correct against mean wrong length",
        on_select=lambda: _pick("favorability-criteria"),
        selection_mode="points",
    )
    note = f"Here {sureness.rule_words(rule)}."
    if missing:
        note += f" Not drawn: {missing} of {count(len(groups), 'group')}, without a correct or a usable wrong rollout."
    st.caption(note)


def _how_sure(
    key: Hashable, info: RunInfo, lab: Lab, rule: ClassRule, visits: pd.DataFrame, rows: pd.DataFrame, step: int
) -> None:
    found, used = _flips(key, info, lab, rule, visits)
    st.markdown(sureness.flips_sentence(found, int(visits["n"].median()), used))
    shown = sureness.latest(visits, rows["prompt_id"], step).head(BARS)
    if shown.empty:
        st.caption(f"None of the prompts on the left had been visited by step {step}.")
        return
    sure = _sureness(key, info, lab, rule, visits, tuple(shown.index.tolist()))
    widgets.chart(
        sureness.bars(shown, sure, theme()),
        key="favorability-sure",
        how=SURE_HOW,
        frame=shown[["prompt", "step", "group", "label"]].assign(
            p_favorable=sure.probability[:, 0], low=sure.low, high=sure.high, p_flip=sure.flip
        ),
        alt="Probability that a fresh group of each prompt is favorable",
        on_select=lambda: _pick("favorability-sure"),
        selection_mode="points",
    )


def _over_time(info: RunInfo, lab: Lab, visits: pd.DataFrame, step: int) -> None:
    frame = history(info, lab, queries.shares)
    window = max(1, min(10, len(frame) // 8))
    left, right = st.columns(2, gap="medium")
    with left:
        widgets.chart(
            views.shares_over_time(frame, theme(), window, step),
            key="favorability-shares",
            how=f"Share of the step's groups in each class, a running mean over {window} steps; refilled groups count.",
            frame=frame,
        )
    with right:
        if np.ptp(visits["weight"].to_numpy(dtype=float)) == 0:
            st.markdown("**Weight next to the step's mean weight**")
            widgets.empty_state(
                f"Every prompt weighs {number(float(visits['weight'].iloc[0]))} in this run. "
                "An ADORA run turns classes into weights.", "launch", "Launch one", preset="adora_amplify",
            )  # fmt: skip
            return
        relative = views.relative_weights(visits)
        widgets.chart(
            views.weights_over_time(relative, theme(), step),
            key="favorability-weights",
            how=WEIGHTS_HOW,
            frame=relative,
        )


def _can_it_be_trusted(key: Hashable, info: RunInfo, lab: Lab, rule: ClassRule, visits: pd.DataFrame) -> None:
    if not widgets.switch("Check the estimate on prompts whose truth is known", param="check"):
        return
    rows = _check(key, info, lab, rule, visits)
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


def _key(info: RunInfo, rule: ClassRule) -> Hashable:
    return fingerprint([info.path]), rule.name, rule.tau, rule.combine, rule.weight


@st.cache_data(show_spinner="Simulating fresh groups to see what luck does to the labels …", max_entries=16)
def _flips(
    key: Hashable, _info: RunInfo, _lab: Lab, _rule: ClassRule, _visits: pd.DataFrame
) -> tuple[Flips, float]:  # fmt: skip
    """The run's label changes, and the share of its visits that they were counted on."""
    some = sureness.whole_prompts(_visits)
    arrays = sureness.to_visits(some, history(_info, _lab, queries.rollouts))
    sure = simulate(arrays, _rule, groups=GROUPS_FOR_FLIPS)
    return flips(arrays, sureness.labels(some), sure.flip), len(some) / len(_visits)


@st.cache_data(show_spinner="Simulating fresh groups of each prompt …", max_entries=64)
def _sureness(
    key: Hashable, _info: RunInfo, _lab: Lab, _rule: ClassRule, _visits: pd.DataFrame, which: tuple[int, ...]
) -> Sureness:
    arrays = sureness.to_visits(_visits, history(_info, _lab, queries.rollouts))
    return simulate(arrays, _rule, np.array(which, dtype=int), draws=64)


@st.cache_data(show_spinner="Simulating prompts whose truth is known …", max_entries=8)
def _check(
    key: Hashable, _info: RunInfo, _lab: Lab, _rule: ClassRule, _visits: pd.DataFrame
) -> list[dict[str, float]]:  # fmt: skip
    arrays = sureness.to_visits(_visits, history(_info, _lab, queries.rollouts))
    return check(arrays, _rule, int(_visits["n"].median()))


if __name__ == "__main__":
    page()
