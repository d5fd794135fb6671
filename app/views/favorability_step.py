"""Which prompts a step held back, in one sentence and as a table. Frames in, Markdown and inert HTML out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from app.inert import inert_html, inert_markdown, visible
from app.palette import Theme, rgba
from app.words import count, number, share
from core.stats.classes import CLASSES, ClassRule

NAMED = 5
"""Prompts that the sentence names."""
SHOWN = 200
"""Rows of the table."""


def optional(value: object) -> float | None:
    """A number, None where the store has none."""
    return None if pd.isna(value) else float(value)


def held_sentence(now: pd.DataFrame, rule: ClassRule, label: str) -> str:
    """What the step's weights did, as Markdown. `now`: the step's visits with `held`; `label`: the method's name."""
    step, held, others = int(now["step"].iloc[0]), now[now["held"]], now[~now["held"]]
    tally = now["label"].value_counts()
    classes = ", ".join(f"{tally[name]} {name}" for name in CLASSES if name in tally)
    of, label = count(len(now), "prompt"), inert_markdown(label)
    if not rule.trained:
        return (
            f"Step {step}: **no prompt was held back**, {label} gives every prompt weight 1. ADORA's criteria are "
            f"**only observed** here; of {of} they call {classes}."
        )
    if held.empty:
        amplified = rule.amplifies and (now["weight"] > 1).any()
        words = (
            f"amplified **every one of {of}** (weight {_weights(now)})" if amplified else f"held back **none of {of}**"
        )
        if rule.amplifies and not amplified:
            words += ": none was amplified, so all keep the same weight"
        return f"Step {step}: {label} {words}. Of all {len(now)}, {classes}. {_shared(now)}".strip()
    names = [f"**{inert_markdown(visible(text)[:40])}**" for text in _by_signal(held)["prompt"].head(NAMED)]
    more = f" and {len(held) - NAMED} more" if len(held) > NAMED else ""
    beside = f", beside {_weights(others)} for the other{f' {len(others)}' if len(others) > 1 else ''}"
    notes = [f"Of all {len(now)}, {classes}.", _shared(now)]
    if silent := int(held["equal"].sum()):
        notes.insert(1, f"{silent} of those held back had equal rewards, so no signal to hold back.")
    weights = f"weight {_weights(held)}{beside if len(others) else ''}"
    head = f"Step {step}: {label} **held back {len(held)} of {of}** ({weights}): {', '.join(names)}{more}."
    return " ".join(filter(None, [head, *notes]))


def _weights(rows: pd.DataFrame) -> str:
    low, high = float(rows["weight"].min()), float(rows["weight"].max())
    return number(low) if np.isclose(low, high) else f"{number(low)} to {number(high)}"


def _shared(now: pd.DataFrame) -> str:
    """What a weight does that all prompts with a signal share."""
    told = now.loc[now["kept"].astype(bool) & ~now["equal"].astype(bool), "weight"]
    if told.nunique() != 1 or np.isclose(told.iloc[0], 1):
        return ""
    return "All prompts with a signal share one weight, which AdamW cancels: nearly the same step without ADORA."


def _by_signal(rows: pd.DataFrame) -> pd.DataFrame:
    """Those held back first, among them those that had something to teach."""
    place = {"unfavorable": 0, "uniform": 1, "favorable": 2}
    rows = rows.assign(place=rows["label"].map(place))
    order = ["held", "equal", "weight", "place", "group"]
    return rows.sort_values(order, ascending=[False, True, True, True, True], kind="stable")


def over_the_run(visits: pd.DataFrame) -> str:
    """The same over all steps, one line of Markdown."""
    favorable, held = (_share(mark) for mark in (visits["label"] == "favorable", visits["held"]))
    words = f"Over the run, {share(favorable)} of {count(len(visits), 'visit')} were favorable"
    if held:
        words += f" and {share(held)} were held back"
    silent = _share(visits["equal"])
    return f"{words}; {share(silent)} had equal rewards, where most methods' advantages are 0 whatever the weight."


def _share(marks: pd.Series) -> float:
    """The share of visits that are marked; an import without rewards cannot say it of any."""
    return float(marks.astype("boolean").fillna(False).mean())


def criterion_words(row: pd.Series) -> str:
    """Both lengths as the criterion compares them: `44 ≤ 55 tokens`; what is missing where it is not defined."""
    longest, wrong = optional(row["longest_correct"]), optional(row["mean_wrong_length"])
    if longest is None or wrong is None:
        if longest is None:
            return "none right"
        return f"{number(longest)} tokens, " + (
            "none wrong" if row["correct"] == row["n"] else "all wrong ones cut off"
        )
    return f"{number(longest)} {'>' if longest > wrong else '≤'} {number(wrong, 'tokens')}"


def step_table(
    now: pd.DataFrame,
    rule: ClassRule,
    theme: Theme,
    chosen: int,
    tokens: Callable[[int], str],
    p_favorable: Sequence[float] | None = None,
) -> str:
    """A row a prompt of the step, those held back first; `tokens(group)` is the address of its rollouts.

    `p_favorable` (groups,) in the order of `now`.
    """
    rows = now.assign(p=np.nan if p_favorable is None else p_favorable)
    for column in ("base_mass", "mass"):
        total = rows[column].sum(min_count=1)
        rows[column] = rows[column] / total if total > 0 else np.nan
    rows = _by_signal(rows).head(SHOWN)
    mean = float(now.loc[now["kept"].astype(bool), "weight"].mean())
    heads = {"class": "left", "prompt": "left", "weight (next to the mean)": "right", "right": "right",
             "longest right against mean wrong": "left", "P(favorable)": "right"}  # fmt: skip
    heads |= {"mass, before → after": "right"} if rows["mass"].notna().any() else {}
    heads |= {"": "right"}
    head = f"padding:2px 8px;border:0;font-weight:600;color:{theme.muted};position:sticky;top:0;z-index:1"
    top = "".join(
        f"<th scope='col' style='{head};background:{theme.background};text-align:{side}'>{name}</th>"
        for name, side in heads.items()
    )
    body = ""
    for held, part in rows.groupby("held", sort=False):
        words = "held back" if held else "not held back"
        body += (
            ""
            if not rows["held"].any()
            else (
                f"<tr><th scope='rowgroup' colspan='{len(heads)}' style='text-align:left;padding:6px 8px 2px;border:0;"
                f"border-top:1px solid {theme.grid};font-weight:600'>{words}, {count(len(part), 'prompt')}</th></tr>"
            )
        )
        body += "".join(
            _row(row, rule, theme, row["group"] == chosen, tokens(int(row["group"])), mean, len(heads) == 8)
            for _, row in part.iterrows()
        )
    style = (
        f"width:100%;border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums;color:{theme.text}"
    )
    return (
        f"<div style='max-height:32rem;overflow-y:auto' tabindex='0'><table style='{style}' data-testid='step-prompts'>"
        f"<caption style='position:absolute;clip-path:inset(50%)'>The step's prompts, those held back first</caption>"
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _row(row: pd.Series, rule: ClassRule, theme: Theme, chosen: bool, href: str, mean: float, masses: bool) -> str:
    edge = f"padding:4px 8px;border:0;border-top:1px solid {theme.grid};vertical-align:top;text-align:"
    mono = "font-family:Source Code Pro,monospace;overflow-wrap:anywhere;font-weight:400"
    link = f"<a href='{inert_html(href)}' target='_self' style='color:{theme.text};text-underline-offset:3px'"
    text, weight = visible(row["prompt"]), optional(row["weight"])
    beside = f" ({number(weight / mean)} ×)" if weight is not None and mean > 0 else ""
    hard = ""
    if rule.tau is not None:
        hard = f" {'≤' if row['correct'] / row['n'] <= rule.tau else '>'} τ"
    notes = [
        note for note, there in (("equal rewards: no signal", row["equal"]), ("not trained", not row["kept"])) if there
    ]  # fmt: skip
    note = (
        f" <span style='font:.75rem Source Sans,sans-serif;color:{theme.muted}'>{', '.join(notes)}</span>"
        if notes
        else ""
    )
    cells = [
        f"<td style='{edge}left;white-space:nowrap'>{class_sign(str(row['label']), theme)} {row['label']}</td>",
        f"<th scope='row' style='{edge}left;{mono}'>{link}>"
        f"{inert_html(text[:120] + ('…' if len(text) > 120 else ''))}</a>{note}</th>",
        f"<td style='{edge}right'><b>{number(weight)}</b>{beside}</td>",
        f"<td style='{edge}right;white-space:nowrap'>{int(row['correct'])} of {int(row['n'])}{hard}</td>",
        f"<td style='{edge}left'>{inert_html(criterion_words(row))}</td>",
        f"<td style='{edge}right'>{share(optional(row['p']))}</td>",
    ]
    if masses:
        before, after = (share(optional(row[name])) for name in ("base_mass", "mass"))
        cells.append(f"<td style='{edge}right;white-space:nowrap'>{before} → <b>{after}</b></td>")
    cells.append(f"<td style='{edge}right'>{link}>tokens</a></td>")
    tint = f" style='background:{rgba(theme.favorable, 0.1)}' aria-current='true'" if chosen else ""
    test = f"data-testid='prompt-{int(row['group'])}' data-held='{int(row['held'])}'"
    return f"<tr {test}{tint}>{''.join(cells)}</tr>"


def class_sign(name: str, theme: Theme) -> str:
    """A class as the grid draws it: filled, hatched, or an outline."""
    fill = {
        "favorable": theme.favorable,
        "unfavorable": f"repeating-linear-gradient(135deg,{theme.unfavorable} 0 3px,{theme.background} 3px 4.5px)",
    }.get(name, "transparent")
    line = theme.prompt_class(name)
    style = f"display:inline-block;width:11px;height:11px;background:{fill};border:1.2px solid {line}"
    return f"<span aria-hidden='true' style='{style}'></span>"


def cell_words(row: pd.Series) -> Sequence[tuple[str, str]]:
    """A visit's evidence as (name, value) pairs of plain text."""
    yes = {True: "yes", False: "no"}
    length, difficulty = row["length_advantage"], row["difficulty_advantage"]
    return (
        ("correct", f"{int(row['correct'])} of {int(row['n'])}"),
        ("longest correct", number(optional(row["longest_correct"]), "tokens")),
        ("mean usable wrong", number(optional(row["mean_wrong_length"]), "tokens")),
        ("length advantage", "not defined" if pd.isna(length) else yes[bool(length)]),
        ("difficulty advantage", "not defined" if pd.isna(difficulty) else yes[bool(difficulty)]),
        ("class", str(row["label"])),
        ("weight", number(optional(row["weight"]))),
    )
