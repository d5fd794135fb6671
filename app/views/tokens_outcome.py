"""What a step's update did to the tokens that it pushed: in words, as shares by how sure the policy was, as a list.

A token has a push where it is in the loss with an advantage. Pure functions of `core.store.queries.tokens`' rows.
"""

from __future__ import annotations

from itertools import pairwise

import pandas as pd
import plotly.graph_objects as go

from app.inert import visible, visible_token
from app.palette import HATCH, SIGN, Theme
from app.views.base import figure
from app.words import count, number, share
from core.store.queries.tokens import SURE

CLASSES = (f"p < {SURE[0]}", *(f"{a} ≤ p < {b}" for a, b in pairwise(SURE)), f"p ≥ {SURE[-1]}")
"""The classes of SURE in words."""

MOVES = {"agreed": "as pushed", "still": "did not move", "against": "the other way"}

NUMBERS = ("advantage", "p", "Δ log p (nats)")
"""Columns of `contrary_table` that are numbers."""


def sentence(moves: pd.DataFrame, step: int) -> str:
    """How many of the step's pushed tokens moved as pushed, the other way and not at all. Markdown."""
    pushed, known = int(moves["pushed"].sum()), int(moves["known"].sum())
    parts = [
        f"**{count(int(moves[name].sum()), 'token')}** ({share(moves[name].sum() / known)}) {words}"
        for name, words in (("agreed", "moved the way their advantage pushed"), ("against", "the other way"))
    ]
    still = int(moves["still"].sum())
    rest = f" {count(still, 'token')} did not move." if still else ""
    unknown = f" Of {count(pushed - known, 'more', 'more')} nothing is known." if pushed > known else ""
    return f"Step {step} pushed {count(known, 'token')}: {parts[0]}, {parts[1]}.{rest}{unknown}"


def meaning(changes: pd.DataFrame) -> str:
    """Why tokens move against their push, and how little the sure ones move. Markdown.

    `changes` are the rows of `step_changes`.
    """
    shared = (
        "All tokens share the same weights: a push on one moves the others too, so a token goes against its own push "
        "where the rest of the batch pulls harder."
    )
    ends = changes[changes["sure"].isin([0, len(SURE)])].sort_values("sure", ascending=False)
    medians = [
        f"{number(row.median_change, 'nats')} at {CLASSES[row.sure]} ({count(int(row.known), 'token')})"
        for row in ends.itertuples()
    ]
    return f"{shared} The median |Δ log p| is {' and '.join(medians)}." if medians else shared


def shares(moves: pd.DataFrame, theme: Theme, step: int) -> go.Figure:
    """Of the pushed tokens of right and wrong answers: the shares that moved each way, by how sure the policy was."""
    rows = moves[moves["known"] > 0].sort_values(["polarity", "sure"], ascending=[True, False])  # bars grow upwards
    labels = [
        f"{SIGN[row.polarity]} {CLASSES[row.sure]}: {count(int(row.known), 'token')}" for row in rows.itertuples()
    ]
    fig = figure(
        theme, title=f"Which way step {step} moved the tokens that it pushed", x="share of the tokens (%)",
        y="± answers, by p", height=110 + 26 * len(rows), hover="closest",
    )  # fmt: skip
    looks = {"agreed": (theme.favorable, ""), "still": (theme.grid, ""), "against": (theme.warning, HATCH)}
    for name, words in MOVES.items():
        colour, pattern = looks[name]
        fig.add_bar(
            orientation="h", name=words, x=(100 * rows[name] / rows["known"]).to_numpy(float), y=labels,
            customdata=rows[[name, "known", "median_change"]].to_numpy(float),
            marker={
                "color": colour, "line": {"width": 0},
                "pattern": {"shape": pattern, "fillmode": "overlay", "fgcolor": theme.background, "size": 6},
            },
            hovertemplate=f"%{{y}}<br>{words}: %{{x:.3g}} % (%{{customdata[0]:.0f}} of them)"
            "<br>median |Δ log p| %{customdata[2]:.3g} nats<extra></extra>",
        )  # fmt: skip
    fig.update_xaxes(range=[0, 100])
    return fig.update_layout(barmode="stack", bargap=0.25, legend_traceorder="normal")


def contrary_table(tokens: pd.DataFrame, prompts: dict[int, str]) -> pd.DataFrame:
    """The rows of `contrary_tokens` as they are shown; `prompts` are their texts by group."""
    return pd.DataFrame(
        {
            "token": [visible_token(token) for token in tokens["token"]],
            "prompt": [visible(prompts.get(int(group), ""))[:60] for group in tokens["group"]],
            "answer": [
                f"{SIGN[1 if row.polarity > 0 else -1]} rollout {row.rollout}, position {row.position}"
                for row in tokens.itertuples()
            ],
            "advantage": tokens["advantage"].astype(float),
            "p": tokens["probability"].astype(float),
            "Δ log p (nats)": tokens["change"].astype(float),
        }
    )
