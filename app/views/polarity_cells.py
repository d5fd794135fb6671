"""The Polarity page's tables: a window of steps, the eight cells of a step, and the prompts behind them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from app import urls
from app.palette import Theme
from app.views.polarity import CELL_NAMES, Side, Window
from app.views.polarity_tables import Bar, Row, mirror_table
from app.words import count, number, share

Where = Mapping[str, object]
"""The run, split and step (and group, rollout, position) that a link to the Tokens page leads to."""

WINDOW_ROWS = (
    ("length", "length", "tokens", {"sort": "length"}),
    ("entropy", "entropy", "nats", {"color": "entropy"}),
    ("probability", "mean probability", "", {"color": "probability"}),
    ("reward", "mean reward", "", {"sort": "reward"}),
)
"""(field of a Side, name, unit, how the Tokens page shows what is behind it)."""

MOST_GROUPS = 16
"""Prompts that the table of a step lists."""

CELL_BLOCKS = (
    ("share", None, "share of tokens"),
    ("mass_share", "base_mass_share", "share of advantage mass"),
    ("push_share", None, "share of push"),
)
ENTROPY_BLOCKS = (("predicted", "entropy change, predicted (nats)"), ("came", "entropy change that came (nats)"))


def window_table(seen: Window, theme: Theme, trained: bool, where: Where | None) -> str:
    """Both polarities over a window, row by row on each row's own scale; the numbers lead to rollouts of its last
    step.
    """
    total = seen.wrong.rollouts + seen.right.rollouts
    both = (seen.wrong, seen.right)

    def href(**how: str) -> str | None:
        return None if where is None else urls.href("tokens", **where, **how)

    def rollouts(side: Side) -> Bar:
        part = side.rollouts / total if total else np.nan
        return Bar(side.rollouts, f"{side.rollouts} ({share(part)})", href=href())

    rows = [Row("rollouts", rollouts(seen.wrong), rollouts(seen.right), "window-rollouts")]
    for field, name, unit, how in WINDOW_ROWS:
        bars = [Bar(getattr(side, field), number(getattr(side, field), unit), href=href(**how)) for side in both]
        rows.append(Row(name, *bars, f"window-{field}"))
    if any(side.truncated > 0 for side in both):
        bars = [Bar(side.truncated, share(side.truncated), href=href(sort="length")) for side in both]
        rows.append(Row("truncated", *bars, "window-truncated"))
    if trained:
        bars = [
            Bar(
                side.mass,
                number(side.mass),
                side.base_mass,
                href(color="advantage"),
                f"before shaping {number(side.base_mass)}",
            )
            for side in both
        ]
        rows.append(Row("advantage mass", *bars, "window-mass", note=_ratio_words(seen)))
    caption = f"Wrong and right answers over {seen.steps}"
    return mirror_table(rows, theme, common=False, heads=("wrong", "", "right"), caption=caption, middle="11rem")


def cell_table(cells: pd.DataFrame, theme: Theme, where: Where) -> str:
    """The eight cells as shares of the step's tokens, mass and push, then what they add to its entropy change.

    `cells` is `polarity_entropy.in_cells`; each number leads to the cell's strongest token. Without a scale the
    prediction stands as −Cov in its own unit.
    """
    by_cell = {(int(c["polarity"]), c["metric"], c["end"]): c for c in cells.to_dict("records")}

    def rows(value: str, mark: str | None = None, signed: bool = False) -> list[Row]:
        return [
            Row(
                words,
                *(_cell(by_cell.get((side, metric, end)), value, mark, where, signed) for side in (-1, 1)),
                f"cell-{value.removesuffix('_share')}-{metric}-{end}",
            )
            for (metric, end), words in CELL_NAMES.items()
        ]

    def block(name: str, lines: list[Row], signed: bool = False) -> str:
        heads = ("wrong answers", name, "right answers")
        caption = f"The eight cells: {name}"
        return mirror_table(lines, theme, common=True, heads=heads, caption=caption, middle="10.5rem", signed=signed)

    blocks = [block(name, rows(value, mark)) for value, mark, name in CELL_BLOCKS]
    if cells["toward"].notna().any() and cells["predicted"].isna().all():
        blocks.append(block("−Cov(log p, A), nats × A", rows("toward", signed=True), True))
    blocks += [
        block(name, rows(value, signed=True), True) for value, name in ENTROPY_BLOCKS if cells[value].notna().any()
    ]
    return "<div style='height:14px'></div>".join(blocks)


def group_table(groups: pd.DataFrame, theme: Theme, where: Where) -> str:
    """The prompts of a step with their mass by polarity, the most first; names lead to the group's tokens. Prompts
    without mass are counted under the table: all right, all wrong, mixed.
    """
    mass = groups["positive"] + groups["negative"]
    heard = groups.loc[mass[mass > 0].sort_values(ascending=False, kind="stable").index]
    rows = []
    for group in heard.head(MOST_GROUPS).to_dict("records"):
        right, wrong = int(group["correct"]), int(group["n"] - group["correct"])
        note = f"{wrong} wrong, {right} right"
        bars = [Bar(group[name], number(group[name])) for name in ("negative", "positive")]
        href = urls.href("tokens", **where, group=int(group["group"]))
        rows.append(Row(str(group["prompt"])[:60], *bars, f"group-{int(group['group'])}", href, note))
    heads = ("mass of wrong answers", "prompt", "mass of right answers")
    caption = "Advantage mass of each prompt"
    table = mirror_table(rows, theme, common=True, heads=heads, caption=caption, middle="11rem") if rows else ""
    words = [f"and {count(len(heard) - MOST_GROUPS, 'more prompt')} with mass"] if len(heard) > MOST_GROUPS else []
    words += _silent(groups[~(mass > 0)])
    style = f"color:{theme.muted};font-size:.8125rem;text-align:center;margin:8px 0 0"
    return f"{table}<p style='{style}'>{'; '.join(words)}</p>" if words else table


def _silent(groups: pd.DataFrame) -> list[str]:
    """`27 prompts without mass: 26 all right, 1 all wrong, 0 mixed (19 of them dropped)`."""
    if groups.empty:
        return []
    right, wrong = int((groups["correct"] == groups["n"]).sum()), int((groups["correct"] == 0).sum())
    kinds = f"{right} all right, {wrong} all wrong"
    mixed = len(groups) - right - wrong
    kinds += f", {mixed} mixed" if mixed else ""
    dropped = int((~groups["kept"].astype(bool)).sum())
    kinds += f" ({dropped} of them dropped)" if dropped else ""
    return [f"{count(len(groups), 'prompt')} without mass: {kinds}"]


def _cell(cell: Mapping[str, object] | None, value: str, mark: str | None, where: Where, signed: bool = False) -> Bar:
    if cell is None:
        return Bar(np.nan, "no tokens")
    amount = cell[value]
    if amount is None or not np.isfinite(amount):
        return Bar(np.nan, "not known" if signed else "no mass")
    place = {name: int(cell[name]) for name in ("group", "rollout", "position")}
    title = f"{count(int(cell['tokens']), 'token')}, {share(cell['share'])} of the step's"
    if cell["change"] is not None and np.isfinite(cell["change"]):
        title += f"; the update moved log p by {number(cell['change'], 'nats', signed=True)} on average"
    words = number(amount, signed=True) if signed else share(amount)
    return Bar(amount, words, cell[mark] if mark else None, urls.href("tokens", **where, **place), title)


def _ratio_words(seen: Window) -> str:
    """`wrong : right 1.42 (1.42 before)`."""
    after, before = seen.ratio(), seen.ratio(before=True)
    if not (seen.wrong.recorded and seen.right.recorded):
        return "not known without tokens"
    if not np.isfinite(after) or after == 0:
        return "no ratio: one side has none"
    return f"wrong : right {number(after)} ({number(before)} before)"
