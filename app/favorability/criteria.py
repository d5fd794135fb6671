"""Both criteria with movable thresholds: what another variant, τ or weight would have made of the same groups."""

from __future__ import annotations

import streamlit as st

from app import urls, widgets
from app.favorability.view import View, pick
from app.theme import theme
from app.views import favorability_criteria as views
from app.words import count
from core.stats.classes import ClassRule, make_rule

HOW = """
- **Both lengths**: above the dotted diagonal the longest correct answer is longer than the mean wrong one, the **length
  advantage**. Indigo points pass at most τ of their rollouts, the **difficulty advantage**.
- **Pass rate and margin**: the same as two lines. Right of the dashed τ a prompt is too easy, above 0 it has the length
  advantage; groups without a right or a usable wrong answer lie at the bottom.

Filled circles are favorable under these thresholds, crosses unfavorable, rings uniform; a yellow ring is a group whose
class they change. Truncated wrong rollouts are left out of the mean. Click a point to choose its prompt.
"""
PARAMS = ("variant", "tau", "combine", "weight")


def show(view: View) -> None:
    """The controls, the scatter, and the counts; draws itself anew when a threshold moves, and nothing else."""
    if (urls.int_param("step"), urls.int_param("group")) != (view.step, view.group):
        st.rerun()  # a point was clicked: the page is about another prompt now
    rule = _rule(view.rule)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        scope = widgets.choice("Groups in the chart", ["step", "run"], param="scope", format_func="this {}".format)
        plane = widgets.choice("Axes", list(views.PLANES), param="axes", format_func=views.PLANES.__getitem__)
    groups = view.now if scope == "step" else view.visits
    missing = views.without_lengths(groups)
    if missing == len(groups) and plane == "lengths":
        widgets.empty_state(
            f"In this {scope} no group has both a correct and a usable wrong rollout: "
            "the length criterion is defined nowhere. The other axes show their pass rates."
        )
    else:
        widgets.chart(
            views.scatter(groups, views.move(groups, rule), theme(), rule, plane),
            key="favorability-criteria",
            how=HOW,
            frame=groups.drop(columns=["answer"]),
            alt="Longest correct against mean wrong length",
            on_select=lambda: pick("favorability-criteria"),
            selection_mode="points",
        )
        notes = []
        if missing and plane == "lengths":
            notes.append(
                f"Not drawn: {missing} of {count(len(groups), 'group')}, without a correct or a usable wrong rollout."
            )
        if len(groups) - missing > views.MOST:
            notes.append(f"Every {round((len(groups) - missing) / views.MOST, 1):g}th group is drawn.")
        if notes:
            st.caption(" ".join(notes))
    _counts(view, rule)


def _rule(own: ClassRule) -> ClassRule:
    """The thresholds of the address, else the run's own; draws their controls."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        variant = widgets.choice(
            "Thresholds of", list(views.VARIANTS), param="variant", default=own.variant,
            format_func=views.VARIANTS.__getitem__, kind="select",
        )  # fmt: skip
        start = own if own.variant == variant and own.trained else make_rule(variant)
        weight = st.number_input(
            "Weight", 0.0, 10.0, step=0.1, format="%g", width=110,
            help="Of a favorable prompt when amplifying, of the others in every other variant",
            **urls.bound("weight", urls.float_param("weight", start.weight, 0, 10)),
        )  # fmt: skip
        tau, combine = start.tau, start.combine
        if tau is not None:
            tau = st.slider(
                "τ: at most this share right", 0.0, 1.0, step=0.05, width=210,
                **urls.bound("tau", urls.float_param("tau", tau, 0, 1)),
            )  # fmt: skip
            combine = widgets.choice(
                "Criteria", ["any", "all"], param="combine", default=combine, format_func="{} of both".format
            )
        if any(urls.param(name) for name in PARAMS):
            st.button(
                "As recorded", type="tertiary", icon=":material/undo:", key="favorability:recorded",
                on_click=urls.set_params, kwargs=dict.fromkeys(PARAMS),
            )  # fmt: skip
    return make_rule(variant, weight=weight, tau=tau, combine=combine)


def _counts(view: View, rule: ClassRule) -> None:
    """The recorded classes beside the moved ones, at this step and over the run."""
    now, run = views.move(view.now, rule), views.move(view.visits, rule)
    st.markdown(views.moved_sentence(view.visits, view.step, now, run, rule, view.rule))
    scopes = {
        f"step {view.step}": (views.counts(view.now, now), len(now.label)),
        "the run": (views.counts(view.visits, run), len(run.label)),
    }
    st.html(views.counts_table(scopes, theme()))
    if run.changed.any():
        widgets.chart(
            views.favorable_over_time(view.visits, run, theme(), view.window, view.step),
            key="favorability-moved",
            how=f"Share of each step's groups that are favorable, a running mean over {view.window} steps.",
        )
    if view.own is None:
        return
    urls.link(
        "whatif", "What would these weights have done to every token?", icon=":material/alt_route:",
        run=view.info.id, step=view.step, group=view.group, m=["trained", views.moved_spec(view.own, rule).text],
    )  # fmt: skip
