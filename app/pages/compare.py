"""Compare: is this method better than that one, or is it luck?"""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app import data, urls, widgets
from app.inert import inert_markdown, visible
from app.theme import theme
from app.views import compare as views
from app.views import comparison, families, probes
from app.views.comparison import ALIGN, Align, Metric, Outcome
from app.views.families import Family, Member
from app.words import count, number
from core.runs import RunInfo
from core.store import Lab
from core.store.queries import compare as queries

MOST = 6
SMOOTH = ("1", "5", "10", "20")

MAIN_HOW = """
A method with several seeds is drawn as their mean (thick), a band from the lowest to the highest seed, and each
seed as a thin line with its own marker. The mean stops where one of its seeds ends. Evaluations are points and
never smoothed; when training metrics are, the raw points stay as dots.
"""
FINALS_HOW = """
Each run's final value: the last evaluation, or the mean of the last tenth of the training steps (at least 5). The
bar is the method's mean, the marker tells the seed.
"""


def page() -> None:
    widgets.page_header("Is this method better than that one, or is it luck?")
    infos = _pick()
    if not infos:
        return
    lab = data.lab(infos)
    ids = [info.id for info in infos]
    metrics, evals = queries.metrics(lab, ids), queries.evals(lab, ids)
    infos = _begun(infos, {*metrics["run"], *evals["run"]})
    if not infos:
        return
    shown = families.families(infos, theme().dark)
    every = {metric.id: metric for metric in comparison.available(metrics, evals)}
    metric, align, window = _choices(every)
    curve = comparison.curves(metrics, evals, metric, align)
    _one_metric(lab, shown, curve, metric, align, window)
    others = [every[key] for key in comparison.SMALL if key in every and key != metric.id]
    _small(shown, [(other, comparison.curves(metrics, evals, other, align)) for other in others], align, window)
    _side_by_side(lab, shown)
    _settings(shown)


def _pick() -> list[RunInfo]:
    """Experiments and runs from the URL; without a choice the newest experiment, or the two newest runs."""
    infos = {info.id: info for info in data.runs()}
    if not infos:
        widgets.empty_state(
            "There is no run yet to compare. The **Quick start** trains three methods on the same prompts.",
            "runs", "Go to the Quick start",
        )  # fmt: skip
        return []
    members: dict[str, list[RunInfo]] = {}
    for info in reversed(infos.values()):
        if info.experiment:
            members.setdefault(info.experiment, []).append(info)
    members = {key: runs for key, runs in members.items() if len(runs) > 1}
    experiments = urls.list_param("experiment", list(members))
    chosen = urls.list_param("run", list(infos))
    if not experiments and not chosen:
        experiments, chosen = _default(infos, members)
        urls.set_params(experiment=experiments, run=chosen)
    if len(chosen) > MOST:
        st.warning(f"{len(chosen)} runs are named in the address; the first {MOST} are shown.")
        chosen = chosen[:MOST]
    left, right = st.columns(2) if members else (None, st.container())
    if left is not None:
        experiments = left.multiselect(
            "Experiments", list(members), placeholder="All runs of an experiment",
            format_func=lambda key: f"{visible(members[key][0].experiment_name or key)} · {len(members[key])} runs",
            **urls.bound("experiment", experiments),
        )  # fmt: skip
    chosen = right.multiselect(
        "Runs", list(infos), placeholder="Two to six runs", max_selections=MOST,
        format_func=lambda key: widgets.run_label(infos[key]), **urls.bound("run", chosen),
    )  # fmt: skip
    if not experiments and not chosen:
        widgets.empty_state("Choose two or more runs above, or a whole experiment.")
    for text in dict.fromkeys(members[key][0].look_for for key in experiments):
        if text:
            st.caption(f"What to look for: {inert_markdown(text)}")
    picked = [run.id for key in experiments for run in members[key]] + list(chosen)
    return [infos[key] for key in dict.fromkeys(picked)]


def _default(infos: dict[str, RunInfo], members: dict[str, list[RunInfo]]) -> tuple[list[str], list[str]]:
    """(experiments, runs) for a reader who has chosen nothing."""
    begun = [info for info in infos.values() if info.step]
    newest = next(iter(begun or infos.values()))
    if newest.experiment in members:
        return [newest.experiment], []
    whole = [info.id for info in begun if info.state != "failed"]
    return [], (whole if len(whole) > 1 else [info.id for info in begun])[:2] or [newest.id]


def _begun(infos: list[RunInfo], begun: set[str]) -> list[RunInfo]:
    """Those with a step; the others are named."""
    waiting = [info for info in infos if info.id not in begun]
    if waiting and len(waiting) < len(infos):
        names = ", ".join(f"**{inert_markdown(info.name)}** ({info.state})" for info in waiting)
        st.caption(f"No step yet, so left out: {names}.")
    if len(waiting) == len(infos):
        widgets.empty_state("None of these runs has a step yet.", "runs", "See what they wait for")
    return [info for info in infos if info.id in begun]


def _choices(every: dict[str, Metric]) -> tuple[Metric, Align, int]:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        metric = widgets.choice(
            "Metric", list(every), param="metric", kind="select", format_func=lambda key: every[key].label,
            help="The main chart, the verdict and the table are about this number",
        )  # fmt: skip
        align = widgets.choice(
            "Align by", list(ALIGN), param="align", kind="select", format_func=ALIGN.__getitem__,
            help="What the runs are lined up by: steps, or what each had spent by then",
        )  # fmt: skip
        window = widgets.choice(
            "Smooth over steps", SMOOTH, param="smooth", format_func=lambda n: "off" if n == "1" else n,
            help="A running mean for training metrics; evaluations are never smoothed",
        )  # fmt: skip
    return every[metric], align, int(window)


def _one_metric(
    lab: Lab, shown: list[Family], curve: pd.DataFrame, metric: Metric, align: Align, window: int
) -> None:  # fmt: skip
    end = comparison.common_end(curve)
    uneven = curve.groupby("run")["step"].max().nunique() > 1
    threshold = urls.float_param(_threshold_param(metric), comparison.default_threshold(curve), -1e9, 1e9)
    found = comparison.outcomes(curve, metric, threshold)
    _verdicts(lab, shown, found, metric, end)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        cut = float(curve.loc[curve["step"] <= end, "x"].max()) if uneven else None
        widgets.chart(
            views.curves(shown, curve, metric, theme(), align, window, end=cut),
            key="compare-main",
            how=f"{metric.doc.capitalize()}.\n{MAIN_HOW}",
            frame=curve,
            alt=f"{metric.label} of {count(len(shown), 'method')} by {ALIGN[align]}",
        )
        if silent := [family.label for family in shown if not set(family.runs) & set(found)]:
            st.caption(f"No value of this metric: {', '.join(map(inert_markdown, silent))}.")
        if uneven:
            st.caption(f"The runs differ in length: all numbers compare them up to step {end}, the dotted line.")
    with right:
        widgets.chart(
            views.finals(shown, found, metric, theme()),
            key="compare-finals",
            how=FINALS_HOW,
            frame=pd.DataFrame([vars(one) for one in found.values()]),
        )
    _table(shown, found, metric, align, threshold)


def _verdicts(lab: Lab, shown: list[Family], found: dict[str, Outcome], metric: Metric, end: int | None) -> None:
    """A sentence for each method against the one chosen as base."""
    if len(shown) < 2:
        only = f"Only {inert_markdown(shown[0].label)} is here ({count(shown[0].n, 'seed')})"
        widgets.verdict(f"{only}: choose a run of another method, or with other settings, to compare it with.")
        return
    names = {str(place): family.label for place, family in enumerate(shown)}
    usual = next((place for place, family in enumerate(shown) if family.method == "grpo"), 0)
    base = shown[
        int(
            widgets.choice(
                "Compare with", list(names), param="base", default=str(usual), format_func=names.__getitem__,
                kind="segmented" if sum(map(len, names.values())) < 60 else "select",
            )
        )
    ]  # fmt: skip
    lines, pairs = [], []
    for family in shown:
        if family is base:
            continue
        pair = comparison.difference(family, base, found)
        exam = None
        if metric.id == "pass_at_1" and min(pair.n_a, pair.n_b) == 1 and end is not None:
            exam = comparison.exam_difference(_exams(lab, family, end), _exams(lab, base, end))
        lines.append(comparison.sentence(family, base, metric, pair, exam))
        pairs.append(pair)
    widgets.verdict("  \n".join(lines))
    if any(pair.has_interval for pair in pairs):
        st.caption("Intervals are 95 %, over seeds (Welch's t); each pair stands by itself.")


def _exams(lab: Lab, family: Family, step: int) -> list[pd.DataFrame]:
    frames = [queries.exam(lab, run, step) for run in family.runs]
    return [frame for frame in frames if len(frame)]


def _table(
    shown: list[Family], found: dict[str, Outcome], metric: Metric, align: Align, threshold: float
) -> None:  # fmt: skip
    words, tool = st.columns([3, 1], vertical_alignment="bottom")
    words.markdown(
        "**In numbers**: means over seeds (lowest to highest). Area is under the curve, divided by its width. "
        f"Reached: the first {ALIGN[align]} at or past the threshold."
    )
    tool.number_input("Threshold", format="%.3g", step=0.05, **urls.bound(_threshold_param(metric), threshold))
    st.dataframe(comparison.summary(shown, found, metric, align), hide_index=True, width="stretch")
    widgets.download_csv(
        comparison.every_run(shown, found),
        f"compare-{metric.id.replace(':', '-')}",
        key="compare-table",
        label="Every run's numbers (CSV)",
    )


def _threshold_param(metric: Metric) -> str:
    """Each metric has a threshold of its own in the address, so that choosing another one does not carry it over."""
    return f"threshold_{metric.id.replace(':', '_')}"


def _small(shown: list[Family], others: list[tuple[Metric, pd.DataFrame]], align: Align, window: int) -> None:
    if not others:
        return
    st.subheader("The same runs, other numbers", anchor=False)
    st.caption("Colours, dashes and markers as above.")
    for first in range(0, len(others), 2):
        for place, (metric, curve) in zip(st.columns(2, gap="medium"), others[first : first + 2], strict=False):
            with place:
                widgets.chart(
                    views.curves(shown, curve, metric, theme(), align, window, height=250, legend=False),
                    key=f"compare-{metric.id.replace(':', '-')}",
                    how=f"{metric.doc.capitalize()}.",
                    frame=curve,
                )


def _side_by_side(lab: Lab, shown: list[Family]) -> None:
    st.subheader("The same prompt, side by side", anchor=False)
    found = queries.probes(lab, [run for family in shown for run in family.runs])
    if found.empty:
        widgets.empty_state(
            "These runs recorded no probe prompts yet: they come with the evaluations "
            "(`evaluate.every`, `evaluate.probes`)."
        )
        return
    asked = found.groupby("prompt_id", sort=False).agg(prompt=("prompt", "first"), runs=("run", "nunique"))
    asked = asked.sort_values("runs", ascending=False, kind="stable")
    labels = {key: f"{visible(row.prompt)[:80]} · {count(row.runs, 'run')}" for key, row in asked.iterrows()}
    chosen = widgets.choice("Probe prompt", list(labels), param="probe", kind="select", format_func=labels.__getitem__)
    asked_now = found[found["prompt_id"] == chosen]
    step = int(widgets.step_picker(sorted(asked_now["step"].unique().tolist())))
    here = asked_now[asked_now["step"] == step].set_index("run")
    _panels(lab, _members(shown, set(here.index)), here, step)


def _members(shown: list[Family], runs: set[str]) -> list[tuple[Family, Member]]:
    """The runs to set side by side: all of them, or one seed a method where there are more than MOST."""
    every = [[(family, member) for member in family.members if member.id in runs] for family in shown]
    if sum(map(len, every)) > MOST:
        st.caption("One seed a method is shown; choose single runs above to see others.")
        every = [members[:1] for members in every]
    return [one for members in every for one in members]


def _panels(lab: Lab, members: list[tuple[Family, Member]], here: pd.DataFrame, step: int) -> None:
    groups = {member.id: int(here.loc[member.id, "group"]) for _, member in members}
    rollouts = {run: queries.probe_rollouts(lab, run, step, group) for run, group in groups.items()}
    tokens = {run: queries.probe_tokens(lab, run, step, group) for run, group in groups.items()}
    domain = probes.reach(list(tokens.values()))
    st.caption(
        f"The answer is {inert_markdown(here['answer'].iloc[0])}. Tokens are coloured by the advantage that each run's "
        f"method would give them (probes are not trained): vermilion −{number(domain)}, teal +{number(domain)}, "
        "one scale for all."
    )
    for first in range(0, len(members), 3):
        row = members[first : first + 3]
        for place, (family, member) in zip(st.columns(min(3, len(members))), row, strict=False):
            with place.container(border=True):
                st.markdown(f"**{inert_markdown(family.label)}**, seed {member.info.seed}")
                st.caption(probes.summary(rollouts[member.id]))
                st.html(probes.answers(rollouts[member.id], tokens[member.id], domain, theme()))
                place = {"run": member.id, "split": "probe", "step": step, "group": groups[member.id]}
                with st.container(horizontal=True, gap="medium"):
                    urls.link("tokens", "Open on the Tokens page", icon=":material/grid_on:", **place)
                    widgets.what_if(**place)


def _settings(shown: list[Family]) -> None:
    if len(shown) < 2:
        return
    st.subheader("What differs in their settings", anchor=False)
    table = families.differences(shown)
    if table.empty:
        st.markdown("Nothing but the seed, as far as their configs can be read.")
        return
    st.dataframe(table, hide_index=True, width="stretch")
    beyond = [key for key in table["setting"] if not key.startswith(("method.", "loss."))]
    if beyond:
        st.caption(
            f"Not only the method differs, so a difference above can also come from "
            f"{', '.join(f'`{key}`' for key in beyond[:6])}{' and more' if len(beyond) > 6 else ''}."
        )


if __name__ == "__main__":
    page()
