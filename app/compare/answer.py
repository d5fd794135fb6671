"""One metric of all methods: who ends highest, the verdict on each pair, the curves, and the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd
import streamlit as st

from app import downloads, urls, widgets
from app.compare import seeds
from app.inert import inert_markdown
from app.theme import theme
from app.views import compare as views
from app.views import comparison
from app.views import comparison_words as words
from app.views.comparison import ALIGN, Align, Metric, Outcome
from app.views.families import Family, Judged
from app.words import count, number

MOST_SENTENCES = 2
"""More pairs than this are a table under one line of verdict."""
MANY = 6
"""More methods than this hide each other in one figure."""
SMOOTH = ("1", "5", "10", "20")

MAIN_HOW = f"""
A method with several seeds is drawn as their mean (thick), a band from the lowest to the highest seed, and each
seed as a thin line with its own marker. Mean and band are taken at the same place on the axis, reading each seed
between its points by straight lines, and stop where one of its seeds ends. Evaluations are points and never smoothed;
when training metrics are, the raw points stay as dots. Beyond {views.MOST_POINTS} steps a curve's points are thinned
out evenly, after smoothing.
"""
FINALS_HOW = """
Each run's final value: the last evaluation, or the mean of the last tenth of the training steps (at least 5), up to the
last place on the axis that all have reached. The bar is the method's mean, the marker tells the seed.
"""
GLANCE_HOW = """
Means over seeds of the final values. **More than luck?** is the verdict on the highest and the lowest method, by the
same rule as the sentence at the top: *yes* where Welch's t over seeds, widened for all comparisons, and the bootstrap
both leave 0 out; *on its own* where they do so only when nothing is widened, as if no other pair had been looked at;
*not shown* where one of them holds 0; *one seed* where one of the two has only one, so that nothing can be said; *no
spread* where every seed gave the same. Two seeds tell little of how far seeds lie apart, so a smaller difference can be
shown where a larger one is not. Choose a number under Metric for its intervals.
"""


@dataclass(frozen=True)
class View:
    """What the reader chose to look at, and the runs that numbers are about."""

    shown: Sequence[Family]
    judged: Judged
    metrics: pd.DataFrame
    evals: pd.DataFrame
    every: Mapping[str, Metric]
    metric: Metric
    align: Align
    window: int
    _curves: dict[str, pd.DataFrame] = field(default_factory=dict)
    _ends: dict[str, dict[str, Outcome]] = field(default_factory=dict)

    def curve(self, metric: Metric) -> pd.DataFrame:
        """Of all runs."""
        if metric.id not in self._curves:
            self._curves[metric.id] = comparison.curves(self.metrics, self.evals, metric, self.align)
        return self._curves[metric.id]

    def counted(self, metric: Metric) -> pd.DataFrame:
        """The curves of the runs that numbers are about."""
        curve = self.curve(metric)
        return curve[curve["run"].isin(self.judged.runs)]

    def ends(self, metric: Metric, threshold: float = 0.0) -> dict[str, Outcome]:
        """What those came to, worked out once."""
        if metric.id not in self._ends:
            self._ends[metric.id] = comparison.outcomes(self.counted(metric), metric, threshold)
        return self._ends[metric.id]


def choose(shown: Sequence[Family], judged: Judged, metrics: pd.DataFrame, evals: pd.DataFrame) -> View:
    """Draw the choices of metric, alignment and smoothing."""
    every = {metric.id: metric for metric in comparison.available(metrics, evals)}
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        metric = widgets.choice(
            "Metric", list(every), param="metric", kind="select", format_func=lambda key: every[key].label,
            help="The main chart, the verdict and the table are about this number",
        )  # fmt: skip
        align = widgets.choice(
            "Align by", list(ALIGN), param="align", kind="select", format_func=ALIGN.__getitem__,
            help="What the runs are lined up by, and compared up to: steps, or what each had spent by then",
        )  # fmt: skip
        window = widgets.choice(
            "Smooth over steps", SMOOTH, param="smooth", default="5", format_func=lambda n: "off" if n == "1" else n,
            help="A running mean for training metrics, beside the raw points; evaluations are never smoothed",
        )  # fmt: skip
    return View(shown, judged, metrics, evals, every, every[metric], align, int(window))


def base_of(shown: Sequence[Family]) -> Family:
    """Draw the choice of the method that the others are compared with; GRPO unless somebody says."""
    names = {str(place): family.label for place, family in enumerate(shown)}
    usual = next((place for place, family in enumerate(shown) if family.method == "grpo"), 0)
    chosen = widgets.choice(
        "Compare with", list(names), param="base", default=str(usual), format_func=names.__getitem__,
        kind="segmented" if sum(map(len, names.values())) < 60 else "select",
    )  # fmt: skip
    return shown[int(chosen)]


def show(view: View, exam: Callable[[str, int], pd.DataFrame], base: Family | None) -> None:
    """The chosen metric: verdict, main chart beside the final values, table. `exam(run, step)` has held-out prompts."""
    metric = view.metric
    usual = comparison.default_threshold(view.counted(metric))
    threshold = urls.float_param(_threshold_param(metric), usual, -1e9, 1e9)
    found = view.ends(metric, threshold)
    exams = _exams(view, exam)
    _verdicts(view, found, exams.get(metric.id), base)
    left, right = st.columns([3, 2], gap="medium")
    with left:
        _main(view)
    with right:
        widgets.chart(
            views.finals(view.shown, found, metric, theme()),
            key="compare-finals",
            how=FINALS_HOW,
            frame=words.every_run(view.shown, found),
        )
    _glance(view, exams)
    _table(view, found, threshold)


def small(view: View) -> None:
    """The other metrics, small, each with who ends highest."""
    others = [view.every[key] for key in comparison.SMALL if key in view.every and key != view.metric.id]
    if not others:
        return
    st.subheader("The same runs, other numbers", anchor=False)
    st.caption("Colours, dashes and markers as above.")
    for first in range(0, len(others), 2):
        for place, metric in zip(st.columns(2, gap="medium"), others[first : first + 2], strict=False):
            curve = view.curve(metric)
            with place:
                widgets.chart(
                    views.curves(
                        view.shown,
                        curve,
                        metric,
                        theme(),
                        view.align,
                        view.window,
                        height=250,
                        legend=False,
                        counted=view.judged.runs,
                    ),
                    key=f"compare-{metric.id.replace(':', '-')}",
                    how=f"{metric.doc.capitalize()}.\n{MAIN_HOW}",
                    frame=curve,
                )
                st.caption(words.ranking(view.shown, view.ends(metric), metric))


def _verdicts(
    view: View, found: Mapping[str, Outcome], exams: Mapping[str, pd.DataFrame] | None, base: Family | None
) -> None:
    """Who ends highest, and a sentence for each method against the base."""
    lines = [text for text in [words.ranking(view.shown, found, view.metric)] if text]
    if base is None:
        only = view.shown[0]
        lines.append(
            f"Only {inert_markdown(only.label)} is here ({count(only.n, 'seed')}): choose a run of another method, or "
            "with other settings, to compare it with."
        )
        widgets.verdict("  \n".join(lines))
        return
    pairs = [words.judge(family, base, view.shown, found, exams) for family in view.shown if family is not base]
    if len(pairs) > MOST_SENTENCES:
        widgets.verdict("  \n".join([*lines, words.conclusion(pairs, base)]))
        table = words.pair_table(pairs, base, view.metric)
        st.table(table, border="horizontal", hide_index=True)
        downloads.menu(f"compare pairs {view.metric.id}", key="compare-pairs", frame=table, label="These comparisons")
    else:
        widgets.verdict("  \n".join([*lines, *(words.sentence(pair, base, view.metric) for pair in pairs)]))
    if sure := words.how_sure(pairs):
        st.caption(sure)
    if view.judged.left_out:
        st.caption(_left_out(view.judged))
    seeds.offer(view.shown)


def _left_out(judged: Judged) -> str:
    named = [f"{inert_markdown(member.info.name)} ({why})" for member, why in judged.left_out[:4]]
    more = f" and {len(judged.left_out) - 4} more" if len(judged.left_out) > 4 else ""
    return f"Drawn, but not in the numbers: {', '.join(named)}{more}."


def _main(view: View) -> None:
    curve, counted = view.curve(view.metric), view.counted(view.metric)
    end = comparison.common_end(counted)
    uneven = counted.groupby("run")["x"].max().nunique() > 1
    metric, align = view.metric, view.align
    widgets.chart(
        views.curves(
            view.shown,
            curve,
            metric,
            theme(),
            align,
            view.window,
            end=end if uneven else None,
            height=400 + 24 * (len(view.shown) // 3),  # the legend takes what it needs
            counted=view.judged.runs,
        ),
        key="compare-main",
        how=f"{metric.doc.capitalize()}.\n{MAIN_HOW}",
        frame=curve,
        alt=f"{metric.label} of {count(len(view.shown), 'method')} by {ALIGN[align]}",
    )
    if len(view.shown) > MANY:
        st.caption("Many methods: double-click one in the legend to see it alone, once more to see all.")
    have = set(curve["run"])
    if silent := [family.label for family in view.shown if not set(family.runs) & have]:
        st.caption(f"No value of this metric: {', '.join(map(inert_markdown, silent))}.")
    if uneven and end is not None:
        far = {"step": f"step {end:.0f}", "tokens": number(end, "sampled tokens"), "seconds": number(end, "s")}[align]
        why = "differ in length" if align == "step" else "did not spend the same"
        st.caption(f"The runs {why}: all numbers compare them up to {far}, the dotted line.")


def _exams(view: View, exam: Callable[[str, int], pd.DataFrame]) -> dict[str, dict[str, pd.DataFrame]]:
    """The held-out prompts that stand behind a metric's final values, by run, of the metrics that have some."""
    if "pass_at_1" not in view.every:
        return {}
    return {"pass_at_1": {run: exam(run, one.step) for run, one in view.ends(view.every["pass_at_1"]).items()}}


def _glance(view: View, exams: Mapping[str, Mapping[str, pd.DataFrame]]) -> None:
    """Every number's highest and lowest method."""
    keys = dict.fromkeys([view.metric.id, *comparison.SMALL])
    every = [view.every[key] for key in keys if key in view.every]
    found = [(metric, view.ends(metric)) for metric in every]
    frame = words.glance(view.shown, found, exams)
    if frame.empty:
        return
    with st.container(horizontal=True, wrap=False, vertical_alignment="center", gap="small"):
        st.markdown("**Who ends highest**", width="content")  # the button beside it: at the edge it reaches beyond
        widgets.how_to_read(GLANCE_HOW)
        downloads.menu("compare who ends highest", key="compare-glance", frame=frame)
    st.table(frame, border="horizontal", hide_index=True)
    st.caption(words.glance_note(view.shown, found))


def _table(view: View, found: Mapping[str, Outcome], threshold: float) -> None:
    metric, align = view.metric, view.align
    steady = "" if metric.table == "evals" else f" with the mean of {comparison.STEADY} steps"
    text, tool = st.columns([3, 1], vertical_alignment="bottom")
    text.markdown(
        "**In numbers**: means over seeds (lowest to highest). Area is under the curve, divided by its width. "
        f"Reached: the first {ALIGN[align]} at or past the threshold{steady}."
    )
    tool.number_input("Threshold", format="%.3g", step=0.05, **urls.bound(_threshold_param(metric), threshold))
    st.dataframe(words.summary(view.shown, found, metric, align), hide_index=True, width="stretch")
    downloads.menu(
        f"compare {metric.id}", key="compare-table", frame=words.every_run(view.shown, found),
        label="Every run's numbers",
    )  # fmt: skip


def _threshold_param(metric: Metric) -> str:
    """Each metric has a threshold of its own in the address, so that choosing another one does not carry it over."""
    return f"threshold_{metric.id.replace(':', '_')}"
