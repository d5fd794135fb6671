"""One probe prompt answered by several runs: their rollouts as coloured text on one scale. Frames in, HTML out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from app.inert import inert_html, visible_token
from app.palette import SIGN, Theme, rgba
from app.views.tokens_fields import FIELDS, Field, legend, limit
from app.words import count, length, number, said

COLOURS = {field.id: field for field in FIELDS if field.id in ("advantage", "probability", "entropy")}
"""What tokens can be coloured by: the fields that probes have in every run."""

STYLE = (
    "<style>.probe{display:grid;grid-template-columns:auto 1fr auto;gap:4px 10px;align-items:baseline}"
    ".probe{font-size:.875rem}"
    ".probe .say{font-family:'Source Code Pro',monospace;font-size:.8125rem;line-height:1.55;overflow-wrap:anywhere}"
    ".probe .say span{border-radius:3px;padding:1px 0}.probe .n{font-variant-numeric:tabular-nums;white-space:nowrap}"
    "</style>"
)

MOST_TOKENS = 20_000
"""Coloured tokens of all panels on a page: each is some 100 bytes for the browser."""

FULL = 0.6
"""Opacity of the strongest colour: the text on it stays readable."""


def values(tokens: pd.DataFrame, field: Field) -> np.ndarray:
    """(tokens,) of the field; NaN where it was not recorded."""
    if field.id == "probability":
        return np.exp(tokens["sampler_logprob"].to_numpy(dtype=float))
    return tokens[field.id].to_numpy(dtype=float)


def reach(tokens: Sequence[pd.DataFrame], field: Field) -> float:
    """The half-width of one colour domain for all the runs shown: the larger of |2nd| and |98th percentile| over their
    tokens together; 1 for a probability, 0 without a value.
    """
    every = np.concatenate([values(frame, field) for frame in tokens]) if tokens else np.zeros(0)
    if field.kind == "probability":
        return 1.0 if np.isfinite(every).any() else 0.0
    return limit(every)


def scale(field: Field, domain: float, theme: Theme, shared: str = "all runs") -> str:
    """The colour bar of all panels: a gradient between its two ends, in numbers. `shared`: what it is the same for."""
    if not domain:
        return (
            f'<div style="color:{theme.muted};font-size:.88rem">No token here has a value of {field.label} but 0.</div>'
        )
    bar = legend(field, domain, True, theme)
    below = rgba(str(bar["below"]), FULL) if bar["below"] else "transparent"
    middle = "transparent," if bar["below"] else ""
    return (
        f'<div style="display:flex;gap:.6rem;align-items:center;font-size:.88rem;color:{theme.muted}">'
        f"<span>{inert_html(field.label)}</span><span>{inert_html(bar['low'])}</span>"
        f'<span style="width:8rem;height:.8rem;border-radius:3px;border:1px solid {theme.grid};'
        f'background:linear-gradient(90deg,{below},{middle}{rgba(str(bar["above"]), FULL)})"></span>'
        f"<span>{inert_html(bar['high'])}</span><span>one scale for {shared}</span></div>"
    )


def answers(
    rollouts: pd.DataFrame, tokens: pd.DataFrame, field: Field, domain: float, theme: Theme,
    link: Callable[[int], str] | None = None, most: int = MOST_TOKENS,
) -> str:  # fmt: skip
    """The rollouts of one group, right ones first: sign, text with each token on its field's colour, length.

    The length leads to `link(rollout)`, if given. Where tokens were not kept, the plain text stands in. Of more than
    `most` tokens, each answer's first ones are coloured. Everything foreign goes through `inert_html`.
    """
    longest = int(max(rollouts["length"].fillna(0), default=0))
    end = longest if len(tokens) <= most else max(most // max(len(rollouts), 1), 1)
    tokens = tokens.assign(_value=values(tokens, field))
    by_rollout = dict(list(tokens.groupby("rollout"))) if len(tokens) else {}
    rows = rollouts.sort_values(["correct", "rollout"], ascending=[False, True])
    cells = []
    for row in rows.itertuples():
        sign, verdict = (1, "correct") if said(row.correct) else (-1, "wrong")
        mark, hue = SIGN[sign], theme.polarity(sign)
        if pd.isna(row.correct):
            mark, verdict, hue = "?", "neither right nor wrong in the store", theme.muted
        own = by_rollout.get(row.rollout)
        if own is None:
            words = inert_html(row.text)
        else:
            first, rest = own.iloc[:end], own["token"].iloc[end:]
            words = "".join(
                _token(*one, field, domain, theme) for one in zip(first["token"], first["_value"], strict=True)
            )
            words += inert_html("".join(map(_plain, rest)))
        note = "cut" if said(row.truncated) else length(row.length)
        if link is not None:
            href = inert_html(link(int(row.rollout)))
            note = f'<a href="{href}" target="_self" style="color:inherit" title="Open token by token">{note}</a>'
        cells.append(
            f'<b style="color:{hue}" title="{verdict}">{mark}</b>'
            f'<div class="say">{words}</div><span class="n" style="color:{theme.muted}">{note}</span>'
        )
    cut = f"Only the first {count(end, 'token')} of each answer are coloured." if len(tokens) > most else ""
    below = f'<div style="color:{theme.muted};font-size:.88rem">{cut}</div>' if cut else ""
    return STYLE + f'<div class="probe" role="list">{"".join(cells)}</div>{below}'


def summary(rollouts: pd.DataFrame) -> str:
    """One line of plain text: how many are right, and how long they are."""
    right = rollouts[rollouts["correct"]]
    mean = number(float(right["length"].mean()), "tokens") if right["length"].notna().any() else "no length"
    return f"{len(right)} of {len(rollouts)} right, {mean} when right"


def _token(token: str, value: float, field: Field, domain: float, theme: Theme) -> str:
    shown = visible_token(token)
    title = f"{shown}: {field.label} {number(value, field.unit, signed=field.kind == 'signed')}"
    text = inert_html(_plain(token))
    colour = "transparent"
    if domain and np.isfinite(value):
        hues = {"signed": (theme.reinforced, theme.suppressed), "probability": (theme.favorable,) * 2}
        above, below = hues.get(field.kind, (theme.warning,) * 2)
        colour = rgba(above if value > 0 else below, FULL * min(1.0, abs(value) / domain))
    return f'<span style="background:{colour}" title="{inert_html(title)}">{text}</span>'


def _plain(token: str) -> str:
    """A token as a reader sees it in the text: spaces stay spaces, unless there is nothing else."""
    shown = visible_token(token)
    return shown.replace("␣", " ") if shown.strip("␣") else shown
