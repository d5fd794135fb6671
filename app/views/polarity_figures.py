"""The Polarity page's figures: wrong answers on the left, right ones on the right, always on the same axes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from app.palette import SIGN, Theme, rgba
from app.views.base import figure
from app.views.panels import Panels, band, line
from core.store.queries.polarity import ROLLOUT_FIELDS

SIDES = ((-1, "wrong"), (1, "right"))
CURVES = (
    ("rollouts", "rollouts", ".0f"),
    ("length", "length (tokens)", ".3g"),
    ("entropy", "entropy (nats)", ".3g"),
    ("probability", "probability", ".3g"),
    ("reward", "mean reward", ".3g"),
)
"""What the mirrored curves show: (column of `by_step`, axis title with its unit, number format). The reward has a row
where it is more than right or wrong."""

FIELDS = {
    "probability": ("probability", "probability of a token"),
    "entropy": ("entropy", "entropy (nats)"),
    "advantage": ("advantage", "advantage"),
    "push": ("push A(1−p)", "push A(1−p)"),
    "change": ("Δ log p", "change of log p (nats)"),
    "length": ("length", "length (tokens)"),
    "reward": ("reward", "reward"),
}
"""Fields with a distribution: (short label, axis title)."""

Chosen = tuple[int, int] | None
"""A window of steps to mark, first and last."""


def curves(frame: pd.DataFrame, theme: Theme, chosen: Chosen = None) -> go.Figure:
    """Rollouts, length, entropy, probability and reward over steps, as far as they are known. `frame` is
    `polarity.by_step`.
    """
    varied = frame.groupby("polarity")["reward"].nunique().max() > 1
    shown = [curve for curve in CURVES if frame[curve[0]].notna().any() and (curve[0] != "reward" or varied)]
    rows = len(shown)
    panels = Panels(
        theme, "Wrong and right answers over the steps", rows=rows, heads=side_heads(theme), height=140 * rows + 60
    )
    for row, (column, title, fmt) in enumerate(shown, start=1):
        for col, (polarity, name) in enumerate(SIDES, start=1):
            part = frame[frame["polarity"] == polarity]
            colour, words = theme.polarity(polarity), f"{SIGN[polarity]} {name}, {title}"
            panels.add(row, col, line(part["step"], part[column], colour, words, fmt))
        panels.y(row, 1, title=title)
        panels.fit_y(row, from_zero=True)
    return over_steps(panels, chosen)


def masses(frame: pd.DataFrame, theme: Theme, chosen: Chosen = None) -> go.Figure:
    """Advantage mass by polarity before (dotted) and after shaping (solid), and between them the ratio wrong :
    right.
    """
    wrong, right = side_heads(theme)
    panels = Panels(
        theme, "Advantage mass: dotted before shaping, solid after", heads=[wrong, ("wrong : right", theme.muted),
        right],
        height=310, widths=[0.37, 0.26, 0.37], own_y=frozenset({2}),
    )  # fmt: skip
    by_side = {polarity: frame[frame["polarity"] == polarity].set_index("step") for polarity, _ in SIDES}
    for column, when, dash in (("base_mass", "before", "dot"), ("mass", "after", "solid")):
        for col, (polarity, name) in ((1, SIDES[0]), (3, SIDES[1])):
            part = by_side[polarity][column]
            panels.add(
                1,
                col,
                line(part.index, part, theme.polarity(polarity), f"{SIGN[polarity]} {name}, {when}", ".3g", dash),
            )
        ratio = ratios(by_side[-1][column], by_side[1][column])
        panels.add(1, 2, line(ratio.index, ratio, theme.text, f"ratio {when}", ".3g", dash))
    near = np.log10(np.concatenate([trace["y"] for trace in panels.traces if trace["yaxis"] == "y2"]))
    ends = [min(np.nanmin(near, initial=0.0) - 0.03, -0.1), max(np.nanmax(near, initial=0.0) + 0.03, 0.1)]
    ticks = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 0.8, 1, 1.25, 2, 5, 10, 20, 50, 100]
    panels.y(1, 1, title="sum of loss weight × |A|")
    panels.y(
        1, 2, type="log", range=ends, tickvals=ticks, ticktext=[f"{tick:g}" for tick in ticks], tickfont={"size": 11}
    )
    panels.fit_y(1, from_zero=True)
    if np.isnan(near).all():
        panels.y(1, 2, visible=False)
        panels.x(1, 2, visible=False)
        panels.layout["annotations"].append(
            {
                "text": "no ratio:<br>one side has<br>no mass", "showarrow": False,
                "xref": "x2 domain", "yref": "y2 domain", "x": 0.5, "y": 0.5,
                "font": {"size": 13, "color": theme.muted},
            }
        )  # fmt: skip
        return over_steps(panels, chosen)
    panels.line(1, 2, 1)
    return over_steps(panels, chosen)


def ratios(wrong: pd.Series, right: pd.Series) -> pd.Series:
    """Mass of the wrong over that of the right answers by step; NaN where either is 0 (a log axis has no place for
    it).
    """
    return (wrong / right).where((wrong > 0) & (right > 0))


def distribution(counts: pd.DataFrame, names: Sequence[str], field: str, where: str, theme: Theme) -> go.Figure:
    """A field's distribution over tokens as a butterfly. `counts` is `polarity.histogram_window`, `names` its
    buckets.
    """
    label, title = FIELDS[field]
    what = "answers" if field in ROLLOUT_FIELDS else "tokens"
    height = max(220, 17 * len(names) + 90)
    panels = Panels(
        theme, f"Distribution of {label}, {where}", heads=side_heads(theme), height=height, link_x=False, left=110
    )
    most = 1.16 * (float(np.nanmax(counts[["wrong", "right"]].to_numpy(), initial=0.0)) or 1.0)
    for col, (polarity, name) in enumerate(SIDES, start=1):
        colour = theme.polarity(polarity)
        panels.add(
            1, col,
            {
                "type": "bar", "x": counts[name].tolist(), "y": list(names), "orientation": "h",
                "name": f"{SIGN[polarity]} {name}",
                "marker": {"color": rgba(colour, 0.75), "line": {"color": colour, "width": 1}},
                "text": [_percent(value) for value in counts[name]], "textposition": "outside", "cliponaxis": False,
                "textfont": {"size": 11, "color": theme.muted}, "customdata": counts[f"n_{name}"].tolist(),
                "hovertemplate": f"%{{y}}: %{{x:.1%}} of its {what}, n = %{{customdata:,.0f}}<extra></extra>",
            },
        )  # fmt: skip
        span = [most, 0] if polarity < 0 else [0, most]
        panels.x(1, col, range=span, tickformat=".0%", title=f"share of its {what}")
        panels.y(1, col, type="category", showgrid=False)
    panels.y(1, 1, title=title)
    panels.layout |= {"hovermode": "closest", "bargap": 0.18}
    return panels.figure()


def fan(frame: pd.DataFrame, field: str, theme: Theme, chosen: Chosen = None) -> go.Figure:
    """Quantiles of a field over steps (`polarity.quantiles`): the median, the middle half, and the 10th to 90th
    percentile.
    """
    label, title = FIELDS[field]
    panels = Panels(
        theme, f"How {label} moves: median, middle half, 10th to 90th percentile", heads=side_heads(theme), height=310
    )
    for col, (polarity, _) in enumerate(SIDES, start=1):
        part = frame[frame["polarity"] == polarity]
        colour, steps = theme.polarity(polarity), part["step"].to_numpy()
        for low, high, alpha in (("q10", "q90", 0.16), ("q25", "q75", 0.28)):
            for edge, fill in ((high, "none"), (low, "tonexty")):
                panels.add(
                    1, col,
                    {
                        "type": "scatter", "x": steps, "y": part[edge].to_numpy(), "mode": "lines", "fill": fill,
                        "line": {"width": 0.5, "color": rgba(colour, 0.4)}, "fillcolor": rgba(colour, alpha),
                        "name": f"{edge[1:]}th percentile", "hovertemplate": "%{y:.3g}", "showlegend": False,
                    },
                )  # fmt: skip
        panels.add(1, col, line(part["step"], part["q50"], colour, "median", ".3g"))
    panels.y(1, 1, title=title)
    panels.fit_y(1)
    return over_steps(panels, chosen)


def signal(frame: pd.DataFrame, theme: Theme, chosen: Chosen = None) -> go.Figure:
    """Share of groups that are all wrong, mixed and all right over steps; as a line the share whose rewards are all
    equal, where that is not simply the first and the last.
    """
    fig = figure(
        theme, title="Groups that carry no signal, counted apart", x="step", y="share of the step's groups", height=300
    )
    steps, groups = frame["step"].to_numpy(), frame["groups"]
    parts = (
        ("all_wrong", f"{SIGN[-1]} all wrong", rgba(theme.suppressed, 0.8)),
        ("mixed", "± mixed", rgba(theme.muted, 0.18)),
        ("all_correct", f"{SIGN[1]} all right", rgba(theme.reinforced, 0.8)),
    )
    traces = [
        {
            "type": "bar", "x": steps, "y": (frame[column] / groups).to_numpy(), "name": name,
            "marker": {"color": colour},
            "unselected": {"marker": {"opacity": 1}}, "customdata": frame[column].to_numpy(),
            "hovertemplate": "%{y:.0%}, %{customdata:.0f} groups",
        }
        for column, name, colour in parts
    ]  # fmt: skip
    if (frame["no_signal"] != frame["all_wrong"] + frame["all_correct"]).any():
        none = line(steps, frame["no_signal"] / groups, theme.text, "no signal (equal rewards)", ".0%", "dot")
        traces.append({**none, "showlegend": True})
    fig.add_traces(traces)
    shapes = [] if chosen is None or _whole(chosen, steps) else [band(*chosen, theme)]
    axes = {"xaxis": _whole_steps(steps), "yaxis": {"range": [0, 1.02], "tickformat": ".0%"}}
    fig.update_layout(barmode="stack", bargap=0.06, shapes=shapes, **axes)
    return fig


def over_steps(panels: Panels, chosen: Chosen, cols: Sequence[int] | None = None) -> go.Figure:
    """The figure of panels whose x axis is the step (those of `cols`, or all), the window marked."""
    cols = cols or range(1, panels.cols + 1)
    names = {panels.axes(row, col)[0].replace("axis", "") for row in range(1, panels.rows + 1) for col in cols}
    steps = np.concatenate([trace["x"] for trace in panels.traces if trace["xaxis"] in names])
    for row in range(1, panels.rows + 1):
        for col in cols:
            panels.x(row, col, **_whole_steps(steps))
            if row == panels.rows:
                panels.x(row, col, title="step")
    if chosen is not None and len(steps) and not _whole(chosen, steps):
        panels.band(*chosen, cols)
    return panels.figure()


def _whole(chosen: tuple[int, int], steps: Sequence[float]) -> bool:
    """Whether a window is all there is, so that marking it would only grey the figure."""
    return chosen[0] <= np.min(steps) and chosen[1] >= np.max(steps)


def _whole_steps(steps: Sequence[float]) -> dict[str, object]:
    """An axis of steps: as wide as they are, and no tick between two of them."""
    if not len(steps):
        return {}
    first, last = np.min(steps), np.max(steps)
    ticks = {"tick0": 0, "dtick": 1} if last - first <= 10 else {}
    return {"range": [first - 0.5, last + 0.5], **ticks}


def side_heads(theme: Theme) -> list[tuple[str, str]]:
    """Titles of two mirrored columns, with their colours."""
    return [(f"{SIGN[polarity]} {name} answers", theme.polarity(polarity)) for polarity, name in SIDES]


def _percent(value: float) -> str:
    """Of a bar; those under 1 % would only be a column of the same words."""
    return f"{100 * value:.0f}%" if value >= 0.01 else ""
