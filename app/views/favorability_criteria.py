"""ADORA's criteria over recorded groups: where the thresholds lie, and what moving them would have changed."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from app.inert import inert_html, inert_plotly
from app.palette import Theme, rgba
from app.views.base import figure
from app.views.favorability_step import optional
from app.views.sureness import labels
from app.words import count, number, share
from core.counterfactual import Spec
from core.stats.classes import CLASSES, UNIFORM, ClassRule, evidence, held_back, index_of

MOST = 1500
"""Points that a chart shows; more are thinned out evenly."""
SYMBOLS = ("circle", "x", "circle-open")
"""Of the classes, in their order."""
PLANES = {"lengths": "both lengths", "margin": "pass rate and margin"}
VARIANTS = {
    "adora_amplify": "amplify (paper)",
    "adora_attenuate": "attenuate (paper)",
    "adora_code_llm": "code, language models",
    "adora_code_vlm": "code, vision",
}


@dataclass(frozen=True)
class Moved:
    """What a rule makes of groups that were recorded, (M,) each, in their order."""

    label: np.ndarray  # indices into CLASSES
    weight: np.ndarray
    held: np.ndarray
    changed: np.ndarray  # the class is another than the recorded one


def move(groups: pd.DataFrame, rule: ClassRule) -> Moved:
    """The rule on recorded groups: the rollouts are those that the run's own method led to."""
    verdict = rule.judge(
        evidence(
            n=groups["n"].to_numpy(),
            correct=groups["correct"].to_numpy(),
            usable_wrong=groups["usable_wrong"].to_numpy(),
            longest_correct=groups["longest_correct"].to_numpy(float),
            mean_wrong=groups["mean_wrong_length"].to_numpy(float),
            equal=groups["equal"].to_numpy(bool),
        )
    )
    label = index_of(verdict)
    held = held_back(groups["step"].to_numpy(), verdict.weight)
    return Moved(label, verdict.weight, held, label != labels(groups))


def moved_spec(own: Spec, rule: ClassRule) -> Spec:
    """The run's method with this rule in the place of its own ADORA weights, or beside what it has."""
    replaced = {name for name in (own.name, *own.also) if name in VARIANTS}
    gone = {"weight", "tau", "combine"} if replaced else set()
    kept = {
        name: value
        for name, value in own.params.items()
        if name not in gone and name.partition(".")[0] not in replaced
    }  # fmt: skip
    given = {"weight": rule.weight, "tau": rule.tau, "combine": rule.combine}
    given = {f"{rule.variant}.{name}": value for name, value in given.items() if value is not None}
    also = tuple(name for name in own.also if name not in VARIANTS)
    first = own.name in VARIANTS
    return replace(
        own,
        name=rule.variant if first else own.name,
        also=also if first else (*also, rule.variant),
        params={**kept, **given},
    )


def scatter(groups: pd.DataFrame, moved: Moved, theme: Theme, rule: ClassRule, plane: str = "lengths") -> go.Figure:
    """The groups on both criteria under `rule`; rings mark those whose class is another than the recorded one.

    `lengths`: longest correct against mean usable wrong, coloured by pass rate; groups without both are left out
    (`without_lengths` counts them). `margin`: longest correct minus mean wrong against the pass rate, both thresholds
    as lines; groups without both lengths lie on a line of their own below.
    """
    frame = groups.assign(moved=moved.label, new_weight=moved.weight, differs=moved.changed)
    if plane == "lengths":
        frame = frame.dropna(subset=["longest_correct", "mean_wrong_length"])
    frame = _thin(frame)
    fig = figure(theme, title="Both criteria", x="", y="", height=380, hover="closest", legend=True)
    x, y = _lengths(fig, frame, theme, rule) if plane == "lengths" else _margins(fig, frame, theme, rule)
    few = len(frame) <= 40
    for index, name in enumerate(CLASSES):
        part = (frame["moved"] == index).to_numpy()
        fig.add_scatter(
            x=x[part], y=y[part], mode="markers", name=name, showlegend=False,
            customdata=frame.loc[part, ["step", "group"]].to_numpy(),
            text=[_hover(row) for row in frame[part].itertuples()], hovertemplate="%{text}<extra></extra>",
            marker={
                "symbol": SYMBOLS[index], "size": 10 if few else 7, "opacity": 0.95 if few else 0.6,
                "color": frame.loc[part, "pass_rate"], "coloraxis": "coloraxis",
                "line": {"width": 1.5 if index == UNIFORM else 0},
            },
        )  # fmt: skip
        fig.add_scatter(  # in the legend a class has no pass rate
            x=[None], y=[None], mode="markers", name=name,
            marker={"symbol": SYMBOLS[index], "size": 10, "color": theme.text, "line": {"width": 1.5}},
        )  # fmt: skip
    other = frame["differs"].to_numpy(bool)
    if other.any():
        fig.add_scatter(
            x=x[other], y=y[other], mode="markers", name="another class than recorded", hoverinfo="skip",
            marker={"symbol": "circle-open", "size": 17 if few else 12, "color": theme.warning, "line": {"width": 1.6}},
        )  # fmt: skip
    ticks, names = [0.0, 1.0], ["0", "1"]
    if rule.tau is not None and 0 < rule.tau < 1:
        ticks, names = [0.0, rule.tau, 1.0], ["0", f"τ = {number(rule.tau)}", "1"]
    fig.update_layout(
        coloraxis={
            "cmin": 0, "cmax": 1, "colorscale": pass_rate_scale(theme, rule.tau),
            "colorbar": {
                "title": {"text": "pass rate", "font": {"color": theme.muted, "size": 12}}, "outlinewidth": 0,
                "tickvals": ticks, "ticktext": names, "tickfont": {"color": theme.muted, "size": 11}, "thickness": 10,
            },
        },
        legend={"y": 1.06, "yanchor": "bottom"}, margin={"t": 44},
    )  # fmt: skip
    return fig


def _thin(frame: pd.DataFrame) -> pd.DataFrame:
    if len(frame) <= MOST:
        return frame
    return frame.iloc[np.linspace(0, len(frame) - 1, MOST).round().astype(int)]


def _lengths(fig: go.Figure, frame: pd.DataFrame, theme: Theme, rule: ClassRule) -> tuple[np.ndarray, np.ndarray]:
    x, y = (frame[name].to_numpy(float) for name in ("mean_wrong_length", "longest_correct"))
    top = float(max(x.max(initial=10), y.max(initial=10))) * 1.06
    fig.add_scatter(
        x=[0, top], y=[0, top], mode="lines", hoverinfo="skip", showlegend=False,
        line={"color": theme.text, "dash": "dot", "width": 1.5},
    )  # fmt: skip
    _say(fig, theme, "▲ length advantage", 0.0, 1.0, "left", "bottom")
    _say(fig, theme, "no length advantage ▼", 1.0, 0.01, "right", "bottom")
    fig.update_xaxes(range=[0, top], zeroline=False, title={"text": "mean length of wrong answers (tokens)"})
    fig.update_yaxes(range=[0, top], zeroline=False, title={"text": "longest correct answer (tokens)"})
    return x, y


def _margins(fig: go.Figure, frame: pd.DataFrame, theme: Theme, rule: ClassRule) -> tuple[np.ndarray, np.ndarray]:
    margin = (frame["longest_correct"] - frame["mean_wrong_length"]).to_numpy(float)
    reach = float(np.nanmax(np.abs(margin))) if np.isfinite(margin).any() else 10.0
    below = -1.35 * max(reach, 1.0)
    fig.add_hline(y=0, line={"color": theme.text, "dash": "dot", "width": 1.5})
    fig.add_hline(y=-1.18 * max(reach, 1.0), line={"color": theme.grid, "width": 1})
    if rule.tau is not None:
        fig.add_vline(x=rule.tau, line={"color": theme.text, "dash": "dash", "width": 1.5})
        _say(fig, theme, f"◀ difficulty advantage (τ = {number(rule.tau)})", 0.0, 1.0, "left", "bottom")
    _say(fig, theme, "length not defined", 0.5, 0.01, "center", "bottom")
    fig.update_xaxes(range=[-0.04, 1.04], zeroline=False, title={"text": "pass rate of the group"})
    fig.update_yaxes(
        range=[1.12 * below, 1.15 * max(reach, 1.0)], zeroline=False,
        title={"text": "longest correct − mean wrong (tokens)"},
    )  # fmt: skip
    n = frame["n"].to_numpy(float)
    jitter = (frame["group"].to_numpy() % 7 - 3) / 7 * 0.5 / np.maximum(n, 1)  # groups alike do not hide each other
    return frame["pass_rate"].to_numpy(float) + jitter, np.where(np.isfinite(margin), margin, below)


def _say(fig: go.Figure, theme: Theme, text: str, x: float, y: float, anchor: str, baseline: str) -> None:
    fig.add_annotation(
        text=text, x=x, y=y, xref="paper", yref="paper", xanchor=anchor, yanchor=baseline, showarrow=False,
        font={"color": theme.muted, "size": 12},
    )  # fmt: skip


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
    """Groups that have no correct, or no usable wrong rollout."""
    return int(groups[["longest_correct", "mean_wrong_length"]].isna().any(axis=1).sum())


def _hover(row: object) -> str:
    before = f", recorded as {row.label}" if row.differs else ""
    lines = (
        f"<b>{inert_plotly(row.prompt, 60)}</b>",
        f"step {row.step}: {CLASSES[row.moved]}{before}" + ("" if row.kept else ", not trained"),
        f"{int(row.correct)} of {int(row.n)} correct",
        f"longest correct {number(optional(row.longest_correct), 'tokens')}, "
        f"mean wrong {number(optional(row.mean_wrong_length), 'tokens')}",
        f"weight {number(row.new_weight)}, recorded {number(optional(row.weight))}",
    )
    return "<br>".join(lines)


def moved_sentence(
    visits: pd.DataFrame, step: int, now: Moved, run: Moved, rule: ClassRule, own: ClassRule
) -> str:  # fmt: skip
    """What the rule does, and what it would have changed at the step (`now`) and over the run, as Markdown."""
    if rule == own:
        return f"As recorded: {rule_words(rule)}. Move a threshold to see what it would have changed."
    prompts = visits.loc[run.changed, "prompt_id"].nunique()
    words = (
        f"Here {rule_words(rule)}. At step {step} it would hold back **{int(now.held.sum())} of "
        f"{count(len(now.label), 'prompt')}** and give **{int(now.changed.sum())}** another class than recorded; over "
        f"the run it gives another to **{int(run.changed.sum())} of {count(len(visits), 'visit')}**"
    )
    of = f", of {count(prompts, 'prompt')}" if prompts else ""
    return f"{words}{of}. The rollouts stay those that the run's own method led to."


def counts(groups: pd.DataFrame, moved: Moved) -> pd.DataFrame:
    """What changes: a row a class, then those held back and the mean weight; as recorded and as moved."""
    before = labels(groups)
    rows = [
        {"what": name, "recorded": int((before == index).sum()), "moved": int((moved.label == index).sum())}
        for index, name in enumerate(CLASSES)
    ]
    rows.append({"what": "held back", "recorded": int(groups["held"].sum()), "moved": int(moved.held.sum())})
    rows.append({"what": "mean weight", "recorded": _mean(groups["weight"]), "moved": float(moved.weight.mean())})
    return pd.DataFrame(rows)


def _mean(weight: pd.Series) -> float:
    """The mean of weights that were stored in 32 bits."""
    return float(weight.astype(float).round(6).mean())


def counts_table(scopes: dict[str, tuple[pd.DataFrame, int]], theme: Theme) -> str:
    """`counts` of several scopes beside each other, with the number of groups of each, as HTML."""
    cell = f"padding:3px 8px;border:0;border-top:1px solid {theme.grid};text-align:"
    head = f"padding:2px 8px;border:0;font-weight:600;font-size:.8125rem;color:{theme.muted};text-align:"
    top = "".join(
        f"<th scope='colgroup' colspan='2' style='{head}center'>{inert_html(f'{name}, {groups} groups')}</th>"
        for name, (_, groups) in scopes.items()
    )
    second = "".join(f"<th scope='col' style='{head}right'>{word}</th>" for word in ("recorded", "moved")) * len(scopes)
    body = ""
    for place, what in enumerate(next(iter(scopes.values()))[0]["what"]):
        cells = ""
        for frame, groups in scopes.values():
            row = frame.iloc[place]
            for name in ("recorded", "moved"):
                value = row[name]
                text = number(value) if what == "mean weight" else f"{int(value)} ({share(value / groups)})"
                heavy = "font-weight:600" if name == "moved" and not np.isclose(value, row["recorded"]) else ""
                cells += f"<td style='{cell}right;{heavy}' data-testid='{what.replace(' ', '-')}'>{text}</td>"
        body += f"<tr><th scope='row' style='{cell}left;font-weight:400'>{what}</th>{cells}</tr>"
    table = (
        f"width:100%;border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums;color:{theme.text}"
    )
    return (
        f"<table style='{table}'><thead><tr><th style='{head}left'></th>{top}</tr><tr><th></th>{second}</tr></thead>"
        f"<tbody>{body}</tbody></table>"
    )


def favorable_over_time(visits: pd.DataFrame, moved: Moved, theme: Theme, window: int, step: int) -> go.Figure:
    """Favorable groups a step as recorded and as moved, a running mean over `window` steps, in %."""
    fig = figure(theme, title="Favorable prompts, recorded and moved", x="step", y="favorable groups (%)", height=230)
    both = pd.DataFrame(
        {"step": visits["step"], "recorded": visits["label"] == "favorable", "moved": moved.label == 0}
    ).groupby("step")[["recorded", "moved"]].mean()  # fmt: skip
    smooth = 100 * both.rolling(window, center=True, min_periods=1).mean()
    for name, dash, colour in (("recorded", "solid", theme.favorable), ("moved", "dash", theme.warning)):
        fig.add_scatter(
            x=smooth.index, y=smooth[name], name=name, mode="lines", line={"color": colour, "dash": dash, "width": 2},
            hovertemplate="%{y:.0f} %",
        )  # fmt: skip
    fig.add_vline(x=step, line={"color": theme.muted, "width": 1, "dash": "dot"})
    fig.update_yaxes(range=[0, 102])
    return fig


def rule_words(rule: ClassRule) -> str:
    """The rule in one phrase of Markdown, from what is favorable to what it weighs."""
    length = "the longest correct answer is longer than the mean usable wrong one"
    weighs = f"weighs {number(rule.weight)}"
    if rule.variant == "adora_amplify":
        joint = "or" if rule.combine == "any" else "and"
        hard = f"{joint} at most {share(rule.tau)} are correct (τ = {number(rule.tau)})"
        return f"favorable = {length}, {hard}; a favorable prompt {weighs}, the others 1"
    if rule.variant == "adora_attenuate":
        return f"favorable = {length}; an unfavorable prompt {weighs}, the others 1; without both lengths it is uniform"
    either = "none is correct" if rule.variant == "adora_code_llm" else "no wrong one is usable"
    return (
        f"a prompt {weighs} where the longest correct answer is no longer than the mean usable wrong one, or where "
        f"{either}, else 1; groups of equal rewards show as uniform, with the weight that this gives them"
    )
