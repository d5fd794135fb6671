"""How sure the labels are: the store's frames as arrays, bars with intervals, the check of the estimate."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from app.inert import inert_plotly
from app.palette import Theme, rgba
from app.views.base import figure
from app.words import count, number, share
from core.stats.classes import CLASSES
from core.stats.labels import BySize, Flips, Sureness
from core.stats.labels import flips as count_flips
from core.stats.policies import Visits
from core.stats.policies import transitions as consecutive

MOST = 6400
"""Visits that the run's label changes are counted on at most."""
MOST_BY_SIZE = 800
"""Visits that are simulated in groups of other sizes."""


def whole_prompts(visits: pd.DataFrame, most: int = MOST) -> pd.DataFrame:
    """All visits, or those of some prompts (drawn once, always the same) where there are more than `most`."""
    if len(visits) <= most:
        return visits
    sizes = visits.groupby("prompt_id")["step"].size().sample(frac=1, random_state=0)
    keep = sizes.index[sizes.cumsum() <= most]
    return visits[visits["prompt_id"].isin(keep if len(keep) else sizes.index[:1])].reset_index(drop=True)


def to_visits(visits: pd.DataFrame, rollouts: pd.DataFrame) -> Visits:
    """The frames of `core.store.queries.favorability` as arrays; row i of `visits` is visit i."""
    index = visits.reset_index(drop=True).reset_index(names="row")[["row", "step", "group"]]
    found = rollouts.merge(index, on=["step", "group"]).sort_values("row", kind="stable")
    return Visits(
        prompt=pd.factorize(visits["prompt_id"])[0],
        step=visits["step"].to_numpy(),
        visit=found["row"].to_numpy(),
        correct=found["correct"].fillna(False).to_numpy(dtype=bool),
        length=found["length"].to_numpy(dtype=int),
        truncated=found["truncated"].fillna(False).to_numpy(dtype=bool),
    )


def labels(visits: pd.DataFrame) -> np.ndarray:
    """(V,) the recorded classes as indices into CLASSES."""
    return visits["label"].map({name: index for index, name in enumerate(CLASSES)}).to_numpy(np.int8)


def transitions(visits: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Consecutive visits of one prompt: (from, to), each (K,) row numbers of `visits`."""
    return consecutive(pd.factorize(visits["prompt_id"])[0])


def latest(visits: pd.DataFrame, prompts: pd.Series, step: int) -> pd.DataFrame:
    """Each prompt's last visit up to a step, in the order of `prompts`; rows keep their index in `visits`."""
    past = visits[(visits["step"] <= step) & visits["prompt_id"].isin(prompts)]
    last = past.drop_duplicates("prompt_id", keep="last")
    order = {key: place for place, key in enumerate(prompts)}
    return last.sort_values("prompt_id", key=lambda keys: keys.map(order))


def flips_sentence(flips: Flips, group_size: int, share_used: float = 1.0) -> str:
    """The claim of the page, with its n: how many label changes luck alone explains."""
    if not flips.transitions:
        return "No prompt has come back yet, so no label could change."
    head = (
        f"Of **{count(flips.observed, 'label change')}** in {count(flips.transitions, 'pair')} of consecutive visits, "
        f"about **{flips.expected:.0f}** (± {flips.margin:.0f}) are expected from sampling alone (G = {group_size})"
    )
    if share_used < 1:
        head += f", counted on {share(share_used)} of the visits"
    if flips.observed > flips.expected + flips.margin:
        return f"{head}: about {flips.observed - flips.expected:.0f} are more than luck, the policy changed."
    if flips.observed < flips.expected - flips.margin:
        return f"{head}: fewer than luck alone would give, so this estimate does not fit the run."
    return f"{head}: luck alone can explain them."


def size_sentence(rates: pd.DataFrame, pairs: int, own: int) -> str:
    """What larger groups would change, from `rates_by_size`, as Markdown."""
    at = rates.set_index("size")["luck"]
    larger = [size for size in (4 * own, 2 * own) if size in at.index]
    if not pairs or not larger:
        return ""
    half = next((size for size in at.index if size > own and at[size] <= at[own] / 2), None)
    words = (
        f"With **G\u00a0=\u00a0{larger[0]}** about **{at[larger[0]] * pairs:.0f}** would be expected by luck "
        f"({share(at[larger[0]])} of the pairs, now {share(at[own])})"
    )
    if half is None:
        return f"{words}; up to G = {at.index[-1]} luck never falls by half."
    return f"{words}; it takes G = {half} to halve what luck does."


def rates_by_size(found: BySize, visits: Visits, label: np.ndarray) -> pd.DataFrame:
    """A row a group size: size, luck (share of pairs of consecutive visits whose label would change by luck), low, high
    (its 95 % interval with the model's error), favorable (share of groups).
    """
    rows = []
    for size, flip, favorable in zip(found.size, found.flip, found.favorable, strict=True):
        luck = count_flips(visits.prompt, label, flip)
        pairs = max(luck.transitions, 1)
        rows.append(
            {
                "size": int(size), "luck": luck.expected / pairs,
                "low": max(luck.expected - luck.margin, 0) / pairs, "high": (luck.expected + luck.margin) / pairs,
                "favorable": float(favorable.mean()),
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def by_size_figure(rates: pd.DataFrame, observed: float | None, own: int, theme: Theme) -> go.Figure:
    """Label changes by luck against the group size, this run's size and its observed changes (a share) marked."""
    fig = figure(
        theme, title="How luck shrinks with the group size", x="G: rollouts a prompt", y="share (%)", height=300
    )
    fig.add_scatter(
        x=[*rates["size"], *rates["size"][::-1]], y=[*(100 * rates["high"]), *(100 * rates["low"][::-1])],
        fill="toself", fillcolor=rgba(theme.favorable, 0.15), line={"width": 0}, hoverinfo="skip", showlegend=False,
        mode="lines",
    )  # fmt: skip
    for column, name, dash, colour in (
        ("luck", "label changes by luck", "solid", theme.favorable),
        ("favorable", "favorable prompts", "dot", theme.muted),
    ):
        fig.add_scatter(
            x=rates["size"], y=100 * rates[column], name=name, mode="lines+markers", marker={"size": 6},
            line={"color": colour, "dash": dash, "width": 2}, hovertemplate="%{y:.0f} %",
        )  # fmt: skip
    if observed is not None:
        fig.add_scatter(
            x=[own], y=[100 * observed], name="label changes observed", mode="markers",
            marker={"symbol": "diamond", "size": 11, "color": theme.text}, hovertemplate="%{y:.0f} %",
        )  # fmt: skip
    fig.add_vline(x=own, line={"color": theme.muted, "width": 1, "dash": "dot"})
    fig.add_annotation(
        text=f"this run: G = {own}", x=np.log10(own), y=1, yref="paper", xanchor="left", yanchor="top", showarrow=False,
        xshift=4, font={"color": theme.muted, "size": 12},
    )  # fmt: skip
    ticks = rates["size"].tolist()
    fig.update_xaxes(type="log", dtick=None, tickvals=ticks, ticktext=[str(size) for size in ticks], zeroline=False)
    fig.update_yaxes(range=[0, 102])
    return fig


def changes_over_time(
    visits: pd.DataFrame, flip: np.ndarray, theme: Theme, window: int, step: int
) -> tuple[go.Figure, pd.DataFrame]:
    """Label changes and what luck explains of them, by the step of the later visit, running means over `window` steps
    that had any; and the numbers, a row a step: step, pairs, observed, luck.
    """
    before, after = transitions(visits)
    label = labels(visits)
    frame = pd.DataFrame(
        {
            "step": visits["step"].to_numpy()[after], "pairs": 1, "observed": label[before] != label[after],
            "luck": (flip[before] + flip[after]) / 2,
        }
    ).groupby("step", as_index=False).sum()  # fmt: skip
    fig = figure(theme, title="Label changes over the run", x="step", y="of returning prompts (%)", height=300)
    rolled = frame[["pairs", "observed", "luck"]].rolling(window, center=True, min_periods=1).sum()
    for name, words, dash, colour in (
        ("observed", "observed", "solid", theme.text),
        ("luck", "expected by luck", "dash", theme.favorable),
    ):
        fig.add_scatter(
            x=frame["step"], y=100 * rolled[name] / rolled["pairs"], name=words, mode="lines",
            line={"color": colour, "dash": dash, "width": 2}, hovertemplate="%{y:.0f} %",
        )  # fmt: skip
    fig.add_vline(x=step, line={"color": theme.muted, "width": 1, "dash": "dot"})
    fig.update_yaxes(rangemode="tozero")
    return fig, frame


def bars(rows: pd.DataFrame, sure: Sureness, theme: Theme) -> go.Figure:
    """P(favorable) of each prompt with its 90 % interval, and the label that its visit got.

    `rows` has prompt, step, group and label of the visits that `sure` speaks of, in the same order.
    """
    p = sure.probability[:, 0]
    y = list(range(len(rows)))
    fig = figure(
        theme, title="How sure: P(favorable)", x="P(a fresh group is favorable), 90 % interval", y="",
        height=90 + 19 * len(rows), hover="closest",
    )  # fmt: skip
    fig.add_bar(
        x=p, y=y, orientation="h", showlegend=False,
        marker={"color": rgba(theme.favorable, 0.45), "line": {"width": 0}},
        error_x={
            "type": "data", "symmetric": False, "color": theme.muted, "thickness": 1.2, "width": 3,
            "array": np.maximum(sure.high - p, 0), "arrayminus": np.maximum(p - sure.low, 0),
        },
        customdata=rows[["step", "group"]].to_numpy(),
        text=[
            f"<b>{inert_plotly(row.prompt, 60)}</b><br>step {row.step}: {row.label}<br>"
            f"P(favorable) {number(p[i])} [{number(sure.low[i])}, {number(sure.high[i])}]<br>"
            f"two fresh groups differ with {number(sure.flip[i])}"
            for i, row in enumerate(rows.itertuples())
        ],
        textposition="none", hovertemplate="%{text}<extra></extra>",
    )  # fmt: skip
    for name in CLASSES:
        mine = [i for i, label in enumerate(rows["label"]) if label == name]
        fig.add_scatter(
            x=[-0.045] * len(mine), y=mine, mode="markers", name=f"labelled {name}", hoverinfo="skip",
            marker={
                "symbol": "square" if name != "uniform" else "square-open", "size": 9,
                "color": theme.prompt_class(name), "line": {"width": 1.2},
            },
        )  # fmt: skip
    fig.update_xaxes(range=[-0.08, 1.02], tickvals=[0, 0.25, 0.5, 0.75, 1], zeroline=False)
    fig.update_yaxes(
        tickvals=y, ticktext=[inert_plotly(text, 18) for text in rows["prompt"]], range=[len(rows) - 0.4, -0.6],
        showgrid=False,
    )  # fmt: skip
    fig.update_layout(legend={"y": 1.0, "yanchor": "bottom"}, margin={"t": 30}, bargap=0.3)
    return fig


def check_figure(table: pd.DataFrame, theme: Theme) -> go.Figure:
    """Flips by luck on prompts whose truth is known: true, estimated, and by redrawing the observed group."""
    fig = figure(
        theme, title="Flips by luck on prompts whose policy is known", x="true pass rate",
        y="P(two groups differ)", height=290,
    )  # fmt: skip
    for column, name, colour, dash in (
        ("truth", "truth", theme.text, "solid"),
        ("estimate", "this page's estimate", theme.favorable, "dash"),
        ("resampled", "redrawing the observed group (not used)", theme.muted, "dot"),
    ):
        fig.add_scatter(
            x=table["pass_rate"], y=table[column], name=name, mode="lines+markers", marker={"size": 5},
            line={"color": colour, "dash": dash}, hovertemplate="%{y:.2f}",
        )  # fmt: skip
    fig.update_yaxes(rangemode="tozero")
    return fig
