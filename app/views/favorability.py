"""The prompt grid of the Favorability page: one row a prompt, one square a visit. Frames in, figures out.

Frames come from `core.store.queries.favorability`; prompts are untrusted text.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from app.inert import inert_plotly
from app.palette import Theme, rgba
from app.views.base import figure
from app.views.sureness import labels
from app.words import count
from core.stats.classes import CLASSES

SORTS = {
    "favorable": "most often favorable",
    "changes": "most label changes",
    "change": "latest label change",
    "pass": "lowest pass rate",
    "sure": "highest P(favorable) now",
    "unsure": "least sure now",
    "mass": "most advantage mass",
    "last": "last visit",
    "name": "name",
}
_ORDER: dict[str, tuple[list[str], list[bool]]] = {
    "favorable": (["favorable", "visits", "pass_rate"], [False, False, True]),
    "changes": (["changes", "favorable"], [False, False]),
    "change": (["last_change", "favorable"], [False, False]),
    "pass": (["pass_rate", "favorable"], [True, False]),
    "sure": (["p_favorable", "favorable"], [False, False]),
    "unsure": (["doubt", "favorable"], [False, False]),
    "mass": (["mass", "favorable"], [False, False]),
    "last": (["last_step", "favorable"], [False, False]),
    "name": ([], []),
}
"""Columns and whether they ascend; prompts that are alike stand by name."""
ROW = 21  # pixels a prompt, up to MOST_NAMED of them
MOST_NAMED = 64
TALLEST = 1400  # pixels of all prompts, where there are more
MARKS = 8000
"""More squares than this are drawn as one picture, which cannot be clicked."""
COLUMNS = 400
"""Columns of that picture."""


def prompt_rows(visits: pd.DataFrame, sort: str = "favorable", sure: pd.Series | None = None) -> pd.DataFrame:
    """One row a prompt in the order asked for: prompt_id, prompt, answer, visits, favorable (share of its visits),
    changes (of its label), last_change (the step; NaN without one), pass_rate (over all its rollouts), mass (summed),
    last_step, last_class, p_favorable (of `sure`, by prompt_id; NaN without it).
    """
    before = visits.groupby("prompt_id")["label"].shift()
    changed = before.notna() & (before != visits["label"])
    rows = (
        visits.assign(
            favorable=visits["label"] == "favorable", changes=changed, changed_at=visits["step"].where(changed)
        )
        .groupby("prompt_id", sort=False)
        .agg(
            prompt=("prompt", "first"), answer=("answer", "first"), visits=("step", "size"),
            favorable=("favorable", "mean"), changes=("changes", "sum"), last_change=("changed_at", "max"),
            correct=("correct", "sum"), n=("n", "sum"), mass=("mass", "sum"),
            last_step=("step", "last"), last_class=("label", "last"),
        )
        .reset_index()
    )  # fmt: skip
    rows["pass_rate"] = rows["correct"] / rows["n"]
    rows["p_favorable"] = np.nan if sure is None else rows["prompt_id"].map(sure)
    rows["doubt"] = 0.5 - (rows["p_favorable"] - 0.5).abs()
    by, ascending = _ORDER[sort]
    rows = rows.sort_values([*by, "prompt"], ascending=[*ascending, True], kind="stable", ignore_index=True)
    return rows.drop(columns=["correct", "n", "doubt"])


def grid(
    visits: pd.DataFrame, rows: pd.DataFrame, theme: Theme, by: str = "visit", chosen: tuple[int, int] | None = None
) -> go.Figure:
    """The classes of the prompts in `rows` as squares, at their visits or at their steps; `chosen` = (step, group).

    Squares carry customdata [step, group, …], so that a click leads to the rollouts. More than MARKS of them become a
    picture with at most COLUMNS columns, the last class in each.
    """
    place = {key: index for index, key in enumerate(rows["prompt_id"])}
    cells = visits[visits["prompt_id"].isin(place)]
    y = cells["prompt_id"].map(place).to_numpy(np.int32)
    pixels = ROW if len(rows) <= MOST_NAMED else float(np.clip(TALLEST / len(rows), 2, ROW))
    fig = figure(
        theme, title=f"Classes by prompt and {by}", y="", height=110 + round(pixels * len(rows)), hover="closest",
        x="step" if by == "step" else "visit (how often the prompt had come before)",
    )  # fmt: skip
    x = cells[by].to_numpy(np.int32)
    span = int(x.max(initial=0)) - int(x.min(initial=0)) + 1
    size = float(np.clip(min((620 if by == "step" else 440) / span, pixels - 3), 4 if by == "step" else 3, 13))
    if len(cells) <= MARKS:
        _squares(fig, cells, x, y, size, theme)
    else:
        _picture(fig, x, y, labels(cells), len(rows), theme)
    if chosen is not None:
        mark = ((cells["step"] == chosen[0]) & (cells["group"] == chosen[1])).to_numpy()
        fig.add_scatter(
            x=x[mark], y=y[mark], mode="markers", hoverinfo="skip", showlegend=False, name="chosen",
            marker={"symbol": "square-open", "size": size + 6, "color": theme.text, "line": {"width": 2}},
        )  # fmt: skip
    named = pixels >= 10
    fig.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=[inert_plotly(text, 22) for text in rows["prompt"]],
        tickfont={"size": 12 if pixels >= 16 else 9}, showticklabels=named,
        range=[len(rows) - 0.4, -0.6], showgrid=False, zeroline=False,
    )  # fmt: skip
    if by == "step":
        fig.update_xaxes(zeroline=False)
    else:
        most = int(x.max(initial=0))
        fig.update_xaxes(range=[-0.6, most + 0.6], dtick=max(1, (most + 1) // 12), showgrid=False, zeroline=False)
    return legend_above(fig)


def _squares(fig: go.Figure, cells: pd.DataFrame, x: np.ndarray, y: np.ndarray, size: float, theme: Theme) -> None:
    """A marker a visit; groups that took no part in the update are faint."""
    facts = cells[["step", "group", "visit", "correct", "n", "weight"]].to_numpy(np.float32)
    kept = cells["kept"].to_numpy(bool)
    for name in CLASSES:
        mine = (cells["label"] == name).to_numpy()
        for trained in (True, False):
            some = mine & (kept == trained)
            if not trained and not some.any():
                continue
            place = (x[some], y[some]) if some.any() else ([None], [None])  # the legend names every class
            words = name + ("" if trained else ", not trained")
            fig.add_scatter(
                x=place[0], y=place[1], customdata=facts[some], mode="markers", name=words, legendgroup=name,
                marker=_square(name, size, theme), opacity=1 if trained else 0.35, showlegend=trained,
                hovertemplate="<b>%{y}</b><br>step %{customdata[0]}, visit %{customdata[2]}: " + words
                + "<br>%{customdata[3]} of %{customdata[4]} right, weight %{customdata[5]:.3g}"
                "<br>click for its evidence<extra></extra>",
            )  # fmt: skip
        if name == "unfavorable":  # scatter markers have no pattern: a stroke makes the hatching
            fig.add_scatter(
                x=x[mine], y=y[mine], mode="markers", legendgroup=name, name=name,
                marker={"symbol": "line-ne-open", "size": size * 0.75, "color": theme.background,
                        "line": {"width": 1.5, "color": theme.background}},
                hoverinfo="skip", showlegend=False,
            )  # fmt: skip


def _picture(
    fig: go.Figure, x: np.ndarray, y: np.ndarray, label: np.ndarray, rows: int, theme: Theme
) -> None:  # fmt: skip
    """One cell a prompt and column, by the number of its class."""
    first, last = int(x.min()), int(x.max())
    wide = -(-(last - first + 1) // COLUMNS)
    z = np.zeros((rows, (last - first) // wide + 1), np.uint8)
    z[y, (x - first) // wide] = label + 1
    colours = ["rgba(0,0,0,0)", *(rgba(theme.prompt_class(name), alpha) for name, alpha in
                                  zip(CLASSES, (1.0, 0.75, 0.3), strict=True))]  # fmt: skip
    scale = [(edge, colour) for i, colour in enumerate(colours) for edge in (i / 4, (i + 1) / 4)]
    fig.add_heatmap(
        z=z, x0=first, dx=wide, zmin=-0.5, zmax=3.5, colorscale=scale, showscale=False, name="classes",
        hovertemplate="<b>%{y}</b><br>%{x}: class %{z} (0: not drawn then)<extra></extra>",
    )  # fmt: skip
    for number, name in enumerate(CLASSES, start=1):
        fig.add_scatter(
            x=[None], y=[None], mode="markers", name=f"{number} {name}",
            marker={"symbol": "square", "size": 11, "color": colours[number]},
        )  # fmt: skip


def grid_note(visits: pd.DataFrame, rows: pd.DataFrame, prompts: int, sort: str, turned: bool = False) -> str:
    """What the grid leaves out or draws otherwise, in one line; "" where there is nothing to say."""
    notes = []
    if len(rows) < prompts:
        notes.append(f"{len(rows)} of {count(prompts, 'prompt')}, {SORTS[sort]} {'last' if turned else 'first'}.")
    drawn = int(visits["prompt_id"].isin(rows["prompt_id"]).sum())
    if drawn > MARKS:
        notes.append(f"{count(drawn, 'visit')} are drawn as one picture; show fewer prompts to click on squares.")
    return " ".join(notes)


def _square(name: str, size: float, theme: Theme) -> dict[str, object]:
    if name == "favorable":
        return {"symbol": "square", "size": size, "color": theme.favorable}
    if name == "unfavorable":
        return {"symbol": "square", "size": size, "color": rgba(theme.unfavorable, 0.75)}
    return {"symbol": "square-open", "size": size - 1, "color": theme.uniform, "line": {"width": 1.2}}


def legend_above(fig: go.Figure) -> go.Figure:
    return fig.update_layout(legend={"y": 1.0, "yanchor": "bottom"}, margin={"t": 30})
