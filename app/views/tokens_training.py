"""One prompt through training: its numbers by step, and what changed since the step before.

Frames of `core.store.queries.tokens_run` in, figures and words out; `app.views.probes` draws the answers themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from app.palette import SIGN, Theme
from app.views.panels import Panels, line
from app.views.tokens_fields import FIELDS, Field
from app.words import count, number

COLOURS: dict[str, Field] = {
    field.id: field for field in FIELDS if field.id in ("advantage", "push", "probability", "entropy", "change")
}
"""What the answers can be coloured by."""

SIDES = ((1, "right"), (-1, "wrong"))
DASHES = {1: "solid", -1: "dash"}
MARKS = {1: "circle", -1: "square"}
CURVES = (
    ("length", "length (tokens)", ".3g"),
    ("entropy", "entropy (nats)", ".3g"),
    ("mean_advantage", "mean advantage", ".3g"),
)


def series(visits: pd.DataFrame, rollouts: pd.DataFrame, tokens: pd.DataFrame) -> pd.DataFrame:
    """One row a visit and polarity: step, group, polarity, n, correct, rollouts, length, different, alike, truncated,
    entropy, mean_advantage; NaN where a step's tokens were not kept. `visits` are those of one prompt.
    """
    keys = ["step", "group"]
    frame = visits[[*keys, "n", "correct"]].merge(rollouts, on=keys, how="left")
    there = [*keys, "polarity", "tokens", "entropy", "mean_advantage"]
    return frame.merge(tokens[there], on=[*keys, "polarity"], how="left")


def reach(tokens: pd.DataFrame, field: Field) -> float:
    """The half-width of one colour domain for all steps: the widest 2nd to 98th percentile of any of them; 1 for a
    probability, 0 without a value.
    """
    ends = np.abs(tokens[["low", "high"]].to_numpy(dtype=float))
    widest = float(np.max(ends, where=np.isfinite(ends), initial=0.0))
    return 1.0 if field.kind == "probability" and widest else widest


def curves(frame: pd.DataFrame, step: int, theme: Theme) -> go.Figure:
    """Share right, and by polarity length, entropy and mean advantage, over the visits; `step` is marked."""
    heads = [("", theme.text)] * 2
    panels = Panels(
        theme, "This prompt, step by step", rows=2, heads=heads, height=370, own_y=frozenset({2}), left=44
    )  # fmt: skip
    visits = frame.drop_duplicates("step")
    panels.add(1, 1, line(visits["step"], visits["correct"] / visits["n"], theme.text, "right", ".0%"))
    panels.y(1, 1, range=[-0.04, 1.04], tickformat=".0%")
    titles = ["right answers (share)"]
    both = ", ".join(f'<span style="color:{theme.polarity(side)}">{SIGN[side]} {name}</span>' for side, name in SIDES)
    for place, (column, title, fmt) in enumerate(CURVES, start=1):
        for polarity, name in SIDES:
            part = frame[frame["polarity"] == polarity].set_index("step").reindex(visits["step"]).reset_index()
            words = f"{SIGN[polarity]} {name}"
            curve = line(part["step"], part[column], theme.polarity(polarity), words, fmt, DASHES[polarity])
            curve["marker"]["symbol"] = MARKS[polarity]
            panels.add(place // 2 + 1, place % 2 + 1, curve)
        titles.append(f"{title}: {both}")
    ticks = {"tick0": 0, "dtick": 1} if frame["step"].max() - frame["step"].min() <= 10 else {}
    for col in (1, 2):
        panels.x(2, col, title="step", **ticks)
        panels.y(1, col, domain=[0.58, 1])  # room for the titles between the rows
        panels.y(2, col, domain=[0, 0.42])
    panels.band(step, step)
    panels.layout["annotations"] = [
        {
            "text": title, "xref": f"x{end} domain", "yref": f"y{end} domain", "x": 0, "y": 1, "xanchor": "left",
            "yanchor": "bottom", "showarrow": False, "font": {"size": 13, "color": theme.muted},
        }
        for title, end in zip(titles, ("", "2", "3", "4"), strict=True)
    ]  # fmt: skip
    return panels.figure()


@dataclass(frozen=True)
class Visit:
    """One visit in numbers; means are over all its answers or tokens, NaN where there are none."""

    right: int
    n: int
    length: float  # tokens
    entropy: float  # nats
    different: int  # distinct answers
    alike: int  # the most answers with the same opening


def visit(frame: pd.DataFrame, step: int) -> Visit:
    """The visit of `series` at a step."""
    rows = frame[frame["step"] == step]
    first = rows.iloc[0]

    def mean(name: str, weight: str) -> float:
        there = rows[rows[name].notna() & (rows[weight] > 0)]
        return float(np.average(there[name], weights=there[weight])) if len(there) else np.nan

    counts = (int(first[name]) for name in ("correct", "n", "different", "alike"))
    right, n, different, alike = counts
    return Visit(right, n, mean("length", "rollouts"), mean("entropy", "tokens"), different, alike)


def _entropy(one: Visit) -> str:
    return "tokens not kept" if np.isnan(one.entropy) else number(one.entropy)


def changes(frame: pd.DataFrame, step: int) -> str:
    """What this visit shows, and in brackets how it was at the one before; Markdown without foreign text."""
    now = visit(frame, step)
    earlier = frame.loc[frame["step"] < step, "step"]
    was = visit(frame, int(earlier.max())) if len(earlier) else None

    def before(value: Callable[[Visit], str]) -> str:
        return "" if was is None else f" ({value(was)})"

    words = [f"**{now.right} of {now.n} right**" + before(lambda one: f"{one.right} of {one.n}")]
    if not np.isnan(now.length):
        words.append(f"mean length {number(now.length, 'tokens')}" + before(lambda one: number(one.length)))
    if not np.isnan(now.entropy):
        words.append(f"entropy {number(now.entropy, 'nats')}" + before(_entropy))
    words.append(count(now.different, "different answer") + before(lambda one: str(one.different)))
    alike = f"{now.alike} begin alike" if now.alike > 1 else "no two begin alike"
    words.append(alike + before(lambda one: str(one.alike) if one.alike > 1 else "none"))
    since = "" if was is None else f" In brackets: the visit before, step {int(earlier.max())}."
    return f"Step {step}: {', '.join(words)}.{since}"
