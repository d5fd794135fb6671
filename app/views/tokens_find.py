"""What a search found, as tables: rollouts, tokens in their place, token strings. Frames in, HTML out.

All texts are untrusted and go through `inert_html`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from app.inert import clipped, inert_html, visible, visible_token
from app.palette import SIGN, Theme, rgba
from app.views.tokens_fields import Field
from app.words import count, length, number, said, share

Link = Callable[..., str]
"""The address of a rollout (step, group, rollout, position) or of a search."""

AROUND = 90
"""Characters shown on each side of a match."""
OPENING = 280
"""Characters shown of a response without a match."""
MONO = "font-family:'Source Code Pro',monospace;overflow-wrap:anywhere"


def position_of(start: int, text: str, tokens: Sequence[str]) -> int | None:
    """The index of the token that holds character `start` of a response's text; None where they do not fit together.

    Special tokens are left out of the text: they take no room in it.
    """
    end = 0
    for index, token in enumerate(tokens):
        if token and text.startswith(token, end):
            end += len(token)
            if end > start:
                return index
    return None


def rollout_table(rows: pd.DataFrame, theme: Theme, link: Link) -> str:
    """Rollouts: step, sign, prompt and response, length, base advantage, what was found.

    `rows` are `queries.find.details`, with `start` and `end` of the match in the text (equal without one), `position`
    (its token, NaN if not known) and `note`, plain text.
    """
    body = []
    for row in rows.itertuples():
        sign = 1 if row.correct else -1
        base = number(row.base_advantage, signed=True)
        notes = [note for note in (row.note, "cut off" if said(row.truncated) else "") if note]
        where = {"step": row.step, "group": row.group, "rollout": row.rollout}
        if not np.isnan(row.position):
            where["position"] = int(row.position)
        body.append(
            [
                _sign(sign, theme),
                f'<div style="color:{theme.muted};font-size:.8rem">{inert_html(_short(row.prompt, 120))}</div>'
                f'<div dir="auto" style="{MONO}">{snippet(row.text, row.start, row.end, theme)}</div>'
                f'<div style="color:{theme.muted};font-size:.8rem">{inert_html(" · ".join(notes))}</div>',
                length(row.length),
                base,
                _open(f"step {row.step}", link(**where), theme),
            ]
        )
    return _table(["", "prompt and answer", "length", "base advantage", "open"], body, theme, numbers=(2, 3))


def token_table(rows: pd.DataFrame, field: Field, theme: Theme, link: Link) -> str:
    """Tokens: value, probability, the token among its neighbours. `rows` are `queries.find.extremes` with `before` and
    `after`, the stored text around it.
    """
    body = []
    for row in rows.itertuples():
        hue = theme.polarity(1 if row.value > 0 else -1) if field.kind == "signed" else theme.favorable
        said = (
            f"{inert_html(row.before)}"
            f'<mark style="color:inherit;background:{rgba(hue, 0.35)};border-radius:3px;font-weight:700">'
            f"{inert_html(visible_token(row.token))}</mark>{inert_html(row.after)}"
        )
        where = {"step": row.step, "group": row.group, "rollout": row.rollout, "position": row.position}
        body.append(
            [
                f'<b style="color:{hue}">{number(row.value, field.unit, signed=field.kind == "signed")}</b>',
                f'<div dir="auto" style="{MONO}">{said}</div>',
                number(row.probability),
                f"{row.position}",
                _open(f"step {row.step}", link(**where), theme),
            ]
        )
    heads = [field.label, "token, in its place", "probability", "position", "open"]
    return _table(heads, body, theme, numbers=(0, 2, 3))


def string_table(rows: pd.DataFrame, tokens: int, theme: Theme, link: Link) -> str:
    """Token strings: the sum of their pushes as a bar, how often they were sampled, what became of them.

    `rows` are `queries.find.strings`, `tokens` all tokens of the window, `link(token_id)` the search for its tokens.
    """
    most = float(rows["push"].abs().max()) if len(rows) else 1.0
    body = []
    for row in rows.itertuples():
        hue = theme.polarity(1 if row.push > 0 else -1)
        wide = f"width:{100 * abs(row.push) / most:.1f}%"
        bar = f'<div style="height:4px;margin-top:3px;background:{rgba(hue, 0.8)};{wide}"></div>'
        moved = f"{share(row.agreed / row.pushed)} of {count(int(row.pushed), 'token')}" if row.pushed else "–"
        body.append(
            [
                f'<span style="{MONO};font-weight:600">{inert_html(visible_token(row.token))}</span>',
                f'<b style="color:{hue}">{number(row.push, signed=True)}</b>{bar}',
                number(row.mean_push, signed=True),
                f"{row.tokens:,}".replace(",", "\u202f") + f" ({share(row.tokens / tokens) if tokens else '–'})",
                moved,
                number(row.change, "nats", signed=True),
                _open("its tokens", link(row.token_id), theme),
            ]
        )
    heads = ["token", "sum of push", "mean push", "sampled (share)", "moved as pushed", "mean Δ log p", "open"]
    return _table(heads, body, theme, numbers=(2, 3, 4, 5))


def snippet(text: str, start: int, end: int, theme: Theme) -> str:
    """The match of a response, marked, with its surroundings; without a match, its beginning."""
    if end <= start:
        return inert_html(_short(text, OPENING)) or "∅"
    low, high = max(0, start - AROUND), min(len(text), end + AROUND)
    shown = text[start:end] if end - start <= 2 * OPENING else text[start : start + 2 * OPENING] + "…"
    style = f"color:inherit;background:{rgba(theme.warning, 0.35)};border-radius:3px"
    return (
        f"{'…' if low else ''}{inert_html(text[low:start])}"
        f'<mark style="{style}">{inert_html(shown)}</mark>'
        f"{inert_html(text[end:high])}{'…' if high < len(text) else ''}"
    )


def around(hits: pd.DataFrame, tokens: pd.DataFrame) -> pd.DataFrame:
    """`hits` (tokens) with `before` and `after`: the text of the neighbours that `queries.find.tokens_of` gave."""
    keys = ["step", "group", "rollout", "at"]
    near = dict(list(tokens.groupby(keys))) if len(tokens) else {}
    before, after = [], []
    for row in hits.itertuples():
        part = near.get((row.step, row.group, row.rollout, row.position))
        there = () if part is None else list(zip(part["position"], part["token"], strict=True))
        before.append("".join(clipped(token) for at, token in there if at < row.position))
        after.append("".join(clipped(token) for at, token in there if at > row.position))
    return hits.assign(before=before, after=after)


def _open(label: str, href: str, theme: Theme) -> str:
    return (
        f'<a href="{inert_html(href)}" target="_self" style="color:{theme.reinforced};white-space:nowrap">{label} ↗</a>'
    )


def _sign(sign: int, theme: Theme) -> str:
    word = "right" if sign > 0 else "wrong"
    return f'<b style="color:{theme.polarity(sign)}" title="{word}">{SIGN[sign]}</b>'


def _table(heads: Sequence[str], body: Sequence[Sequence[str]], theme: Theme, numbers: Sequence[int]) -> str:
    def cell(tag: str, place: int, html: str) -> str:
        right = "text-align:right;font-variant-numeric:tabular-nums" if place in numbers else "text-align:left"
        edge = f"color:{theme.muted};font-weight:600" if tag == "th" else f"border-top:1px solid {theme.grid}"
        return f'<{tag} style="padding:.35rem .6rem;vertical-align:top;{right};{edge}">{html}</{tag}>'

    head = "".join(cell("th", place, name) for place, name in enumerate(heads))
    rows = "".join(f"<tr>{''.join(cell('td', place, html) for place, html in enumerate(row))}</tr>" for row in body)
    return (
        f'<table style="width:100%;border-collapse:collapse;font-size:.88rem;color:{theme.text}">'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"
    )


def _short(text: object, limit: int) -> str:
    shown = visible(text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
