"""Which prompts got the advantage mass: by difficulty, by length, by class, and the prompts with the most of it.

Mass is the sum of loss weight x |advantage| over kept tokens; base mass the same of the base advantage, before every
factor of the method. Frames have one row a rollout or a visit, with mass and base_mass.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from app.inert import inert_plotly
from app.palette import HATCH, Theme, rgba
from app.views.base import figure
from app.views.panels import Panels
from app.words import DASH, count, number, share
from core.stats.classes import CLASSES

RATES = ("all wrong", "≤ 20 %", "≤ 40 %", "≤ 60 %", "≤ 80 %", "< 100 %", "all right")
LENGTH_BINS = 10
TOP = 12
_STEPS = (1, 2, 4, 5, 8, 10, 15, 20, 25, 50, 100, 200, 250, 500)


def by_pass_rate(visits: pd.DataFrame) -> pd.DataFrame:
    """A row a band of the group's pass rate: bin, groups, share_of (the groups), base, mass (shares of the window)."""
    rate = (visits["correct"] / visits["n"]).to_numpy(float)
    place = np.where(rate <= 0, 0, np.where(rate >= 1, 6, np.ceil(np.round(rate * 5, 9)).clip(1, 5))).astype(int)
    return _shares(place, visits, RATES, "groups")


def by_length(rollouts: pd.DataFrame) -> pd.DataFrame:
    """A row a band of the response's length: bin, rollouts, share_of (the rollouts), base, mass (shares)."""
    longest = int(rollouts["length"].max())
    width = next((step for step in _STEPS if step * LENGTH_BINS >= longest), -(-longest // LENGTH_BINS))
    place = ((rollouts["length"].to_numpy() - 1) // width).clip(0)
    bins = tuple(f"{i * width + 1}–{(i + 1) * width}" if width > 1 else str(i + 1) for i in range(place.max() + 1))
    return _shares(place, rollouts, bins, "rollouts")


def _shares(place: np.ndarray, frame: pd.DataFrame, bins: tuple[str, ...], what: str) -> pd.DataFrame:
    tally = np.bincount(place, minlength=len(bins))
    table = pd.DataFrame({"bin": bins, what: tally, "share_of": tally / max(tally.sum(), 1)})
    for name, column in (("base", "base_mass"), ("mass", "mass")):
        total = np.bincount(place, frame[column].to_numpy(float), minlength=len(bins))
        table[name] = total / total.sum() if total.sum() > 0 else 0.0
    return table


def split(rates: pd.DataFrame, lengths: pd.DataFrame, theme: Theme, window: str) -> go.Figure:
    """Shares of the mass by difficulty (left) and length (right), before and after the weights; a dash marks the share
    of groups or rollouts.
    """
    heads = [("by the group's pass rate", theme.text), ("by the response's length (tokens)", theme.text)]
    fig = Panels(
        theme, f"Share of the advantage mass, {window}", heads=heads, height=320, own_y=frozenset({2}), link_x=False
    )
    for col, (table, what) in enumerate(((rates, "groups"), (lengths, "rollouts")), start=1):
        for name, words, marker in (
            ("base", "before weighting", _before(theme)),
            ("mass", "as trained", {"color": theme.favorable}),
        ):
            fig.add(1, col, {
                "type": "bar", "x": table["bin"].tolist(), "y": 100 * table[name].to_numpy(), "name": words,
                "marker": marker, "legendgroup": name, "showlegend": col == 1,
                "hovertemplate": f"%{{x}}: %{{y:.1f}} % of the mass {words}<extra></extra>",
            })  # fmt: skip
        fig.add(1, col, {
            "type": "scatter", "mode": "markers", "x": table["bin"].tolist(), "y": 100 * table["share_of"].to_numpy(),
            "name": "share of the groups or rollouts", "legendgroup": "of", "showlegend": col == 1,
            "marker": {"symbol": "line-ew-open", "size": 26, "color": theme.text, "line": {"width": 2.5}},
            "customdata": table[what].to_numpy(),
            "hovertemplate": f"%{{x}}: %{{y:.1f}} % of the {what} (%{{customdata}})<extra></extra>",
        })  # fmt: skip
        fig.x(1, col, type="category", tickangle=-35 if len(table) > 7 else 0, automargin=True)
        fig.y(1, col, rangemode="tozero")
    fig.y(1, 1, title="share of the window (%)")
    shown = fig.figure()
    legend = {"orientation": "h", "x": 0, "y": 1.16, "yanchor": "bottom", "font": {"color": theme.text, "size": 12}}
    return shown.update_layout(
        showlegend=True, legend=legend, barmode="group", bargap=0.25, hovermode="closest", margin={"t": 62, "b": 70}
    )


def _before(theme: Theme) -> dict[str, object]:
    pattern = {"shape": HATCH, "fgcolor": theme.unfavorable, "bgcolor": rgba(theme.unfavorable, 0.15), "size": 6}
    return {
        "color": rgba(theme.unfavorable, 0.15),
        "pattern": pattern,
        "line": {"color": theme.unfavorable, "width": 1},
    }


def top_prompts(visits: pd.DataFrame, most: int = TOP) -> pd.DataFrame:
    """The prompts with the most mass in the window: prompt, visits, pass_rate, base and mass (shares of it all), step
    and group of the latest visit.
    """
    rows = visits.groupby("prompt_id", sort=False).agg(
        prompt=("prompt", "first"), visits=("step", "size"), correct=("correct", "sum"), n=("n", "sum"),
        base=("base_mass", "sum"), mass=("mass", "sum"), step=("step", "last"), group=("group", "last"),
    )  # fmt: skip
    for name in ("base", "mass"):
        rows[name] /= rows[name].sum() or 1.0
    rows["pass_rate"] = rows["correct"] / rows["n"]
    rows = rows.sort_values(["mass", "base"], ascending=False, kind="stable").head(most).reset_index()
    return rows[["prompt_id", "prompt", "visits", "pass_rate", "base", "mass", "step", "group"]]


def top_figure(rows: pd.DataFrame, theme: Theme, window: str) -> go.Figure:
    """Each of these prompts' share of the mass before and after the weights."""
    fig = figure(
        theme, title=f"Prompts with the most mass, {window}", x="share of the advantage mass (%)", y="",
        height=110 + 30 * len(rows), hover="closest",
    )  # fmt: skip
    y = list(range(len(rows)))
    text = [
        f"<b>{inert_plotly(row.prompt, 60)}</b><br>{count(int(row.visits), 'visit')}, pass rate {number(row.pass_rate)}"
        f"<br>{share(row.mass)} of the mass, {share(row.base)} before weighting"
        for row in rows.itertuples()
    ]
    for name, words, marker in (
        ("base", "before weighting", _before(theme)), ("mass", "as trained", {"color": theme.favorable})
    ):  # fmt: skip
        fig.add_bar(
            x=100 * rows[name], y=y, orientation="h", name=words, marker=marker, text=text, textposition="none",
            customdata=rows[["step", "group"]].to_numpy(), hovertemplate="%{text}<extra></extra>",
        )  # fmt: skip
    fig.update_yaxes(
        tickvals=y, ticktext=[inert_plotly(prompt, 22) for prompt in rows["prompt"]],
        range=[len(rows) - 0.4, -0.6], showgrid=False,
    )  # fmt: skip
    return fig.update_layout(
        barmode="group", bargap=0.25, legend={"y": 1.0, "yanchor": "bottom"}, margin={"t": 30}, xaxis_rangemode="tozero"
    )


def sentence(visits: pd.DataFrame, window: str) -> str:
    """What each class got, in one line of Markdown, from visits with mass and base_mass."""
    groups = len(visits)
    parts = []
    for name in CLASSES:
        mine = visits[visits["label"] == name]
        if len(mine):
            before, after = (_part(mine[column].sum(), visits[column].sum()) for column in ("base_mass", "mass"))
            parts.append(f"{name}: {share(len(mine) / groups)} of the groups, **{before} → {after}** of the mass")
    total, base = visits["mass"].sum(), visits["base_mass"].sum()
    scale = f" In all, the weights made the mass {number(total / base)} times what it was." if 0 < base < np.inf else ""
    return f"Before → after weighting, {window} ({count(groups, 'group')}): {'; '.join(parts)}.{scale}"


def _part(value: float, whole: float) -> str:
    return share(value / whole) if 0 < whole < np.inf else DASH


def windows(step: int) -> dict[str, Callable[[pd.DataFrame], pd.DataFrame]]:
    """The windows that can be looked at, by name: each cuts a frame with `step` down to it."""
    return {
        "step": lambda frame: frame[frame["step"] == step],
        "recent": lambda frame: frame[(frame["step"] > step - 20) & (frame["step"] <= step)],
        "run": lambda frame: frame,
    }


def window_words(name: str, step: int) -> str:
    """A window in words: `step 40`, `steps 21 to 40`, `the whole run`."""
    return {"step": f"step {step}", "recent": f"steps {max(step - 19, 0)} to {step}", "run": "the whole run"}[name]
