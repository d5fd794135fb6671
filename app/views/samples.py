"""A step's rollouts as a small table of text. Pure: a frame in, HTML out; all of the text is untrusted."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from app.inert import inert_html
from app.palette import SIGN, Theme
from app.words import NO_PROMPT, length, number, said


def table(frame: pd.DataFrame, theme: Theme, link: Callable[[int, int], str]) -> str:
    """Rows of `queries.live.newest_rollouts`; `link(group, rollout)` is the address of a rollout's tokens."""
    tokens = bool(frame["advantage"].notna().any())
    head = (("", "left"), ("prompt", "left"), ("response", "left"), ("length", "right"),
            ("mean advantage" if tokens else "advantage", "right"), ("", "left"))  # fmt: skip
    if not tokens:
        frame = frame.assign(advantage=frame["base_advantage"])
    return plain(head, "".join(_row(row, theme, link) for row in frame.itertuples()), theme)


def plain(head: Sequence[tuple[str, str]], rows: str, theme: Theme) -> str:
    """A table of rows that are HTML already; `head` has a name and a side for each column."""
    cells = "".join(
        f'<th style="text-align:{side};padding:.2rem .6rem;font-weight:600;color:{theme.muted}">{name}</th>'
        for name, side in head
    )
    return (
        f'<table style="width:100%;border-collapse:collapse;font-size:.88rem;color:{theme.text}">'
        f"<thead><tr>{cells}</tr></thead><tbody>{rows}</tbody></table>"
    )


def edges(theme: Theme) -> tuple[str, str]:
    """The style of a cell of words, and of one of figures."""
    edge = f"padding:.35rem .6rem;border-top:1px solid {theme.grid};vertical-align:top"
    return edge, f"{edge};text-align:right;white-space:nowrap;font-variant-numeric:tabular-nums"


def badge(row, theme: Theme, edge: str) -> str:
    """The cell that says whether a rollout was right: its sign, and the word for who points at it."""
    right = said(row.correct)
    word = "not judged" if pd.isna(row.correct) else "correct" if right else "wrong"
    sign = 1 if right else -1
    return f'<td style="{edge};color:{theme.polarity(sign)};font-weight:700" title="{word}">{SIGN[sign]}</td>'


MONO = "font-family:'Source Code Pro',monospace;overflow-wrap:anywhere"


def _row(row, theme: Theme, link: Callable[[int, int], str]) -> str:
    prompt = row.prompt or NO_PROMPT
    edge, figures = edges(theme)
    dropped = not pd.isna(row.kept) and not row.kept
    notes = [note for note, there in (("truncated", said(row.truncated)), ("not trained", dropped)) if there]
    aside = f' <span style="color:{theme.muted}">({", ".join(notes)})</span>' if notes else ""
    return (
        f"<tr>{badge(row, theme, edge)}"
        f'<td style="{edge};{MONO};{_fit(prompt)}">{inert_html(_short(prompt, 160))}</td>'
        f'<td style="{edge};{MONO}"><bdi>{inert_html(_short(row.text or "", 400)) or "∅"}</bdi>{aside}</td>'
        f'<td style="{figures}">{length(row.length)}</td>'
        f'<td style="{figures}">{number(row.advantage, signed=True)}</td>'
        f'<td style="{edge}"><a href="{inert_html(link(int(row.group), int(row.rollout)))}" target="_self" '
        f'style="color:{theme.reinforced}">open</a></td></tr>'
    )


def _fit(prompt: str) -> str:
    """A short prompt stays on one line, a long one wraps in a column of its own width."""
    return "white-space:nowrap" if len(prompt) <= 28 else "min-width:12rem"


def _short(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
