"""Comparing families of runs in numbers: which metrics there are, their curves, the table, the verdict.

Frames come from `core.store.queries.compare`. A curve is a frame of run, step, x, value.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from app.inert import inert_markdown
from app.views.families import Family
from app.words import DASH, count, number
from core.stats.differences import Difference, area, final, first_reach, over_prompts, over_seeds

Align = Literal["step", "tokens", "seconds"]
ALIGN = {"step": "step", "tokens": "sampled tokens", "seconds": "training time (s)"}


@dataclass(frozen=True)
class Metric:
    """A number of a run over its steps. `better`: +1 more is better, -1 less, 0 neither. `table`: evals or metrics."""

    id: str
    label: str
    unit: str
    table: Literal["evals", "metrics"]
    better: int
    doc: str
    trait: bool = False

    @property
    def axis(self) -> str:
        return f"{self.label} ({self.unit})" if self.unit else self.label


METRICS = (
    Metric("pass_at_1", "held-out pass@1", "", "evals", 1, "mean pass rate on prompts that no run trained on"),
    Metric("greedy", "held-out greedy pass", "", "evals", 1, "share of held-out prompts solved at temperature 0"),
    Metric("pass_at_k", "held-out pass@k", "", "evals", 1, "unbiased pass@k on held-out prompts"),
    Metric("reward", "reward", "", "metrics", 1, "mean reward of the step's rollouts"),
    Metric("entropy", "entropy", "nats", "metrics", 0, "mean entropy over response tokens"),
    Metric("length_correct", "length of correct answers", "tokens", "metrics", 0, "mean over correct rollouts"),
    Metric("length", "length", "tokens", "metrics", 0, "mean response length"),
    Metric("mass_ratio", "advantage mass, positive : negative", "", "metrics", 0,
           "loss weight × |advantage|, summed over correct rollouts and divided by the sum over wrong ones"),
    Metric("mass_positive", "advantage mass of correct rollouts", "", "metrics", 0, "sum of loss weight × |advantage|"),
    Metric("mass_negative", "advantage mass of wrong rollouts", "", "metrics", 0, "sum of loss weight × |advantage|"),
    Metric("no_signal_share", "groups without signal", "share", "metrics", -1, "groups whose rewards are all equal"),
    Metric("favorable_share", "favorable prompts", "share", "metrics", 0, "share of groups classed favorable"),
    Metric("truncated_share", "truncated answers", "share", "metrics", -1, "rollouts stopped by the length limit"),
    Metric("kl", "KL to the base model", "nats", "metrics", 0, "k3 estimate, where it was computed"),
    Metric("grad_norm", "gradient norm", "", "metrics", 0, "before clipping, mean over the step's updates"),
    Metric("update_norm", "update norm", "", "metrics", 0, "norm of the change of the adapter over the step"),
)  # fmt: skip
TRAITS = {
    "self_check": "answers with a self-check", "wait": "answers with a wait", "direct": "direct answers",
    "lucky": "right by luck",
}  # fmt: skip
SMALL = ("pass_at_1", "reward", "entropy", "length_correct", "trait:self_check", "mass_ratio", "no_signal_share")
"""The metrics shown small under the chosen one."""


def available(metrics: pd.DataFrame, evals: pd.DataFrame) -> list[Metric]:
    """The metrics that at least one of the runs has a value of; traits of the verifier are called `trait:<name>`."""
    names = sorted({name for traits in metrics["traits"] if isinstance(traits, Mapping) for name in traits})
    traits = [
        Metric(f"trait:{name}", TRAITS.get(name, name.replace("_", " ")), "share" if name in TRAITS else "mean",
               "metrics", 0, "mean of this number of the verifier over the step's rollouts", trait=True)
        for name in names
    ]  # fmt: skip
    place = next(i for i, metric in enumerate(METRICS) if metric.id == "mass_ratio")
    every = [*METRICS[:place], *traits, *METRICS[place:]]
    frames = {"metrics": metrics, "evals": evals}
    return [metric for metric in every if _values(frames[metric.table], metric).notna().any()]


def curves(metrics: pd.DataFrame, evals: pd.DataFrame, metric: Metric, align: Align = "step") -> pd.DataFrame:
    """The metric of every run: run, step, x, value, by run and step; steps without a value are left out.

    x is the step, or what the run had spent before that step's update: sampled tokens, or seconds of training steps.
    """
    frame = metrics if metric.table == "metrics" else evals
    out = frame[["run", "step"]].assign(value=_values(frame, metric).to_numpy(dtype=float))
    out = out[np.isfinite(out["value"])]
    out["x"] = out["step"].astype(float)
    if align != "step":
        column = {"tokens": "tokens", "seconds": "time_step"}[align]
        spent = metrics[["run", "step", column]].copy()
        spent["before"] = spent.groupby("run")[column].cumsum() - spent[column]
        spent["after"] = spent["before"] + spent[column]
        out = out.merge(spent[["run", "step", "before"]], on=["run", "step"], how="left")
        last = spent.groupby("run")["after"].max()
        out["x"] = out.pop("before").fillna(out["run"].map(last)).astype(float)
    return out[["run", "step", "x", "value"]].reset_index(drop=True)


def mean_curve(curve: pd.DataFrame, runs: Sequence[str]) -> pd.DataFrame:
    """Over the seeds of a family, where every one of them has a value: step, x, mean, low and high (the extremes)."""
    own = curve[curve["run"].isin(runs)]
    have = own["run"].nunique()
    by_step = own.groupby("step").agg(
        x=("x", "mean"), mean=("value", "mean"), low=("value", "min"), high=("value", "max"), n=("value", "size")
    )
    return by_step[by_step["n"] == have].drop(columns="n").reset_index()


def common_end(curve: pd.DataFrame) -> int | None:
    """The last step that every run has reached: values are compared up to here. None without a point."""
    return int(curve.groupby("run")["step"].max().min()) if len(curve) else None


@dataclass(frozen=True)
class Outcome:
    """What a run came to: its final value, the area under its curve, and when it reached the threshold (NaN: never)."""

    run: str
    final: float
    area: float
    reached: float


def outcomes(curve: pd.DataFrame, metric: Metric, threshold: float) -> dict[str, Outcome]:
    """The outcome of each run, all up to the last common step.

    Final: the last evaluation, or the mean of the last tenth of the training steps (at least 5). Area: divided by
    its span of x, so its unit is the metric's. Reached: the first x at or past the threshold, seen from the runs' mean
    start.
    """
    end, out = common_end(curve), {}
    rising = bool(curve.groupby("run")["value"].first().mean() <= threshold)
    for run, part in curve.groupby("run", sort=False):
        part = part[part["step"] <= end]
        last = final(part["value"], share=0) if metric.table == "evals" else final(part["value"], least=5)
        out[str(run)] = Outcome(
            str(run), last, area(part["x"], part["value"]), first_reach(part["x"], part["value"], threshold, rising)
        )
    return out


def default_threshold(curve: pd.DataFrame) -> float:
    """Half the way from where the runs start to the highest (or lowest) value they end at, to 2 significant digits."""
    if curve.empty:
        return 0.5
    by_run = curve.groupby("run")["value"]
    start, ends = float(by_run.first().mean()), by_run.last()
    far = float(ends.loc[(ends - start).abs().idxmax()])
    middle = (start + far) / 2
    return float(f"{middle:.2g}")


def summary(shown: Sequence[Family], found: Mapping[str, Outcome], metric: Metric, align: Align) -> pd.DataFrame:
    """One row a family in plain text: method, seeds, final, area under curve, and when the threshold was reached."""
    rows = []
    for family in shown:
        mine = [found[run] for run in family.runs if run in found]
        rows.append(
            {
                "Method": family.label,
                "Seeds": len(mine),
                f"Final {metric.axis}": _spread([one.final for one in mine]),
                "Area under curve": _spread([one.area for one in mine]),
                "Threshold reached": _when([one.reached for one in mine], align),
            }
        )
    return pd.DataFrame(rows)


def every_run(shown: Sequence[Family], found: Mapping[str, Outcome]) -> pd.DataFrame:
    """One row a run: method, run, seed, final, area, reached."""
    rows = [
        {"method": family.label, "run": one.id, "seed": one.info.seed, **vars(found[one.id])}
        for family in shown
        for one in family.members
        if one.id in found
    ]
    return pd.DataFrame(rows, columns=["method", "run", "seed", "final", "area", "reached"])


def difference(family: Family, base: Family, found: Mapping[str, Outcome]) -> Difference:
    """Final value of a family minus the base's, seeds as the unit of repetition."""
    mine, theirs = ([found[run].final for run in side.runs if run in found] for side in (family, base))
    return over_seeds(mine, theirs)


def exam_difference(a: Sequence[pd.DataFrame], b: Sequence[pd.DataFrame]) -> Difference:
    """Pass rates of two families on the same held-out prompts, paired by prompt; one frame of `queries.exam` a run."""
    left, right = (
        pd.concat([frame[["prompt_id", "pass_rate"]] for frame in frames]).groupby("prompt_id")["pass_rate"].mean()
        if frames
        else pd.Series(dtype=float)
        for frames in (a, b)
    )
    shared = left.index.intersection(right.index)
    return over_prompts(left.loc[shared].to_numpy(dtype=float), right.loc[shared].to_numpy(dtype=float))


def sentence(family: Family, base: Family, metric: Metric, found: Difference, exam: Difference | None = None) -> str:
    """The verdict on one pair, in Markdown, with its interval and its n."""
    head = f"**{inert_markdown(family.label)} − {inert_markdown(base.label)}**, final {inert_markdown(metric.label)}"
    if math.isnan(found.value):
        return f"{head}: no value to compare yet."
    value = number(found.value, metric.unit if metric.unit != "share" else "", signed=True)
    seeds = count(found.n_a, "seed") if found.n_a == found.n_b else f"{found.n_a} and {found.n_b} seeds"
    if found.has_interval:
        each = " each" if found.n_a == found.n_b else ""
        return f"{head}: {value} {_interval(found)}, {seeds}{each}: **{found.verdict}**."
    if min(found.n_a, found.n_b) >= 2:
        return f"{head}: {value}, {seeds}: every seed gave the same value, so there is no spread to judge by."
    lone = "one seed each" if found.n_a == found.n_b == 1 else f"{seeds}"
    text = f"{head}: {value}, {lone}: **one seed cannot tell a better method from luck**."
    if exam is not None and exam.has_interval:
        text += (
            f" Over the {count(exam.n_a, 'held-out prompt')}: {number(exam.value, signed=True)} {_interval(exam)}. "
            "That covers which prompts were asked, not which seed trained."
        )
    return text


def _interval(found: Difference) -> str:
    low, high = number(found.low, signed=True), number(found.high, signed=True)
    return f"\\[{low}, {high}\\]"


def _spread(values: Sequence[float]) -> str:
    """`0.781 (0.766 to 0.79)`: the mean and the extremes; a dash without a value."""
    values = [value for value in values if not math.isnan(value)]
    if not values:
        return DASH
    text = number(float(np.mean(values)))
    return f"{text} ({number(min(values))} to {number(max(values))})" if len(values) > 1 else text


def _when(reached: Sequence[float], align: Align) -> str:
    """`step 40 (35 to 45), 2 of 3 seeds`: the mean and the extremes of those that reached it."""
    got = [value for value in reached if not math.isnan(value)]
    if not got:
        return "not reached" if len(reached) else DASH
    one = {"step": "step {:.0f}", "tokens": "{} tokens", "seconds": "{} s"}[align]
    text = one.format(float(np.mean(got)) if align == "step" else number(float(np.mean(got))))
    if len(got) > 1:
        text += f" ({number(min(got))} to {number(max(got))})"
    return text + (f", {len(got)} of {len(reached)} seeds" if len(reached) > 1 else "")


def _values(frame: pd.DataFrame, metric: Metric) -> pd.Series:
    if metric.trait:
        name = metric.id.removeprefix("trait:")
        found = [traits.get(name) if isinstance(traits, Mapping) else None for traits in frame["traits"]]
        return pd.Series(found, index=frame.index, dtype=float)
    if metric.id == "mass_ratio":
        negative = frame["mass_negative"].where(frame["mass_negative"] > 0)
        return (frame["mass_positive"] / negative).astype(float)
    return frame[metric.id].astype(float)
