"""Favorability in pictures: the prompt grid, both criteria, shares, weights and transitions. Frames in, figures out.

Frames come from `core.store.queries.favorability`; prompts are untrusted text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from app.inert import inert_plotly
from app.palette import HATCH, Theme, rgba
from app.views.base import figure
from app.words import number, share
from core.stats.labels import CLASSES

SORTS = {
    "favorable": "most often favorable",
    "changes": "most label changes",
    "pass": "lowest pass rate",
    "last": "last visit",
}
ROW = 21  # pixels a prompt
_LINES = {"favorable": "solid", "unfavorable": "dash", "uniform": "dot"}


def prompt_rows(visits: pd.DataFrame, sort: str = "favorable") -> pd.DataFrame:
    """One row a prompt in the order asked for: prompt_id, prompt, answer, visits, favorable (share of its visits),
    changes (of its label), pass_rate (over all its rollouts), last_step, last_class.
    """
    before = visits.groupby("prompt_id")["label"].shift()
    changed = before.notna() & (before != visits["label"])
    rows = (
        visits.assign(favorable=visits["label"] == "favorable", changes=changed)
        .groupby("prompt_id", sort=False)
        .agg(
            prompt=("prompt", "first"), answer=("answer", "first"), visits=("step", "size"),
            favorable=("favorable", "mean"), changes=("changes", "sum"), correct=("correct", "sum"), n=("n", "sum"),
            last_step=("step", "last"), last_class=("label", "last"),
        )
        .reset_index()
    )  # fmt: skip
    rows["pass_rate"] = rows["correct"] / rows["n"]
    by, ascending = {
        "favorable": (["favorable", "visits", "pass_rate"], [False, False, True]),
        "changes": (["changes", "favorable"], [False, False]),
        "pass": (["pass_rate", "favorable"], [True, False]),
        "last": (["last_step", "favorable"], [False, False]),
    }[sort]
    rows = rows.sort_values([*by, "prompt"], ascending=[*ascending, True], kind="stable", ignore_index=True)
    return rows.drop(columns=["correct", "n"])


def grid(
    visits: pd.DataFrame, rows: pd.DataFrame, theme: Theme, by: str = "visit", chosen: tuple[int, int] | None = None
) -> go.Figure:
    """The classes of the prompts in `rows` as squares, at their visits or at their steps; `chosen` = (step, group).

    Squares carry customdata [step, group], so that a click leads to the rollouts.
    """
    place = {key: index for index, key in enumerate(rows["prompt_id"])}
    cells = visits[visits["prompt_id"].isin(place)]
    by_step = by == "step"
    fig = figure(
        theme, title=f"Classes by prompt and {by}", y="", height=110 + ROW * len(rows), hover="closest",
        x="step" if by_step else "visit (how often the prompt had come before)",
    )  # fmt: skip
    crowd = int(cells.groupby("prompt_id").size().max()) if len(cells) else 1
    size = float(np.clip((300 if by_step else 380) / crowd, 4, 13))
    for name in CLASSES:
        part = cells[cells["label"] == name]
        x, y = part["step"] if by_step else part["visit"], part["prompt_id"].map(place)
        common = {
            "x": x, "y": y, "customdata": part[["step", "group"]].to_numpy(), "mode": "markers", "name": name,
            "legendgroup": name,
        }  # fmt: skip
        fig.add_scatter(
            **common, marker=_square(name, size, theme), text=[_hover(row) for row in part.itertuples()],
            hovertemplate="%{text}<extra></extra>", showlegend=True,
        )  # fmt: skip
        if name == "unfavorable":  # scatter markers have no pattern: two strokes make the hatching
            fig.add_scatter(
                **common, marker={"symbol": "line-ne-open", "size": size * 0.75, "color": theme.background,
                                  "line": {"width": 1.5, "color": theme.background}},
                hoverinfo="skip", showlegend=False,
            )  # fmt: skip
    if chosen is not None:
        mark = cells[(cells["step"] == chosen[0]) & (cells["group"] == chosen[1])]
        fig.add_scatter(
            x=mark["step"] if by_step else mark["visit"], y=mark["prompt_id"].map(place), mode="markers",
            marker={"symbol": "square-open", "size": size + 6, "color": theme.text, "line": {"width": 2}},
            hoverinfo="skip", showlegend=False, name="chosen",
        )  # fmt: skip
    fig.update_yaxes(
        tickvals=list(range(len(rows))), ticktext=[inert_plotly(text, 22) for text in rows["prompt"]],
        range=[len(rows) - 0.4, -0.6], showgrid=False, zeroline=False,
    )  # fmt: skip
    if by_step:
        fig.update_xaxes(zeroline=False)
    else:
        most = int(visits["visit"].max()) if len(visits) else 0
        fig.update_xaxes(range=[-0.6, most + 0.6], dtick=max(1, (most + 1) // 12), showgrid=False, zeroline=False)
    return _legend_above(fig)


def criteria(groups: pd.DataFrame, theme: Theme, tau: float | None) -> go.Figure:
    """Longest correct against mean usable wrong length, coloured by pass rate with tau as the break of the scale.

    Groups without both lengths are left out (`without_lengths` counts them). `tau` None: no difficulty criterion.
    """
    both = groups.dropna(subset=["longest_correct", "mean_wrong_length"])
    fig = figure(
        theme, title="Both criteria", x="mean length of wrong answers (tokens)", y="longest correct answer (tokens)",
        height=360, hover="closest", legend=False,
    )  # fmt: skip
    top = float(np.nanmax([both["longest_correct"].max(), both["mean_wrong_length"].max(), 10])) * 1.06
    fig.add_scatter(
        x=[0, top], y=[0, top], mode="lines", line={"color": theme.muted, "dash": "dot", "width": 1.5}, hoverinfo="skip"
    )
    ticks, names = [0.0, 1.0], ["0", "1"]
    if tau is not None and 0 < tau < 1:
        ticks, names = [0.0, tau, 1.0], ["0", f"τ = {number(tau)}", "1"]
    for name in CLASSES:
        part = both[both["label"] == name]
        fig.add_scatter(
            x=part["mean_wrong_length"], y=part["longest_correct"], mode="markers", name=name,
            customdata=part[["step", "group"]].to_numpy(), text=[_hover(row) for row in part.itertuples()],
            hovertemplate="%{text}<extra></extra>",
            marker={
                "symbol": {"favorable": "circle", "unfavorable": "x", "uniform": "circle-open"}[name],
                "size": 10 if len(both) <= 40 else 7, "opacity": 0.95 if len(both) <= 40 else 0.6,
                "color": part["pass_rate"], "cmin": 0, "cmax": 1, "colorscale": pass_rate_scale(theme, tau),
                "line": {"width": 1, "color": theme.background} if name == "favorable" else {"width": 0},
                "showscale": name == "favorable",
                "colorbar": {
                    "title": {"text": "pass rate", "font": {"color": theme.muted, "size": 12}}, "outlinewidth": 0,
                    "tickvals": ticks, "ticktext": names, "tickfont": {"color": theme.muted, "size": 11},
                    "thickness": 10,
                },
            },
        )  # fmt: skip
    for text, x, y, anchor, baseline in (
        ("▲ length advantage", 0.0, 1.0, "left", "bottom"),
        ("no length advantage ▼", 1.0, 0.01, "right", "bottom"),
    ):
        fig.add_annotation(
            text=text, x=x, y=y, xref="paper", yref="paper", xanchor=anchor, yanchor=baseline, showarrow=False,
            font={"color": theme.muted, "size": 12},
        )  # fmt: skip
    fig.update_layout(margin={"t": 26})
    fig.update_xaxes(range=[0, top], zeroline=False)
    fig.update_yaxes(range=[0, top], zeroline=False)
    return fig


def pass_rate_scale(theme: Theme, tau: float | None) -> list[tuple[float, str]]:
    """Indigo up to tau (difficulty advantage), the outline's grey above it; one hue where there is no tau."""
    strong, weak = theme.favorable, rgba(theme.favorable, 0.35)
    if tau is None or not 0 < tau < 1:
        return [(0.0, strong), (1.0, weak)]
    return [
        (0.0, strong),
        (tau, rgba(theme.favorable, 0.55)),
        (tau, theme.unfavorable),
        (1.0, rgba(theme.unfavorable, 0.7)),
    ]


def without_lengths(groups: pd.DataFrame) -> int:
    """Groups that the criteria chart cannot show: no correct, or no usable wrong rollout."""
    return int(groups[["longest_correct", "mean_wrong_length"]].isna().any(axis=1).sum())


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


def cell_words(row: pd.Series) -> Sequence[tuple[str, str]]:
    """A visit's evidence as (name, value) pairs of plain text."""
    yes = {True: "yes", False: "no"}
    length, difficulty = row["length_advantage"], row["difficulty_advantage"]
    return (
        ("correct", f"{int(row['correct'])} of {int(row['n'])}"),
        ("longest correct", number(_float(row["longest_correct"]), "tokens")),
        ("mean usable wrong", number(_float(row["mean_wrong_length"]), "tokens")),
        ("length advantage", "not defined" if pd.isna(length) else yes[bool(length)]),
        ("difficulty advantage", "not defined" if pd.isna(difficulty) else yes[bool(difficulty)]),
        ("class", str(row["label"])),
        ("weight", number(_float(row["weight"]))),
    )


def _hover(row: object) -> str:
    lines = (
        f"<b>{inert_plotly(row.prompt, 60)}</b>",
        f"step {row.step}, visit {row.visit}, {row.label}" + ("" if row.kept else ", not trained"),
        f"{int(row.correct)} of {int(row.n)} correct",
        f"longest correct {number(_float(row.longest_correct), 'tokens')}, "
        f"mean wrong {number(_float(row.mean_wrong_length), 'tokens')}",
        f"weight {number(_float(row.weight))}",
    )
    return "<br>".join(lines)


def _float(value: object) -> float | None:
    return None if pd.isna(value) else float(value)


def _square(name: str, size: float, theme: Theme) -> dict[str, object]:
    if name == "favorable":
        return {"symbol": "square", "size": size, "color": theme.favorable}
    if name == "unfavorable":
        return {"symbol": "square", "size": size, "color": rgba(theme.unfavorable, 0.75)}
    return {"symbol": "square-open", "size": size - 1, "color": theme.uniform, "line": {"width": 1.2}}


def _legend_above(fig: go.Figure) -> go.Figure:
    return fig.update_layout(legend={"y": 1.0, "yanchor": "bottom"}, margin={"t": 30})
