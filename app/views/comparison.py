"""Comparing families of runs in numbers: which metrics there are, their curves, what they come to, and by how much.

Frames come from `core.store.queries.compare`. A curve is a frame of run, step, x, value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd

from app.views.families import Family
from core.stats.bootstrap import LEAST_PROMPTS, Bootstrap, paired_bootstrap
from core.stats.differences import LEVEL, Difference, area, final, first_reach, over_seeds

Align = Literal["step", "tokens", "seconds"]
ALIGN = {"step": "step", "tokens": "sampled tokens", "seconds": "training time (s)"}
GRID = 400
"""Points of a mean over seeds at most."""
STEADY = 5
"""Steps whose mean stands for a training metric, where one step alone would be noise."""


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
    "lucky": "right by luck", "answered": "answers that can be read", "formed": "answers of the right form",
    "timed_out": "verified for too long",
}  # fmt: skip
SMALL = ("pass_at_1", "reward", "entropy", "length_correct", "trait:self_check", "mass_ratio", "no_signal_share")
"""The metrics shown small under the chosen one."""


def trait_words(name: str) -> str:
    """What a number of the verifier is called; `part_NAME` is a part of the reward."""
    part = name.removeprefix("part_")
    return TRAITS.get(name) or (part if part == name else f"reward: its part {part}").replace("_", " ")


def available(metrics: pd.DataFrame, evals: pd.DataFrame) -> list[Metric]:
    """The metrics that at least one of the runs has a value of; traits of the verifier are called `trait:<name>`."""
    names = sorted({name for traits in metrics["traits"] if isinstance(traits, Mapping) for name in traits})
    traits = [
        Metric(f"trait:{name}", trait_words(name), "share" if name in TRAITS else "mean",
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


def mean_curve(parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Over the curves of a family's seeds at the same x: x, mean, low and high (the extremes), where all have a value.

    Each seed is read between its points by straight lines, so that seeds which spent unlike numbers of tokens or
    seconds on a step are still averaged at equal cost. At most GRID points.
    """
    start, end = max(part["x"].iloc[0] for part in parts), min(part["x"].iloc[-1] for part in parts)
    grid = np.unique(np.concatenate([part["x"].to_numpy() for part in parts]))
    grid = thinned(grid[(grid >= start) & (grid <= end)], GRID)
    seeds = np.array([np.interp(grid, part["x"], part["value"]) for part in parts])
    return pd.DataFrame({"x": grid, "mean": seeds.mean(axis=0), "low": seeds.min(axis=0), "high": seeds.max(axis=0)})


def thinned(values: Any, most: int) -> Any:
    """At most `most` of an array's values or a frame's rows, evenly spaced, the last one always among them."""
    stride = max(1, -(-len(values) // most))
    return values[(len(values) - 1) % stride :: stride]


def common_end(curve: pd.DataFrame) -> float | None:
    """The last x that every run has reached: values are compared up to here. None without a point."""
    return float(curve.groupby("run")["x"].max().min()) if len(curve) else None


@dataclass(frozen=True)
class Outcome:
    """What a run came to: where it began and ended, the area under its curve, when it reached the threshold (NaN:
    never), and the last step that counts.
    """

    run: str
    start: float
    final: float
    area: float
    reached: float
    step: int


def outcomes(curve: pd.DataFrame, metric: Metric, threshold: float) -> dict[str, Outcome]:
    """The outcome of each run, all up to the last common x.

    Start and final: the first and the last evaluation, or the means of the first and the last tenth of the training
    steps (at least 5). Area: divided by its span of x, so its unit is the metric's. Reached: the first x at or past the
    threshold, seen from the runs' mean start; of training metrics, the mean of STEADY steps must be.
    """
    end, out = common_end(curve), {}
    rising = bool(curve.groupby("run")["value"].first().mean() <= threshold)
    share, least = (0.0, 1) if metric.table == "evals" else (0.1, STEADY)
    for run, part in curve.groupby("run", sort=False):
        part = part[part["x"] <= end]
        values = part["value"]
        steady = values if metric.table == "evals" else values.rolling(STEADY, min_periods=1).mean()
        out[str(run)] = Outcome(
            run=str(run),
            start=final(values[::-1], share, least),
            final=final(values, share, least),
            area=area(part["x"], values),
            reached=first_reach(part["x"], steady, threshold, rising),
            step=int(part["step"].iloc[-1]),
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


def difference(family: Family, base: Family, found: Mapping[str, Outcome], level: float = LEVEL) -> Difference:
    """Final value of a family minus the base's, seeds as the unit of repetition (Welch's t)."""
    mine, theirs = ([found[run].final for run in side.runs if run in found] for side in (family, base))
    return over_seeds(mine, theirs, level)


def resampled(
    family: Family, base: Family, found: Mapping[str, Outcome], exams: Mapping[str, pd.DataFrame] | None = None
) -> Bootstrap:
    """The same difference by a paired bootstrap: over seeds, and with `exams` over the held-out prompts that all of
    these runs answered.

    `exams` is a frame of `queries.exam` a run, at the step of its final value; a run without one takes no part.
    """
    sides = [
        {member.info.seed: found[member.id].final for member in side.members if member.id in found}
        for side in (family, base)
    ]
    if exams is not None:
        rates = [
            {
                member.info.seed: exams[member.id].set_index("prompt_id")["pass_rate"]
                for member in side.members
                if member.id in found and len(exams.get(member.id, ()))
            }
            for side in (family, base)
        ]
        shared = shared_prompts([one.index for side in rates for one in side.values()])
        if all(rates) and len(shared) >= LEAST_PROMPTS:
            sides = [{seed: one.loc[shared].to_numpy(dtype=float) for seed, one in side.items()} for side in rates]
    return paired_bootstrap(*({seed: np.atleast_1d(value) for seed, value in side.items()} for side in sides))


def shared_prompts(asked: Sequence[pd.Index]) -> pd.Index:
    """The prompts that every one of these exams asked, in the order of the first."""
    shared = asked[0] if asked else pd.Index([])
    for other in asked[1:]:
        shared = shared[shared.isin(other)]
    return shared


def _values(frame: pd.DataFrame, metric: Metric) -> pd.Series:
    if metric.trait:
        name = metric.id.removeprefix("trait:")
        found = [traits.get(name) if isinstance(traits, Mapping) else None for traits in frame["traits"]]
        return pd.Series(found, index=frame.index, dtype=float)
    if metric.id == "mass_ratio":
        negative = frame["mass_negative"].where(frame["mass_negative"] > 0)
        return (frame["mass_positive"] / negative).astype(float)
    return frame[metric.id].astype(float)
