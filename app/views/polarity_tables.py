"""Tables of bars that mirror each other: wrong answers to the left of their names, right ones to the right. HTML,
inert.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from app.inert import inert_html
from app.palette import SIGN, Theme, rgba


@dataclass(frozen=True)
class Bar:
    """One side of a row: its length, its words, and a mark (where the value stood before shaping, say) if it has
    one.
    """

    value: float
    text: str
    mark: float | None = None
    href: str | None = None
    title: str = ""


@dataclass(frozen=True)
class Row:
    """A row: its name in the middle (a link with `href`), a bar on either side; `test_id` names it for tests."""

    name: str
    wrong: Bar
    right: Bar
    test_id: str
    href: str | None = None
    note: str = ""


def mirror_table(
    rows: Sequence[Row],
    theme: Theme,
    *,
    common: bool,
    heads: tuple[str, str, str],
    caption: str,
    middle: str = "9.5rem",
    signed: bool = False,
) -> str:
    """The table as HTML. With `common`, all bars share one scale, else each row has its own. `signed` bars begin in the
    middle of their place and grow to the left below 0, on both sides.

    `heads` name the columns, `caption` the table to screen readers, `middle` is the width of the names' column.
    """
    most = _most(rows)
    body = "".join(_row(row, theme, most if common else _most([row]), signed) for row in rows)
    wrong, right = badge(SIGN[-1], theme.suppressed, "4px"), badge(SIGN[1], theme.reinforced, "50%")
    table = "width:100%;table-layout:fixed;border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums"
    cell = f"font-weight:400;color:{theme.muted};font-size:.8125rem;padding:2px 8px;border:0;text-align:"
    return (
        f"<table style='{table};color:{theme.text}'><caption style='{_UNSEEN}'>{inert_html(caption)}</caption>"
        f"<colgroup><col><col style='width:{middle}'><col></colgroup><thead><tr>"
        f"<th scope='col' style='{cell}right'>{inert_html(heads[0])} {wrong}</th>"
        f"<th scope='col' style='{cell}center'>{inert_html(heads[1])}</th>"
        f"<th scope='col' style='{cell}left'>{right} {inert_html(heads[2])}</th>"
        f"</tr></thead><tbody>{body}</tbody></table>"
    )


_UNSEEN = "position:absolute;clip-path:inset(50%);width:1px;height:1px;overflow:hidden"


def _row(row: Row, theme: Theme, most: float, signed: bool) -> str:
    note = f"<div style='font-size:.75rem;color:{theme.muted}'>{inert_html(row.note)}</div>" if row.note else ""
    style = "font-weight:400;text-align:center;padding:3px 6px;border:0;line-height:1.25;overflow-wrap:anywhere"
    return (
        f"<tr data-testid='{inert_html(row.test_id)}'>"
        f"{_side(row.wrong, theme, theme.suppressed, most, True, signed)}"
        f"<th scope='row' style='{style}'>{_link(row.name, row.href, theme)}{note}</th>"
        f"{_side(row.right, theme, theme.reinforced, most, False, signed)}</tr>"
    )


def _side(bar: Bar, theme: Theme, colour: str, most: float, left: bool, signed: bool) -> str:
    """A cell: the bar grows away from the middle (a signed one from its own zero), its words stand outside it."""
    inner, outer = ("right", "row-reverse") if left else ("left", "row")
    mark = ""
    if bar.mark is not None and np.isfinite(bar.mark):
        place = f"{inner}:calc({_width(bar.mark, most):.1f}% - 1px);top:-3px;bottom:-3px;width:2px"
        mark = f"<span style='position:absolute;{place};background:{theme.text}'></span>"
    value = "" if not np.isfinite(bar.value) else repr(float(bar.value))
    track = f"position:relative;flex:1;min-width:0;height:13px;background:{rgba(theme.muted, 0.1)};border-radius:2px"
    fill = f"width:{_width(bar.value, most):.1f}%;background:{rgba(colour, 0.85)};border-radius:2px"
    if signed:
        half = _width(abs(bar.value), most) / 2
        fill = f"width:{half:.1f}%;background:{rgba(colour, 0.85)};margin-left:{50 - half * (bar.value < 0):.1f}%"
        mark = (
            f"<span style='position:absolute;left:50%;top:-3px;bottom:-3px;width:1px;background:{theme.muted}'></span>"
        )
    start = "flex-end" if left and not signed else "flex-start"
    words = f"width:5.6rem;white-space:nowrap;text-align:{'right' if left else 'left'}"
    return (
        f"<td data-value='{value}' title='{inert_html(bar.title)}' style='padding:3px 0;border:0'>"
        f"<div style='display:flex;flex-direction:{outer};align-items:center;gap:8px'>"
        f"<div style='{track};display:flex;justify-content:{start}'>"
        f"<span style='{fill}'></span>{mark}</div>"
        f"<span style='{words}'>{_link(bar.text, bar.href, theme)}</span></div></td>"
    )


def _link(text: str, href: str | None, theme: Theme) -> str:
    shown = inert_html(text)
    if href is None:
        return shown
    line = f"text-decoration:underline;text-decoration-color:{theme.muted};text-underline-offset:3px"
    return f"<a href='{inert_html(href)}' target='_self' style='color:{theme.text};{line}'>{shown}</a>"


def badge(sign: str, colour: str, radius: str) -> str:
    """A polarity as HTML: its sign in a frame of its colour, round or square."""
    shape = "display:inline-grid;place-items:center;width:1.1rem;height:1.1rem;line-height:1"
    style = f"{shape};font-weight:700;font-size:.8125rem"
    return f"<span style='{style};border:1.5px solid {colour};color:{colour};border-radius:{radius}'>{sign}</span>"


def _width(value: float, most: float) -> float:
    return float(np.clip(100 * value / most, 0, 100)) if most > 0 and np.isfinite(value) else 0.0


def _most(rows: Sequence[Row]) -> float:
    """The largest value or mark of the rows' bars, whatever its sign."""
    values = [v for row in rows for bar in (row.wrong, row.right) for v in (bar.value, bar.mark) if v is not None]
    return max((abs(float(v)) for v in values if np.isfinite(v)), default=0.0)
