"""Figures of the Live page: curves of one run in detail, or of up to six runs on the same axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from app.inert import inert_html, inert_plotly
from app.palette import Theme, rgba
from app.views.base import figure
from core.store.queries.live import Curves

MOST_POINTS = 500
LOG_TICKS = [digit * 10.0**power for power in range(-7, 3) for digit in (1, 2, 5)]
WHOLE_STEPS = 10
"""Up to so many steps each has its tick: between two of them there is nothing."""
NARROWEST = 0.05
"""Of an axis around a level: the least that it shows on either side, as a share of the level."""
_BORDER = {"solid": "solid", "dot": "dotted", "dashdot": "double"}


@dataclass(frozen=True)
class Series:
    """One run on the axes: who it is, how it is drawn, what was read of it."""

    run: str
    name: str
    colour: str
    dash: str
    curves: Curves


@dataclass(frozen=True)
class Line:
    """One column of one run, with its name and look."""

    series: Series
    column: str
    name: str
    colour: str
    dash: str = "solid"
    table: str = "metrics"


def one_each(series: Sequence[Series], column: str, table: str = "metrics") -> list[Line]:
    """The same column of every run, each run in its own colour."""
    return [Line(run, column, run.name, run.colour, run.dash, table) for run in series]


def by_polarity(run: Series, theme: Theme, column: str, both: bool = True) -> list[Line]:
    """A column of one run over all rollouts, and over the right and the wrong ones."""
    lines = [Line(run, column, "all", theme.text)] if both else []
    return [
        *lines,
        Line(run, f"{column}_correct", "+ correct", theme.reinforced),
        Line(run, f"{column}_wrong", "− wrong", theme.suppressed, "dash"),
    ]


def mass_lines(run: Series, theme: Theme) -> list[Line]:
    """Advantage mass of one run by polarity, after shaping and before."""
    return [
        Line(run, "mass_positive", "+ correct", theme.reinforced),
        Line(run, "mass_negative", "− wrong", theme.suppressed),
        Line(run, "mass_positive_base", "+ before shaping", theme.reinforced, "dot"),
        Line(run, "mass_negative_base", "− before shaping", theme.suppressed, "dot"),
    ]


def numbers(lines: Sequence[Line]) -> pd.DataFrame:
    """What a figure draws, unsmoothed: run, step and a column for each line's quantity."""
    parts: dict[str, pd.DataFrame] = {}
    for line in lines:
        table = getattr(line.series.curves, line.table)
        if line.column not in table:
            continue
        column = table[["step", line.column]].assign(run=line.series.run)
        known = parts.get(line.series.run)
        parts[line.series.run] = column if known is None else known.merge(column, on=["run", "step"], how="outer")
    if not parts:
        return pd.DataFrame({"run": [], "step": []})
    whole = pd.concat(parts.values(), ignore_index=True)
    return whole[["run", "step", *(name for name in whole.columns if name not in ("run", "step"))]]


def curves(
    theme: Theme,
    lines: Sequence[Line],
    *,
    title: str,
    y: str,
    smooth: int = 1,
    share: bool = False,
    level: float | None = None,
    log: bool = False,
    height: int = 250,
) -> go.Figure:
    """Lines over steps. `smooth` is the width in steps of a trailing mean, over the pale raw values; `share` fixes the
    axis at 0 to 1; `level` draws a line there, in the middle of the axis; `log` makes it logarithmic. Evaluations
    are drawn as points joined by lines, never smoothed."""
    several_runs = len({line.series.run for line in lines}) > 1
    fig = figure(theme, title=title, x="step", y=y, height=height, legend=len(lines) > 1 and not several_runs)
    traces = []
    count = 0
    for line in lines:
        table = getattr(line.series.curves, line.table)
        if line.column not in table:
            continue
        values = pd.to_numeric(table[line.column], errors="coerce").astype(float)
        if not values.notna().any():
            continue
        count += 1
        width = smooth if line.table == "metrics" else 1
        if width > 1 and len(values) > 2:
            traces.append(_trace(line, table["step"], values, pale=True))
            values = values.rolling(width, min_periods=1).mean()
        traces.append(_trace(line, table["step"], values, pale=False))
    fig.add_traces(traces)
    layout = fig.layout
    layout.uirevision, layout.meta = "keep", {"drawn": count}  # a redrawn figure keeps the reader's zoom
    layout.xaxis.rangemode, layout.xaxis.tickformat = "tozero", "d"
    if max((max(trace.x, default=0) for trace in traces), default=0) <= WHOLE_STEPS:
        layout.xaxis.dtick = 1
    layout.yaxis.rangemode = "tozero"
    if share:
        layout.yaxis.range, layout.yaxis.tickformat = [0, 1.02], ".0%"
    if log:
        layout.yaxis.type, layout.yaxis.tickvals = "log", LOG_TICKS
        layout.yaxis.ticktext = [f"{value:g}" for value in LOG_TICKS]
    if level is not None:
        fig.add_hline(level, line={"color": theme.muted, "width": 1}, layer="below")
        layout.yaxis.range = _around(level, traces)
    return fig


def _around(level: float, traces: Sequence[go.Scatter]) -> list[float]:
    """An axis with the level in its middle: all points on it, and never so narrow that rounding looks like a move."""
    values = np.concatenate([np.asarray(trace.y, dtype=float) for trace in traces]) if traces else np.zeros(0)
    reach = 1.1 * max(NARROWEST * abs(level), *np.abs(values[np.isfinite(values)] - level), 0)
    return [level - reach, level + reach]


def recorded(run: Series, column: str) -> bool:
    """Whether any step of the run has a value of this metric."""
    return column in run.curves.metrics and bool(run.curves.metrics[column].notna().any())


def one_model(run: Series) -> bool:
    """Whether the trainer took over the sampler's numbers in every step: the model that sampled is its own."""
    source = run.curves.metrics.get("entropy_source")
    return source is not None and bool((source == "sampler").all())


def drawn(fig: go.Figure) -> int:
    """How many lines of a `curves` figure have a value; 0 means: say so instead of drawing it."""
    return int(fig.layout.meta["drawn"])


def _trace(line: Line, steps: pd.Series, values: pd.Series, pale: bool) -> go.Scatter:
    stride = max(1, -(-len(values) // MOST_POINTS))
    keep = slice((len(values) - 1) % stride, None, stride)  # the newest point always stays
    points = line.table == "evals"
    return go.Scatter(
        x=steps.iloc[keep].to_numpy(),
        y=values.iloc[keep].to_numpy(np.float32),  # half the bytes at every refresh
        name=inert_plotly(line.name, 40),
        mode="lines+markers" if points or len(values) == 1 else "lines",
        line={"color": rgba(line.colour, 0.22) if pale else line.colour, "width": 1 if pale else 2, "dash": line.dash},
        marker={"size": 6, "color": line.colour},
        hoverinfo="skip" if pale else None,
        hovertemplate=None if pale else "%{y:.3g}",
        showlegend=not pale,
        connectgaps=True,
    )


def legend_html(series: Sequence[Series]) -> str:
    """One legend for all figures of several runs: each run's line as it is drawn, and its name."""
    items = [
        '<span style="display:inline-flex;align-items:center;gap:.5rem">'
        f'<span style="display:inline-block;width:30px;border-top:3px {_BORDER.get(run.dash, "dashed")} {run.colour}">'
        f"</span>{inert_html(run.name)}</span>"
        for run in series
    ]
    return f'<div style="display:flex;flex-wrap:wrap;gap:.3rem 1.4rem;font-size:.9rem">{"".join(items)}</div>'
