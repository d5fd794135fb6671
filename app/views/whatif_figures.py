"""The What-if page over a whole run: the numbers of each step as curves, a line a method or a pair."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd
import plotly.graph_objects as go

from app.inert import inert_plotly
from app.palette import Theme, run_styles
from app.views.base import figure

Rows = Sequence[dict[str, Any]]
"""What `core.counterfactual.series` yields."""


@dataclass(frozen=True)
class Curve:
    """One figure: `value` of a method's numbers, or of a pair's where `of` is "pairs" (each against slot A)."""

    key: str
    title: str
    y: str
    of: str
    value: Callable[[dict[str, Any]], float | None]
    how: str
    share: bool = False


def _right(method: dict[str, Any]) -> float | None:
    total = method["mass_positive"] + method["mass_negative"]
    return method["mass_positive"] / total if total > 0 else None


def _unlikely(method: dict[str, Any]) -> float | None:
    """The least likely quarter's share of the mass; None without log-probs or mass."""
    quarters = method.get("quartile_mass")
    return quarters[0] / sum(quarters) if quarters and sum(quarters) > 0 else None


CURVES = (
    Curve("right", "Right answers' share of the advantage mass", "share of mass", "methods", _right,
          "How much of each method's update reinforces right answers; the rest suppresses wrong ones.", share=True),
    Curve("changed", "Tokens whose advantage changes", "share of tokens", "pairs", lambda pair: pair["changed_share"],
          "Against the method in slot A, over the tokens that either of the two keeps.", share=True),
    Curve("rank", "Rank correlation of the token advantages", "Spearman's ρ", "pairs",
          lambda pair: pair["rank_correlation"],
          "Against the method in slot A. 1: both put the tokens in the same order, so that one is the other with "
          "another learning rate a token at most."),
    Curve("flipped", "Tokens whose sign flips", "share of tokens", "pairs", lambda pair: pair["flipped_share"],
          "Reinforced under one of the two methods and suppressed under the other, against slot A.", share=True),
    Curve("scale", "Size of the step", "mass, A = 1", "pairs",
          lambda pair: 1 / pair["scale"] if pair["scale"] else None,
          "The whole advantage mass against slot A's. Under AdamW a factor that all steps share cancels."),
    Curve("unlikely", "Advantage mass on the least likely quarter of tokens", "share of mass", "methods", _unlikely,
          "By the probability that the sampler gave the tokens of a step: there an update changes most. Mass is the "
          "sum of loss weight × |advantage|.", share=True),
    Curve("favorable", "Favorable prompts", "share of prompts", "methods", lambda method: method.get("favorable_share"),
          "By the method's own criteria, else ADORA's, which it then only observes.", share=True),
    Curve("weight", "Mean weight of a prompt", "weight", "methods", lambda method: method["mean_weight"],
          "Over the prompts that the method keeps; 1 where it weighs them all alike."),
)  # fmt: skip


def frame(rows: Rows, labels: Sequence[str]) -> pd.DataFrame:
    """Every number of every step, a row a method or pair."""
    found = []
    for row in rows:
        for place, method in enumerate(row["methods"]):
            found.append(
                {"step": row["step"], "what": labels[place], **{k: v for k, v in method.items() if k != "label"}}
            )
        for pair in row["pairs"]:
            name = f"{labels[pair['a']]} beside {labels[pair['b']]}"
            found.append({"step": row["step"], "what": name, **{k: v for k, v in pair.items() if k not in ("a", "b")}})
    return pd.DataFrame(found)


def curve(rows: Rows, which: Curve, names: Sequence[str], labels: Sequence[str], theme: Theme) -> go.Figure | None:
    """The figure, None where all its lines are one constant that needs no picture (weights of 1, no flips)."""
    styles = run_styles(names, theme.dark)
    done = [row for row in rows if row["methods"]]
    steps = [row["step"] for row in done]
    fig = figure(theme, title=which.title, x="step", y=which.y, height=250)
    drawn: list[float] = []
    for place, label in enumerate(labels):
        if which.of == "methods":
            values = [which.value(row["methods"][place]) for row in done]
        elif place == 0:
            continue
        else:
            values = [which.value(next(p for p in row["pairs"] if (p["a"], p["b"]) == (0, place))) for row in done]
        drawn += [value for value in values if value is not None]
        colour, dash = styles[place]
        fig.add_scatter(
            x=steps, y=values, name=inert_plotly(label, 24), mode="lines" if len(steps) > 1 else "markers",
            line={"color": colour, "dash": dash, "width": 2}, connectgaps=False,
            hovertemplate="%{y:.1%}" if which.share else "%{y:.3g}",
        )  # fmt: skip
    if which.share:
        fig.update_yaxes(tickformat=".0%", rangemode="tozero")
    dull = which.key in ("weight", "flipped") and len({round(value, 9) for value in drawn}) <= 1
    return None if dull or not drawn else fig
