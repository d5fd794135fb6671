"""The entropy change that a covariance predicts beside the one that came: by step, by polarity, and by cell."""

from __future__ import annotations

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from app.palette import SIGN, Theme, rgba
from app.views.panels import Panels, line
from app.views.polarity import CELL_NAMES, steps_words
from app.views.polarity_figures import SIDES, Chosen, over_steps, side_heads
from app.words import count, number, share
from core.stats.covariance import LEAST_STEPS, Fit, Sums, contribution, fit

FITS, PARTLY = 0.7, 0.3
"""Correlations over steps from which the covariance is said to foretell how far the entropy moves: about half of the
variance, and a tenth of it."""
_SUMS = ("n", "entropy", "advantage", "product")
CLEAR = 0.02
"""A change over the run below this many nats is not asked when it came."""
STRETCH = 0.1
"""The share of a run's steps that its fastest stretch takes."""


def by_step(sums: pd.DataFrame) -> pd.DataFrame:
    """Covariance and entropy change of every step, and what each polarity adds. `sums` is the query `covariances`.

    Columns: step, n (tokens with an entropy), n_wrong, n_right, covariance, covariance_wrong, covariance_right, change
    (mean over the step's tokens, nats), change_wrong, change_right. Sides add up to the step's; NaN where nothing was
    sampled, or no change measured.
    """
    steps = np.unique(sums["step"].to_numpy(np.int64))
    row = np.searchsorted(steps, sums["step"].to_numpy(np.int64))
    place = row, (sums["polarity"].to_numpy() > 0).astype(int)

    def grid(name: str) -> np.ndarray:
        out = np.zeros((len(steps), 2))
        out[place] = sums[name].to_numpy(float)
        return out

    parts = Sums(*(grid(name) for name in _SUMS))
    covariance = contribution(parts, parts.total())
    changed = grid("changed").sum(axis=1, keepdims=True)
    change = np.divide(grid("entropy_change"), changed, out=np.full((len(steps), 2), np.nan), where=changed > 0)
    return pd.DataFrame(
        {
            "step": steps, "n": parts.n.sum(axis=1).astype(int),
            "n_wrong": parts.n[:, 0].astype(int), "n_right": parts.n[:, 1].astype(int),
            "covariance": covariance.sum(axis=1), "covariance_wrong": covariance[:, 0],
            "covariance_right": covariance[:, 1],
            "change": change.sum(axis=1), "change_wrong": change[:, 0], "change_right": change[:, 1],
        }
    )  # fmt: skip


def fitted(frame: pd.DataFrame) -> Fit:
    """The run's one scale between `by_step`'s covariance and change."""
    return fit(frame["covariance"].to_numpy(), frame["change"].to_numpy())


def tone(seen: Fit) -> str:
    """Of the verdict's box: a warning where the prediction does not fit."""
    poor = seen.n >= LEAST_STEPS and not (seen.usable and (np.isnan(seen.r) or seen.r >= PARTLY))
    return "warning" if poor else "neutral"


def verdict(frame: pd.DataFrame, seen: Fit, first: int, last: int) -> str:
    """At whose tokens the entropy fell over the run and when, how far the covariance is to be believed, and the window;
    Markdown.
    """
    known = frame[frame["change"].notna()]
    words = [] if known.empty else [f"{_over_run(known)} {_when(known)}".strip()]
    words.append(f"{_belief(seen)} {_pushed(known, seen)}".strip())
    if len(known) > 1:
        words.append(_window(known[known["step"].between(first, last)], first, last))
    return "\n\n".join(words)


def _over_run(known: pd.DataFrame) -> str:
    total, wrong, right = (float(known[name].sum()) for name in ("change", "change_wrong", "change_right"))
    steps = f"{steps_words(int(known['step'].min()), int(known['step'].max()))} (n = {len(known)})"
    tokens = known[["n_wrong", "n_right"]].sum()
    of = float(tokens["n_wrong"] / tokens.sum())
    part = f"{share(of)} of the tokens"
    if wrong * right > 0:  # else neither has a share
        part = f"{share(wrong / total)} of the change, {part}"
    return (
        f"Over {steps} the updates {_moved(total)} at their own tokens by **{number(abs(total), 'nats')}** in all: "
        f"{number(wrong, signed=True)} at tokens of wrong answers ({part}), "
        f"{number(right, signed=True)} at those of right ones."
    )


def _when(known: pd.DataFrame) -> str:
    """`Half of it had come by step 24, the fastest were steps 1 to 10 (−0.0063 nats a step).`"""
    change, steps = known["change"].to_numpy(), known["step"].to_numpy()
    total, long = float(change.sum()), round(STRETCH * len(change))
    if abs(total) < CLEAR or long < 2:
        return ""
    half = int(steps[np.argmax(np.cumsum(change) / total >= 0.5)])
    means = np.convolve(change, np.full(long, 1 / long), "valid")
    at = int(np.argmax(means * np.sign(total)))
    fastest = f"{steps_words(int(steps[at]), int(steps[at + long - 1]))} ({number(means[at], 'nats', True)} a step)"
    return f"Half of it had come by **step {half}**, the fastest were {fastest}."


def _pushed(known: pd.DataFrame, seen: Fit) -> str:
    """Which side's advantages the covariance makes responsible, in nats over the run."""
    if not seen.usable:
        return ""
    wrong, right = (-seen.scale * float(known[f"covariance_{side}"].sum()) for side in ("wrong", "right"))
    what = f"{number(wrong, signed=True)} by advantages of wrong answers, {number(right, signed=True)} by right ones'"
    if seen.r >= PARTLY:
        return f"Over the run it puts {what} (nats)."
    return f"So its split, {what} (nats over the run), is a hint at most."


def _window(part: pd.DataFrame, first: int, last: int) -> str:
    if part.empty:
        return f"No entropy change was recorded in {steps_words(first, last)}."
    change, wrong, right = (float(part[name].mean()) for name in ("change", "change_wrong", "change_right"))
    step = " a step" if first != last else ""
    return (
        f"In {steps_words(first, last)} the update {_moved(change)} by **{number(abs(change), 'nats')}**{step}: "
        f"{number(wrong, signed=True)} at tokens of wrong answers, {number(right, signed=True)} at those of right ones."
    )


def total_figure(frame: pd.DataFrame, seen: Fit, theme: Theme, chosen: Chosen = None) -> go.Figure:
    """The changes added up over the run: at tokens of wrong answers, at all tokens, at those of right ones."""
    known = frame[frame["change"].notna()]
    wrong, right = side_heads(theme)
    title = "Entropy change added up over the run: solid what came" + (
        ", dashed what the covariance predicts" if seen.usable else ""
    )
    panels = Panels(theme, title, heads=[wrong, ("both", theme.muted), right], height=310, left=76)
    for col, (end, name, colour) in enumerate(
        (
            ("_wrong", f"{SIGN[-1]} wrong", theme.polarity(-1)), ("", "both", theme.text),
            ("_right", f"{SIGN[1]} right", theme.polarity(1)),
        ),
        start=1,
    ):  # fmt: skip
        if seen.usable:
            toward = (-seen.scale * known[f"covariance{end}"]).cumsum()
            panels.add(1, col, line(known["step"], toward, colour, f"{name}, predicted", ".3g", "dash"))
        panels.add(1, col, line(known["step"], known[f"change{end}"].cumsum(), colour, f"{name}, came", ".3g"))
        panels.line(1, col, 0.0)
    panels.y(1, 1, title="sum of changes (nats)")
    panels.fit_y(1)
    return over_steps(panels, chosen)


def steps_figure(frame: pd.DataFrame, seen: Fit, theme: Theme, chosen: Chosen = None) -> go.Figure:
    """Left the change over steps, solid what came and dashed what is predicted; right one against the other."""
    slope = f"η = {number(seen.scale)}" if seen.usable else "no scale"
    panels = Panels(
        theme, "Entropy change of each update: solid what came, dashed what the covariance predicts",
        heads=[("step by step", theme.muted), (f"predicted against real, {slope}", theme.muted)],
        height=330, widths=[0.62, 0.38], link_x=False, left=76,
    )  # fmt: skip
    steps, toward = frame["step"], -frame["covariance"]
    own = {"customdata": steps.to_numpy()}  # the step of every point, for clicks in either panel
    if seen.usable:
        panels.add(1, 1, own | line(steps, seen.scale * toward, theme.favorable, "predicted", ".3g", "dash"))
    panels.add(1, 1, own | line(steps, frame["change"], theme.text, "came", ".3g"))
    inside = frame["step"].between(*chosen) if chosen else pd.Series(False, frame.index)
    panels.add(
        1, 2,
        {
            "type": "scatter", "x": toward.to_numpy(), "y": frame["change"].to_numpy(), "mode": "markers",
            "name": "steps", "showlegend": False, **own,
            "marker": {
                "size": 8, "color": [rgba(theme.text, 0.85 if there else 0.12) for there in inside],
                "line": {"color": theme.text, "width": 1},
            },
            "hovertemplate": "step %{customdata}: −Cov %{x:.3g}, came %{y:.3g} nats<extra></extra>",
        },
    )  # fmt: skip
    if seen.usable:
        ends = np.array([min(toward.min(), 0.0), max(toward.max(), 0.0)])
        fitted_line = line(ends, seen.scale * ends, theme.favorable, "fit through 0", ".3g", "dash")
        panels.add(1, 2, {**fitted_line, "mode": "lines", "hoverinfo": "skip", "hovertemplate": None})
    panels.y(1, 1, title="entropy change (nats)")
    panels.fit_y(1)
    panels.x(1, 2, title="−Cov(log p, A) (nats × advantage)")
    panels.line(1, 1, 0.0)
    panels.line(1, 2, 0.0)
    return over_steps(panels, chosen, cols=(1,))


def sides_figure(frame: pd.DataFrame, seen: Fit, theme: Theme, chosen: Chosen = None) -> go.Figure:
    """What wrong and right answers add to the change; without a scale, −Cov in its own unit in a second row."""
    rows = 1 if seen.usable else 2
    panels = Panels(
        theme, "Whose tokens moved it: solid what came, dashed what the covariance predicts" if seen.usable
        else "Whose tokens moved it: what came, and below it the covariance's direction",
        rows=rows, heads=side_heads(theme), height=180 * rows + 120, left=76,
    )  # fmt: skip
    for col, (polarity, name) in enumerate(SIDES, start=1):
        colour, toward = theme.polarity(polarity), -frame[f"covariance_{name}"]
        words = f"{SIGN[polarity]} {name}"
        if seen.usable:
            panels.add(1, col, line(frame["step"], seen.scale * toward, colour, f"{words}, predicted", ".3g", "dash"))
        else:
            panels.add(2, col, line(frame["step"], toward, colour, f"{words}, −Cov", ".3g", "dash"))
        panels.add(1, col, line(frame["step"], frame[f"change_{name}"], colour, f"{words}, came", ".3g"))
        for row in range(1, rows + 1):
            panels.line(row, col, 0.0)
    panels.y(1, 1, title="entropy change (nats)")
    panels.fit_y(1)
    if rows == 2:
        panels.y(2, 1, title="−Cov (nats × A)")
        panels.fit_y(2)
    return over_steps(panels, chosen)


def in_cells(cells: pd.DataFrame, seen: Fit | None) -> pd.DataFrame:
    """`cells` with what each adds to the step's entropy change: predicted and came (nats), toward (−Cov).

    predicted is NaN without a usable scale, toward without a `seen`: probes are not trained. The step's own are
    all_predicted, all_came and all_toward.
    """
    part, whole = (
        Sums(*(cells[f"{of}{name}"].to_numpy(float) for name in _SUMS)) for of in ("", "all_")
    )  # fmt: skip
    out = cells.copy()
    scale = seen.scale if seen is not None and seen.usable else np.nan
    for of, sums in (("", part), ("all_", whole)):
        out[f"{of}toward"] = -contribution(sums, whole) if seen is not None else np.nan
        out[f"{of}predicted"] = scale * out[f"{of}toward"]
        total = cells["all_changed"].to_numpy(float)
        out[f"{of}came"] = np.divide(
            cells[f"{of}entropy_change"].to_numpy(float), total, out=np.full(len(cells), np.nan), where=total > 0
        )
    return out


def cell_words(cells: pd.DataFrame, step: int, trained: bool) -> str:
    """Which cell moved the step's entropy most, and which the covariance names; Markdown. `cells` is `in_cells`."""
    if cells.empty:
        return f"Step {step} has no tokens of this kind."
    came = float(cells["all_came"].iloc[0])
    if np.isnan(came):
        return (
            f"Which tokens of step {step} the update heard. Entropies after the update were not recorded "
            "(record.after_update), so what it did to them is not known."
        )
    words = f"In step {step} the entropy {_fell(came)} by **{number(abs(came), 'nats')}** a token"
    kept, every = (int(cells[name].iloc[0]) for name in ("all_trained", "all_n"))
    part = f"{kept:,} of {count(every, 'token')} were trained on".replace(",", "\u202f")
    words += f" ({part}). " if trained and kept < every else f" (n = {count(every, 'token')}). "
    if not trained:
        return f"{words}These are probes: they were not trained, the update moved them from afar."
    way = np.sign(came) or 1.0
    most = cells.loc[(cells["came"] * way).idxmax()]
    words += f"Of the eight cells, {_cell_name(most)} moved it most that way ({number(most['came'], 'nats', True)})"
    if cells["toward"].isna().all():
        return f"{words}."
    foretold = cells[cells["toward"].notna() & (cells["toward"] != 0)]
    if foretold.empty:
        return f"{words}; the covariance says nothing, since no cell has a token with an advantage."
    named = foretold.loc[(foretold["toward"] * way).idxmax()]
    if named["toward"] * way < 0:
        words += "; by the covariance none would"
    elif named.name == most.name:
        words += "; the covariance names the same cell"
    else:
        words += f"; by the covariance it would be {_cell_name(named)}"
    signs = int((np.sign(foretold["toward"]) == np.sign(foretold["came"])).sum())
    cells_told = f"{len(foretold)} cells" + (" with an advantage" if len(foretold) < len(cells) else "")
    words += f". The covariance's direction is right in {signs} of {cells_told}"
    whole = np.sign(cells["all_toward"].iloc[0]) == np.sign(came)
    return f"{words} and {'right' if whole else 'wrong'} for the whole step."


def _cell_name(cell: pd.Series) -> str:
    side = "right" if cell["polarity"] > 0 else "wrong"
    return f"the {CELL_NAMES[(cell['metric'], cell['end'])]} of {side} answers"


def _belief(seen: Fit) -> str:
    if not seen.n:
        return "No step has both a covariance and a change yet."
    same = "fell in all of them" if seen.fell == seen.n else f"fell in {seen.fell}"
    told = f"The covariance told the direction in **{seen.agreed} of {seen.n}** steps (entropy {same})"
    if seen.n < LEAST_STEPS:
        return f"{told}; with fewer than {LEAST_STEPS} steps nothing more is claimed."
    if np.isnan(seen.r):
        return f"{told}."
    r = f"r = {number(seen.r)}, n = {seen.n} steps"
    if seen.usable and seen.r >= FITS:
        return f"{told} and, up to one scale, how far ({r})."
    if seen.usable and seen.r >= PARTLY:
        return f"{told}, and only partly how far ({r})."
    return f"{told}, but not how far: **the prediction does not fit this run's sizes** ({r})."


def _moved(change: float) -> str:
    return "raised the entropy" if change > 0 else "lowered the entropy"


def _fell(change: float) -> str:
    return "rose" if change > 0 else "fell"
