"""Compare in pictures: curves with a band over seeds, and every run's final value. Frames in, figures out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from app.inert import inert_plotly
from app.palette import Theme, rgba
from app.views.base import figure
from app.views.comparison import ALIGN, Align, Metric, Outcome, mean_curve, thinned
from app.views.families import Family
from app.words import number
from core.stats.differences import smooth

MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "triangle-down", "pentagon", "star")
"""A family's seeds differ in their marker."""
FLAT = 1e-3
"""Curves that vary by less than this share of their value are drawn as flat."""
MOST_POINTS = 400
"""Points of a run's curve at most; longer ones are thinned out evenly, after smoothing."""
MOST_TOGETHER = 8000
"""Points of a figure's runs together at most."""


def curves(
    shown: Sequence[Family],
    curve: pd.DataFrame,
    metric: Metric,
    theme: Theme,
    align: Align = "step",
    window: int = 1,
    height: int = 400,
    legend: bool = True,
    end: float | None = None,
    counted: Collection[str] | None = None,
) -> go.Figure:
    """One metric of all families. A family of one is its run; of several the mean, with a band from the lowest to the
    highest seed, drawn where all seeds have a value. Each seed stays visible as a thin line with its own markers.

    `counted`: the runs that mean and band are about (all, if not given); the others are thin lines alone.

    `window` > 1 smooths training metrics (never evaluations) and keeps the raw points as dots. `end` marks the last
    common x.
    """
    fig = figure(
        theme, title=f"{metric.label[0].upper()}{metric.label[1:]} by {ALIGN[align].removesuffix(' (s)')}",
        x=ALIGN[align], y=metric.axis if legend else metric.unit or metric.label,  # a small one has no room for both
        height=height, legend=legend, hover="x unified" if align == "step" else "closest",
    )  # fmt: skip
    window = window if metric.table == "metrics" else 1
    most = most_points(curve["run"].nunique())
    traces: list[dict[str, Any]] = []
    by_run = {run: _smoothed(part, window) for run, part in curve.groupby("run", sort=False)}
    for family in shown:
        runs = [run for run in family.runs if run in by_run]
        runs = [run for run in runs if counted is None or run in counted] or runs
        if len(runs) > 1:
            traces += _band(family, mean_curve([by_run[run] for run in runs]), len(runs))
        for place, member in enumerate(family.members):
            if member.id not in by_run:
                continue
            own = thinned(by_run[member.id], most)
            alone = runs == [member.id]
            name = inert_plotly(family.label) if alone else f"seed {member.info.seed}"
            traces.append(_line(family, own, name, MARKERS[place % len(MARKERS)], alone=alone))
            if window > 1:
                traces.append(_raw(family, own))
    fig.add_traces(traces)
    if end is not None:
        fig.add_vline(x=end, line={"color": theme.muted, "width": 1, "dash": "dot"})
    low, high = curve["value"].min(), curve["value"].max()
    if high - low < FLAT * max(abs(low), abs(high)):  # rounding noise is no curve
        middle = (low + high) / 2
        fig.update_yaxes(range=[middle - abs(middle) / 2, middle + abs(middle) / 2])
    fig.layout.uirevision = "keep"  # a redrawn figure keeps the reader's zoom
    return fig


def most_points(runs: int) -> int:
    """Points of each run's curve, where so many runs share a figure."""
    return max(60, min(MOST_POINTS, MOST_TOGETHER // max(1, runs)))


def finals(shown: Sequence[Family], found: Mapping[str, Outcome], metric: Metric, theme: Theme) -> go.Figure:
    """The final value of every run as a point, one row a family, with the family's mean as a bar."""
    fig = figure(
        theme, title="Final value of every run", x=metric.axis, y="", height=110 + 44 * len(shown), legend=False,
        hover="closest",
    )  # fmt: skip
    for row, family in enumerate(shown):
        mine = [(place, member, found[member.id]) for place, member in enumerate(family.members) if member.id in found]
        if len(mine) > 1:
            mean = sum(one.final for _, _, one in mine) / len(mine)
            fig.add_shape(
                type="line", x0=mean, x1=mean, y0=row - 0.3, y1=row + 0.3, line={"color": family.colour, "width": 3}
            )
        if mine:
            fig.add_scatter(
                x=[one.final for _, _, one in mine], y=[row] * len(mine), mode="markers",
                name=inert_plotly(family.label),
                marker={
                    "symbol": [MARKERS[place % len(MARKERS)] for place, _, _ in mine], "size": 11,
                    "color": rgba(family.colour, 0.75), "line": {"color": theme.background, "width": 1},
                },
                text=[
                    f"{inert_plotly(family.label)}, seed {member.info.seed}: {number(one.final)}"
                    for _, member, one in mine
                ],
                hovertemplate="%{text}<extra></extra>",
            )  # fmt: skip
    counts = [sum(run in found for run in family.runs) for family in shown]
    fig.update_yaxes(
        tickvals=list(range(len(shown))), showgrid=False, range=[len(shown) - 0.4, -0.6], zeroline=False,
        ticktext=[f"{inert_plotly(family.label, 26)}<br>n = {n}" for family, n in zip(shown, counts, strict=True)],
    )  # fmt: skip
    return fig


def _smoothed(curve: pd.DataFrame, window: int) -> pd.DataFrame:
    """One run's curve with `raw` kept and `value` smoothed."""
    return curve.assign(raw=curve["value"], value=smooth(curve["value"], window))


def _band(family: Family, mean: pd.DataFrame, n: int) -> list[dict[str, Any]]:
    """The edges from the lowest to the highest seed, filled, and the mean over them."""
    common = {"type": "scatter", "x": _floats(mean["x"]), "mode": "lines", "legendgroup": family.key}
    edge = {**common, "line": {"width": 0}, "showlegend": False, "hoverinfo": "skip"}
    return [
        {**edge, "y": _floats(mean["high"]), "name": "highest"},
        {
            **edge, "y": _floats(mean["low"]), "name": "lowest", "fill": "tonexty",
            "fillcolor": rgba(family.colour, 0.16),
        },
        {
            **common, "y": _floats(mean["mean"]), "name": f"{inert_plotly(family.label)}, mean of n = {n}",
            "line": {"color": family.colour, "dash": family.dash, "width": 2.6},
            "customdata": mean[["low", "high"]].to_numpy(np.float32),
            "hovertemplate": "%{y:.3g} (%{customdata[0]:.3g} to %{customdata[1]:.3g})",
        },
    ]  # fmt: skip


def _line(family: Family, own: pd.DataFrame, name: str, marker: str, alone: bool) -> dict[str, Any]:
    """A run: a full line if it is the family's only one, else a thin one under the mean, told apart by its marker."""
    return {
        "type": "scatter", "x": _floats(own["x"]), "y": _floats(own["value"]), "mode": "lines+markers",
        "name": f"{name}, n = 1" if alone else name,
        "legendgroup": family.key, "showlegend": alone, "opacity": 1 if alone else 0.55,
        "line": {"color": family.colour, "dash": family.dash if alone else "solid", "width": 2.4 if alone else 1},
        "marker": {"symbol": marker, "size": 6 if len(own) <= 30 else 5, "maxdisplayed": 14},
        **({"hovertemplate": "%{y:.3g}"} if alone else {"hoverinfo": "skip"}),
    }  # fmt: skip


def _floats(values: pd.Series) -> np.ndarray:
    """Half the bytes at every refresh; more digits than a screen shows."""
    return values.to_numpy(np.float32)


def _raw(family: Family, own: pd.DataFrame) -> dict[str, Any]:
    """What was measured, as dots beside the smoothed line."""
    return {
        "type": "scatter", "x": _floats(own["x"]), "y": _floats(own["raw"]), "mode": "markers",
        "name": "raw", "legendgroup": family.key, "showlegend": False, "hoverinfo": "skip",
        "marker": {"size": 3.5, "color": rgba(family.colour, 0.4)},
    }  # fmt: skip
