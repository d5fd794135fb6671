"""Compare in pictures: curves with a band over seeds, and every run's final value. Frames in, figures out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd
import plotly.graph_objects as go

from app.inert import inert_plotly
from app.palette import Theme, rgba
from app.views.base import figure
from app.views.comparison import ALIGN, Align, Metric, Outcome, mean_curve
from app.views.families import Family
from app.words import number
from core.stats.differences import smooth

MARKERS = ("circle", "square", "diamond", "triangle-up", "x", "triangle-down", "pentagon", "star")
"""A family's seeds differ in their marker."""
FLAT = 1e-3
"""Curves that vary by less than this share of their value are drawn as flat."""


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
) -> go.Figure:
    """One metric of all families. A family of one is its run; of several the mean, with a band from the lowest to the
    highest seed, drawn where all seeds have a value. Each seed stays visible as a thin line with its own markers.

    `window` > 1 smooths training metrics (never evaluations) and keeps the raw points as dots. `end` marks the last
    common x.
    """
    fig = figure(
        theme, title=metric.label[0].upper() + metric.label[1:], x=ALIGN[align], y=metric.unit or metric.label,
        height=height, legend=legend, hover="x unified" if align == "step" else "closest",
    )  # fmt: skip
    window = window if metric.table == "metrics" else 1
    for family in shown:
        smoothed = _smoothed(curve[curve["run"].isin(family.runs)], window)
        runs = [run for run in family.runs if (smoothed["run"] == run).any()]
        if len(runs) > 1:
            _band(fig, family, mean_curve(smoothed, runs), len(runs))
        for place, member in enumerate(family.members):
            own = smoothed[smoothed["run"] == member.id]
            if len(own):
                name = inert_plotly(family.label) if len(runs) == 1 else f"seed {member.info.seed}"
                _line(fig, family, own, name, MARKERS[place % len(MARKERS)], alone=len(runs) == 1)
        if window > 1:
            fig.add_scatter(
                x=smoothed["x"], y=smoothed["raw"], mode="markers", legendgroup=family.key, showlegend=False,
                marker={"size": 3, "color": rgba(family.colour, 0.28)}, name="raw", hoverinfo="skip",
            )  # fmt: skip
    if end is not None:
        fig.add_vline(x=end, line={"color": theme.muted, "width": 1, "dash": "dot"})
    low, high = curve["value"].min(), curve["value"].max()
    if high - low < FLAT * max(abs(low), abs(high)):  # rounding noise is no curve
        middle = (low + high) / 2
        fig.update_yaxes(range=[middle - abs(middle) / 2, middle + abs(middle) / 2])
    return fig


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
        for place, member, one in mine:
            fig.add_scatter(
                x=[one.final], y=[row], mode="markers", name=inert_plotly(family.label),
                marker={
                    "symbol": MARKERS[place % len(MARKERS)], "size": 11, "color": rgba(family.colour, 0.75),
                    "line": {"color": theme.background, "width": 1},
                },
                text=[f"{inert_plotly(family.label)}, seed {member.info.seed}: {number(one.final)}"],
                hovertemplate="%{text}<extra></extra>",
            )  # fmt: skip
    counts = [sum(run in found for run in family.runs) for family in shown]
    fig.update_yaxes(
        tickvals=list(range(len(shown))), showgrid=False, range=[len(shown) - 0.4, -0.6], zeroline=False,
        ticktext=[f"{inert_plotly(family.label, 26)}<br>n = {n}" for family, n in zip(shown, counts, strict=True)],
    )  # fmt: skip
    return fig


def _smoothed(curve: pd.DataFrame, window: int) -> pd.DataFrame:
    """The curve with `raw` kept and `value` smoothed run by run."""
    out = curve.rename(columns={"value": "raw"})
    out["value"] = out.groupby("run")["raw"].transform(lambda values: smooth(values, window))
    return out


def _band(fig: go.Figure, family: Family, mean: pd.DataFrame, n: int) -> None:
    group = {"legendgroup": family.key, "hoverinfo": "skip"}
    edge = {"x": mean["x"], "mode": "lines", "line": {"width": 0}, "showlegend": False, **group}
    fig.add_scatter(y=mean["high"], name="highest", **edge)
    fig.add_scatter(y=mean["low"], name="lowest", fill="tonexty", fillcolor=rgba(family.colour, 0.16), **edge)
    fig.add_scatter(
        x=mean["x"], y=mean["mean"], mode="lines", line={"color": family.colour, "dash": family.dash, "width": 2.6},
        legendgroup=family.key, name=f"{inert_plotly(family.label)}, mean of n = {n}",
        customdata=mean[["low", "high"]], hovertemplate="%{y:.3g} (%{customdata[0]:.3g} to %{customdata[1]:.3g})",
    )  # fmt: skip


def _line(fig: go.Figure, family: Family, own: pd.DataFrame, name: str, marker: str, alone: bool) -> None:
    """A run: a full line if it is the family's only one, else a thin one under the mean, told apart by its marker."""
    fig.add_scatter(
        x=own["x"], y=own["value"], mode="lines+markers", name=f"{name}, n = 1" if alone else name,
        legendgroup=family.key, showlegend=alone, opacity=1 if alone else 0.55,
        line={"color": family.colour, "dash": family.dash if alone else "solid", "width": 2.4 if alone else 1},
        marker={"symbol": marker, "size": 6 if len(own) <= 30 else 5, "maxdisplayed": 14},
        hovertemplate="%{y:.3g}" if alone else None, hoverinfo=None if alone else "skip",
    )  # fmt: skip
