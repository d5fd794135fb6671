"""The token strings that wrong and right answers push: two lists side by side, and where the two pull apart. HTML,
inert.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from app import urls
from app.inert import inert_html, inert_markdown, visible_token
from app.palette import SIGN, Theme, rgba
from app.views.polarity_tables import Bar, Row, badge, mirror_table
from app.words import count, number

Where = Mapping[str, object]
"""The run, split and window (`steps`) that a link to the Tokens page leads to."""
ANSWERS = {1: "right", -1: "wrong"}

MOST_CONTESTED = 10
SHOWN = 24
"""Characters of a token's text."""


def contested(frame: pd.DataFrame) -> pd.DataFrame:
    """Strings that both polarities push, in opposite directions: those whose weaker pull is largest, at most ten.

    `frame` is the query `strings`. Columns: token_id, token, wrong, right (push), n_wrong, n_right, net.
    """
    columns = ["token_id", "token", "push", "trained"]
    wrong, right = (frame.loc[frame["polarity"] == side, columns] for side in (-1, 1))
    both = wrong.merge(right.drop(columns="token"), on="token_id", suffixes=("_wrong", "_right"))
    both = both[both["push_wrong"] * both["push_right"] < 0]
    both = both.rename(
        columns={
            "push_wrong": "wrong", "push_right": "right", "trained_wrong": "n_wrong", "trained_right": "n_right",
        }
    )  # fmt: skip
    both["net"] = both["wrong"] + both["right"]
    weaker = np.minimum(both["wrong"].abs(), both["right"].abs())
    order = weaker.sort_values(ascending=False, kind="stable").index[:MOST_CONTESTED]
    return both.loc[order].reset_index(drop=True)


def verdict(frame: pd.DataFrame, where: str, trained: bool) -> str:
    """The string that each polarity pushes hardest; Markdown, token texts inert."""
    words = []
    for polarity, side in ((1, "Right"), (-1, "Wrong")):
        own = frame[(frame["polarity"] == polarity) & frame["rank"].notna() & frame["push"].notna()]
        if own.empty:
            words.append(f"{side} answers push nothing.")
            continue
        top = own.loc[own["push"].abs().idxmax()]
        does = "reinforce" if top["push"] > 0 else "suppress"
        words.append(
            f"{side} answers {does} **“{inert_markdown(_short(top))}”** most: push {number(top['push'], signed=True)} "
            f"over {count(int(top['trained']), 'token')}."
        )
    words.append(_left(frame))
    start = f"In {where}, by the sum of advantage × (1 − p):"
    end = "" if trained else " These are probes: it is what the method would push, they were not trained."
    return f"{start} {' '.join(word for word in words if word)}{end}"


def lists(frame: pd.DataFrame, theme: Theme, where: Where) -> str:
    """What wrong answers push and what right ones do, side by side, and one under the other where there is no room."""
    most = float(frame.loc[frame["rank"].notna(), "push"].abs().max())
    changed = frame["change"].notna().any()
    sides = "".join(_side(frame, polarity, most, changed, theme, where) for polarity in (-1, 1))
    return (
        f"<div style='display:grid;grid-template-columns:repeat(auto-fit,minmax(24rem,1fr));gap:8px 28px'>{sides}</div>"
    )


def contested_table(both: pd.DataFrame, theme: Theme, where: Where) -> str:
    """`contested` as bars that mirror each other; names lead to the string's places."""
    rows = []
    for number_of, row in enumerate(both.to_dict("records")):
        bars = [
            Bar(abs(row[side]), number(row[side], signed=True), title=count(int(row[f"n_{side}"]), "trained token"))
            for side in ("wrong", "right")
        ]
        note = f"net {number(row['net'], signed=True)}"
        rows.append(Row(_short(row), *bars, f"contested-{number_of}", _href(row, where), note))
    heads = ("push by wrong answers", "string", "push by right answers")
    caption = "Strings that wrong and right answers push in opposite directions"
    return mirror_table(rows, theme, common=True, heads=heads, caption=caption, middle="11rem")


def _left(frame: pd.DataFrame) -> str:
    """The strings that gain and lose most by both polarities together."""
    net = frame.groupby("token_id")["push"].sum()
    if frame.loc[frame["push"] != 0, "polarity"].nunique() < 2:
        return ""
    token = frame.drop_duplicates("token_id").set_index("token_id")["token"]
    ends = [(net.idxmax(), "gains"), (net.idxmin(), "loses")]
    named = []
    for key, verb in ends:
        if (net[key] > 0) == (verb == "gains"):
            text = inert_markdown(_short({"token": token[key], "token_id": key}))
            named.append(f"“{text}” {verb} most ({number(net[key], signed=True)})")
    return f"After both, {' and '.join(named)}." if named else ""


def _side(frame: pd.DataFrame, polarity: int, most: float, changed: bool, theme: Theme, where: Where) -> str:
    own = frame[(frame["polarity"] == polarity) & frame["rank"].notna()]
    name, colour, radius = (
        ("right answers", theme.reinforced, "50%") if polarity > 0 else ("wrong answers", theme.suppressed, "4px")
    )
    head = f"{badge(SIGN[polarity], colour, radius)} {name}"
    head = f"<div style='font-size:.875rem;color:{theme.text};margin-bottom:4px'>{head}</div>"
    if own.empty:
        words = "They push nothing: none of their tokens has an advantage."
        return f"<div>{head}<p style='color:{theme.muted}'>{words}</p></div>"
    parts = []
    for up, words in ((True, "reinforced"), (False, "suppressed")):
        rows = own[(own["push"] > 0) == up].sort_values("rank").to_dict("records")
        if rows:
            parts.append(_list(rows, f"{name}-{words}".replace(" ", "-"), words, most, changed, theme, where))
        else:
            parts.append(f"<p style='color:{theme.muted};margin:6px 0'>No string is {words}.</p>")
    if polarity < 0:  # what a polarity is there for comes first
        parts.reverse()
    return f"<div>{head}{''.join(parts)}</div>"


def _list(
    rows: list[dict[str, object]], test_id: str, words: str, most: float, changed: bool, theme: Theme, where: Where
) -> str:
    head = f"font-weight:400;color:{theme.muted};font-size:.7812rem;padding:2px 6px;border:0;text-align:"
    columns = ["sum of push", "mean", "n", *(["Δ log p, nats"] if changed else [])]
    titles = "".join(f"<th scope='col' style='{head}right'>{column}</th>" for column in columns)
    body = "".join(_row(row, f"{test_id}-{place}", most, changed, theme, where) for place, row in enumerate(rows))
    look = "font-size:.8438rem;font-variant-numeric:tabular-nums;margin-bottom:10px"
    table = f"width:100%;border-collapse:collapse;{look}"
    return (
        f"<table style='{table};color:{theme.text}'><thead><tr><th scope='col' style='{head}left'>{words}</th>"
        f"<th style='{head}left;width:26%'></th>{titles}</tr></thead><tbody>{body}</tbody></table>"
    )


def _row(row: dict[str, object], test_id: str, most: float, changed: bool, theme: Theme, where: Where) -> str:
    push, n = float(row["push"]), int(row["trained"])
    colour = theme.reinforced if push > 0 else theme.suppressed
    cell = "padding:2px 6px;border:0;white-space:nowrap"
    width = 100 * abs(push) / most if most else 0.0
    track = f"height:11px;background:{rgba(theme.muted, 0.1)};border-radius:2px"
    bar = (
        f"<div style='{track}'><div style='width:{width:.1f}%;height:11px;background:{rgba(colour, 0.85)}'></div></div>"
    )
    link = f"color:{theme.text};text-decoration:underline;text-decoration-color:{theme.muted};text-underline-offset:3px"
    href = inert_html(_href(row, where, int(row["polarity"])))
    name = f"<a href='{href}' target='_self' style='{link}'>{inert_html(_short(row))}</a>"
    numbers = [number(push, signed=True), number(push / n if n else np.nan, signed=True), number(n)]
    if changed:
        change = row["change"]
        numbers.append(number(None if change is None else float(change), signed=True))
    right = "".join(f"<td style='{cell};text-align:right'>{text}</td>" for text in numbers)
    return (
        f"<tr data-testid='{inert_html(test_id)}' data-value='{push!r}'>"
        f"<td style='{cell};font-family:monospace'>{name}</td><td style='{cell}'>{bar}</td>{right}</tr>"
    )


def _short(row: Mapping[str, object] | pd.Series) -> str:
    token = row["token"]
    text = f"#{row['token_id']}" if token is None or token != token else visible_token(token)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _href(row: Mapping[str, object], where: Where, polarity: int = 0) -> str:
    """Its tokens on the Tokens page, the hardest pushed first; of one polarity or of both."""
    end = "smallest" if row.get("push", 0.0) < 0 else "largest"
    found = {"view": "find", "find": "tokens", "extreme": "push", "end": end, "token": int(row["token_id"])}
    return urls.href("tokens", **where, **found, **({"answers": ANSWERS[polarity]} if polarity else {}))
