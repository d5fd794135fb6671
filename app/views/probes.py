"""One probe prompt answered by several runs: their rollouts as coloured text on one scale. Frames in, HTML out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from app.inert import inert_html, visible_token
from app.palette import SIGN, Theme, signed_rgba
from app.views.tokens import limit
from app.words import count, number

STYLE = (
    "<style>.probe{display:grid;grid-template-columns:auto 1fr auto;gap:4px 10px;align-items:baseline;font-size:14px}"
    ".probe .say{font-family:'Source Code Pro',monospace;font-size:13px;line-height:1.55;overflow-wrap:anywhere}"
    ".probe .say span{border-radius:3px;padding:1px 0}.probe .n{font-variant-numeric:tabular-nums;white-space:nowrap}"
    "</style>"
)

FULL = 0.6
"""Opacity of the strongest colour: the text on it stays readable."""


def reach(tokens: Sequence[pd.DataFrame]) -> float:
    """The half-width of one colour domain for all the runs shown: 2nd to 98th percentile of their advantages."""
    values = [frame["advantage"].to_numpy(dtype=float) for frame in tokens if len(frame)]
    return limit(np.concatenate(values)) if values else 0.0


def answers(rollouts: pd.DataFrame, tokens: pd.DataFrame, domain: float, theme: Theme) -> str:
    """The rollouts of one group, right ones first: sign, text with each token on its advantage's colour, length.

    Where tokens were not kept, the plain text stands in. Everything foreign goes through `inert_html`.
    """
    by_rollout = dict(list(tokens.groupby("rollout"))) if len(tokens) else {}
    rows = rollouts.sort_values(["correct", "rollout"], ascending=[False, True])
    cells = []
    for row in rows.itertuples():
        sign = 1 if row.correct else -1
        own = by_rollout.get(row.rollout)
        said = inert_html(row.text) if own is None else "".join(_token(one, domain, theme) for one in own.itertuples())
        note = "cut" if row.truncated else count(int(row.length), "token")
        cells.append(
            f'<b style="color:{theme.polarity(sign)}" title="{"correct" if sign > 0 else "wrong"}">{SIGN[sign]}</b>'
            f'<div class="say">{said}</div><span class="n" style="color:{theme.muted}">{note}</span>'
        )
    return STYLE + f'<div class="probe" role="list">{"".join(cells)}</div>'


def summary(rollouts: pd.DataFrame) -> str:
    """One line of plain text: how many are right, and how long they are."""
    right = rollouts[rollouts["correct"]]
    length = number(float(right["length"].mean()), "tokens") if len(right) else "no length"
    return f"{len(right)} of {len(rollouts)} right, {length} when right"


def _token(one: object, domain: float, theme: Theme) -> str:
    value = float(one.advantage)
    shown = visible_token(one.token)
    title = f"{shown}: advantage {number(value, signed=True)}"
    if not pd.isna(one.sampler_logprob):
        title += f", p {number(float(np.exp(one.sampler_logprob)))}"
    text = inert_html(shown.replace("␣", " ") if shown.strip("␣") else shown)
    colour = signed_rgba(float(np.clip(value, -domain, domain)), domain / FULL, theme)
    return f'<span style="background:{colour}" title="{inert_html(title)}">{text}</span>'
