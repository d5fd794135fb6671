"""pass@1 against pass@k over a run: curves, what moved between two exams, and in which prompts."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from app.inert import inert_html
from app.palette import Theme, rgba
from app.views.base import figure
from app.views.panels import line
from app.words import count, number
from core.stats.bootstrap import paired_bootstrap
from core.stats.differences import Difference
from core.stats.exam import pass_at_k, wilson

LISTED = 12
"""Prompts that a list shows."""


@dataclass(frozen=True)
class Moved:
    """The same held-out prompts at two evaluations, the first and the last of a run."""

    first: int
    last: int
    k: int
    prompts: pd.DataFrame
    """prompt_id, prompt, n and pass_rate with _before and _after; one row a prompt of both exams."""
    pass_1: Difference
    pass_k: Difference

    @property
    def gained(self) -> pd.DataFrame:
        """Prompts solved at least once at the last exam and never at the first."""
        return self.prompts[(self.prompts["pass_rate_before"] == 0) & (self.prompts["pass_rate_after"] > 0)]

    @property
    def lost(self) -> pd.DataFrame:
        """The reverse."""
        return self.prompts[(self.prompts["pass_rate_before"] > 0) & (self.prompts["pass_rate_after"] == 0)]

    @property
    def by_luck(self) -> float:
        """How many prompts would come within reach, and as many fall out of it, on average if nothing had changed.

        A prompt with c right rollouts in both exams together comes in where all c fall into the second one. With equal
        rates each way to spread them over the rollouts is as likely, so that has chance C(n_2, c) / C(n_1 + n_2, c).
        """
        both = self.prompts
        right = _correct(both, "before") + _correct(both, "after")
        chances = [
            (comb(int(one), int(c)) + comb(int(two), int(c))) / 2 / comb(int(one + two), int(c))
            for one, two, c in zip(both["n_before"], both["n_after"], right, strict=True)
            if c
        ]
        return float(sum(chances))


def with_interval(exams: pd.DataFrame, prompts: pd.DataFrame) -> pd.DataFrame:
    """`compare.evals` with low and high: the 95 % interval of pass@k over the held-out prompts of each evaluation.

    `prompts` is `polarity.exams`. Wilson's interval, a prompt being solved or not: exact in kind where k tries are all
    that there are, a little wide where there are more. NaN where an exam's prompts are not there.
    """
    n = prompts.groupby("step").size().reindex(exams["step"]).to_numpy(float)
    low, high = wilson(exams["pass_at_k"].to_numpy(float) * n, n)
    return exams.assign(low=low, high=high)


def moved(before: pd.DataFrame, after: pd.DataFrame, k: int, first: int, last: int) -> Moved | None:
    """What changed between two exams (`compare.exam`); None if it is one exam, or they share no prompt.

    The intervals draw the prompts anew, so they cover which prompts were asked, not which seed trained.
    """
    both = before.merge(after.drop(columns="prompt"), on="prompt_id", suffixes=("_before", "_after"))
    if first == last or both.empty:
        return None

    def at(k: int) -> Difference:
        rates = [
            pass_at_k(both[f"n_{when}"].to_numpy(), _correct(both, when), k) for when in ("after", "before")
        ]  # fmt: skip
        return paired_bootstrap({0: rates[0]}, {0: rates[1]})

    fewest = int(min(both["n_before"].min(), both["n_after"].min()))
    k = min(k, fewest)
    return Moved(first, last, k, both, at(1), at(k))


def verdict(exams: pd.DataFrame, seen: Moved | None) -> str:
    """Does the boundary shrink? Markdown. `exams` is the query `compare.evals`."""
    now = exams.iloc[-1]
    n = f"{int(now['prompts'])} held-out prompts × {int(now['rollouts'])} rollouts"
    if seen is None:
        return (
            f"One evaluation so far, at step {int(now['step'])}: pass@1 {number(now['pass_at_1'])}, "
            f"pass@{int(now['k'])} {number(now['pass_at_k'])} (n = {n}). What moves needs a second one."
        )
    words = f"From step {seen.first} to {seen.last} {_went('pass@1', seen.pass_1)}"
    if seen.k == 1:
        return f"{words} (n = {n}). pass@k with k = 1 says the same; set evaluate.k higher to see the boundary."
    joint = "while" if np.sign(seen.pass_1.value) != np.sign(seen.pass_k.value) else "and"
    words += f" {joint} {_went(f'pass@{seen.k}', seen.pass_k)}: **{_meaning(seen)}**."
    reach = f"{count(len(seen.gained), 'prompt')} came within reach of the rollouts, {len(seen.lost)} fell out of it"
    luck = f"had nothing changed, luck alone would move about {number(seen.by_luck)} each way"
    return f"{words} {reach}; {luck} (n = {n}; intervals of 95 % over prompts, for this one run)."


def tone(seen: Moved | None) -> str:
    """Of the verdict's box: a warning where the boundary shrinks for certain."""
    return "warning" if seen is not None and seen.pass_k.verdict == "lower" and seen.k > 1 else "neutral"


def curves(exams: pd.DataFrame, theme: Theme) -> go.Figure:
    """pass@1 and pass@k of every evaluation, the room between them shaded; pass@k with its interval if it has one."""
    k = int(exams["k"].iloc[-1])
    fig = figure(
        theme, title=f"pass@1 and pass@{k} on held-out prompts", x="updates that the policy has had (steps)",
        y="share of held-out prompts", height=330,
    )  # fmt: skip
    top = line(exams["step"], exams["pass_at_k"], theme.favorable, f"pass@{k}", ".1%", "dash")
    low = line(exams["step"], exams["pass_at_1"], theme.text, "pass@1", ".1%")
    if "low" in exams and exams["low"].notna().any():
        up, down = (exams["high"] - exams["pass_at_k"]).clip(0), (exams["pass_at_k"] - exams["low"]).clip(0)
        bars = {"type": "data", "symmetric": False, "array": up.to_numpy(), "arrayminus": down.to_numpy()}
        top |= {"error_y": {**bars, "color": rgba(theme.favorable, 0.6), "thickness": 1.2, "width": 3}}
    fill = {"fill": "tonexty", "fillcolor": rgba(theme.favorable, 0.08)}
    fig.add_traces([{**top, "showlegend": True}, {**low, "showlegend": True, **fill}])
    fig.update_layout(yaxis={"range": [0, 1.02], "tickformat": ".0%"})
    return fig


def spread(seen: Moved, theme: Theme) -> go.Figure:
    """How many prompts were solved in none, some and all of their rollouts, at both exams."""
    fig = figure(
        theme, title="How often each held-out prompt was solved, before and after",
        x="right rollouts of a prompt", y="prompts", height=300,
    )  # fmt: skip
    n = int(max(seen.prompts["n_before"].max(), seen.prompts["n_after"].max()))
    styles = (
        ("before", f"step {seen.first}", {"color": theme.background, "line": {"color": theme.muted, "width": 1.5}}),
        ("after", f"step {seen.last}", {"color": rgba(theme.favorable, 0.8)}),
    )
    traces = [
        {
            "type": "bar", "name": name, "x": np.arange(n + 1),
            "y": np.bincount(_correct(seen.prompts, when), minlength=n + 1), "marker": marker,
            "hovertemplate": "%{y} prompts",
        }
        for when, name, marker in styles
    ]  # fmt: skip
    fig.add_traces(traces)
    fig.update_layout(barmode="group", bargap=0.2, xaxis={"dtick": 1 if n <= 16 else None, "ticksuffix": f" of {n}"})
    return fig


def prompt_list(prompts: pd.DataFrame, seen: Moved, theme: Theme) -> str:
    """Some prompts with how often they were solved at both exams; HTML, inert."""
    cell = "padding:2px 10px;border:0;text-align:left;overflow-wrap:anywhere"
    head = "".join(
        f"<th scope='col' style='{cell};font-weight:400;color:{theme.muted}'>{words}</th>"
        for words in ("prompt", f"step {seen.first}", f"step {seen.last}")
    )
    rows = []
    for row in prompts.head(LISTED).to_dict("records"):
        texts = [str(row["prompt"])[:120]] + [
            f"{round(row[f'pass_rate_{when}'] * row[f'n_{when}'])} of {row[f'n_{when}']}"
            for when in ("before", "after")
        ]
        rows.append("<tr>" + "".join(f"<td style='{cell}'>{inert_html(text)}</td>" for text in texts) + "</tr>")
    more = len(prompts) - LISTED
    rest = f"<p style='color:{theme.muted}'>and {more} more</p>" if more > 0 else ""
    table = f"border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums;color:{theme.text}"
    return f"<table style='{table}'><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>{rest}"


def _correct(both: pd.DataFrame, when: str) -> np.ndarray:
    return np.rint(both[f"pass_rate_{when}"] * both[f"n_{when}"]).to_numpy(np.int64)


def _went(name: str, change: Difference) -> str:
    """`pass@1 rose by 0.21 [0.15, 0.27]`."""
    interval = (
        f" [{number(change.low)}, {number(change.high)}]" if change.has_interval else " (too few prompts to be sure)"
    )
    if change.value == 0:
        return f"{name} stayed{interval if change.has_interval else ''}"
    return f"{name} {'rose' if change.value > 0 else 'fell'} by {number(abs(change.value))}{_signed(change, interval)}"


def _signed(change: Difference, interval: str) -> str:
    """The interval of a fall, turned round, so that it is about the number before it."""
    if change.value >= 0 or not change.has_interval:
        return interval
    return f" [{number(-change.high)}, {number(-change.low)}]"


def _meaning(seen: Moved) -> str:
    one, many = seen.pass_1.verdict, seen.pass_k.verdict
    if "no interval" in (one, many):
        return "too few prompts to say what that means"
    return {
        ("higher", "lower"): "it sharpens what it could already do, and the boundary shrinks",
        ("higher", "not distinguishable"): "it sharpens what it could already do; the boundary does not clearly move",
        ("higher", "higher"): "it is surer, and it solves prompts that it could not reach before",
        ("not distinguishable", "lower"): "the boundary shrinks, and single answers get no better for it",
        ("not distinguishable", "higher"): "the boundary grows, single answers are not clearly better yet",
        ("not distinguishable", "not distinguishable"): "no clear move of either",
        ("lower", "higher"): "it explores more: the boundary grows at the cost of single answers",
        ("lower", "lower"): "it got worse at both",
        ("lower", "not distinguishable"): "single answers got worse, the boundary does not clearly move",
    }[(one, many)]
