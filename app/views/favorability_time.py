"""Classes over a run: their shares, their weights, and how a prompt goes from one visit to the next."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from app.palette import HATCH, Theme, rgba
from app.views.base import figure
from app.words import share
from core.stats.classes import CLASSES

_LINES = {"favorable": "solid", "unfavorable": "dash", "uniform": "dot"}


def shares_over_time(shares: pd.DataFrame, theme: Theme, window: int, step: int | None = None) -> go.Figure:
    """Share of the sampled groups in each class, stacked to 100 %, a running mean over `window` steps."""
    fig = figure(theme, title="Share of each class", x="step", y="share of groups (%)", height=290)
    fills = {
        "favorable": rgba(theme.favorable, 0.75),
        "unfavorable": rgba(theme.unfavorable, 0.35),
        "uniform": "rgba(0,0,0,0)",
    }
    for name in CLASSES:
        smoothed = 100 * shares[name].rolling(window, center=True, min_periods=1).mean()
        pattern = {"shape": HATCH, "fgcolor": theme.unfavorable, "size": 6, "solidity": 0.25}
        fig.add_scatter(
            x=shares["step"], y=smoothed, stackgroup="one", name=name, mode="lines",
            line={"color": theme.prompt_class(name), "width": 1}, fillcolor=fills[name],
            fillpattern=pattern if name == "unfavorable" else None, hovertemplate="%{y:.0f} %",
        )  # fmt: skip
    if step is not None:
        fig.add_vline(x=step, line={"color": theme.muted, "width": 1, "dash": "dot"})
    fig.update_yaxes(range=[0, 100])
    return fig


def relative_weights(visits: pd.DataFrame) -> pd.DataFrame:
    """Each class's weight over the step's mean weight (of kept groups): step, label, weight, relative."""
    kept = visits[visits["kept"].astype(bool)]
    mean = kept.groupby("step")["weight"].mean().rename("mean_weight")
    seen = visits.groupby(["step", "label"], as_index=False)["weight"].mean().merge(mean, on="step")
    seen["relative"] = seen["weight"] / seen["mean_weight"].where(seen["mean_weight"] != 0)
    return seen


def weights_over_time(relative: pd.DataFrame, theme: Theme, step: int | None = None) -> go.Figure:
    """What a class weighs next to the mean prompt of its step: the part of a weight that Adam cannot cancel."""
    fig = figure(theme, title="Weight next to the step's mean weight", x="step", y="weight / mean weight", height=290)
    for name in CLASSES:
        part = relative[relative["label"] == name]
        if len(part):
            fig.add_scatter(
                x=part["step"], y=part["relative"], name=name, mode="lines+markers",
                line={"color": theme.prompt_class(name), "dash": _LINES[name], "width": 1.5}, marker={"size": 4},
                customdata=part["weight"], hovertemplate="%{y:.3g} × the mean (weight %{customdata:.3g})",
            )  # fmt: skip
    fig.add_hline(y=1, line={"color": theme.muted, "width": 1, "dash": "dot"})
    if step is not None:
        fig.add_vline(x=step, line={"color": theme.muted, "width": 1, "dash": "dot"})
    fig.update_yaxes(rangemode="tozero")
    return fig


def transition_counts(labels: np.ndarray, before: np.ndarray, after: np.ndarray) -> np.ndarray:
    """(3, 3) how often a visit of class i was followed by one of class j; `labels` (V,) are indices of CLASSES."""
    counts = np.zeros((len(CLASSES), len(CLASSES)), dtype=int)
    np.add.at(counts, (labels[before], labels[after]), 1)
    return counts


def transitions(counts: np.ndarray, theme: Theme) -> go.Figure:
    """From one visit (rows) to the next (columns): counts, and the share of the row as colour."""
    total = counts.sum(axis=1, keepdims=True)
    rate = np.divide(counts, total, out=np.zeros(counts.shape), where=total > 0)
    fig = figure(
        theme, title="From one visit to the next", x="class at the next visit, by class at a visit", y="",
        height=290, legend=False,
    )  # fmt: skip
    fig.add_heatmap(
        z=rate, x=list(CLASSES), y=list(CLASSES), zmin=0, zmax=1, showscale=False, xgap=3, ygap=3,
        colorscale=[(0.0, rgba(theme.favorable, 0.04)), (1.0, rgba(theme.favorable, 0.75))],
        text=[[f"<b>{counts[i, j]}</b><br>{share(rate[i, j])}" for j in range(3)] for i in range(3)],
        texttemplate="%{text}", textfont={"color": theme.text, "size": 13},
        hovertemplate="%{y}, then %{x}: %{text}<extra></extra>",
    )  # fmt: skip
    fig.update_yaxes(autorange="reversed", showgrid=False)
    fig.update_xaxes(showgrid=False)
    return fig
