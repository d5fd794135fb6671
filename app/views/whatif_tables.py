"""The What-if page's numbers: mass by polarity and by probability, pairs of methods, prompts, and every token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from app.inert import inert_html, visible, visible_token
from app.palette import Theme
from app.views.polarity_tables import Bar, Row, mirror_table
from app.views.whatif import Chosen
from app.views.whatif_source import Shown, Source, View
from app.views.whatif_words import right_share
from app.words import DASH, count, number, share
from core.counterfactual import Pair, Prompt, Summary

QUARTERS = ("least likely", "unlikely", "likely", "most likely")


def mass_table(shown: Sequence[Shown], summaries: Sequence[Summary], theme: Theme) -> str:
    """Advantage mass of wrong and right answers, a row a method; the mark is the mass before its factors."""
    rows = []
    for one, summary in zip(shown, summaries, strict=True):
        total = summary.mass.total
        sides = [
            Bar(mass, f"{number(mass)} ({share(mass / total if total else 0.0)})", base,
                title=f"before factors {number(base)}")
            for mass, base in (
                (summary.mass.negative, summary.base_mass.negative), (summary.mass.positive, summary.base_mass.positive)
            )
        ]  # fmt: skip
        rows.append(Row(f"{one.letter} · {one.label}", *sides, f"mass-{one.letter.lower()}", note=_note(summary)))
    return mirror_table(
        rows, theme, common=True, heads=("wrong answers", "", "right answers"),
        caption="Advantage mass of wrong and right answers under each method", middle="13rem",
    )  # fmt: skip


def quartile_table(shown: Sequence[Shown], summaries: Sequence[Summary], theme: Theme) -> str | None:
    """The same by quarters of the tokens' probability, the least likely first; None without log-probs. Quarters that
    cannot be told apart by their probabilities are one.
    """
    if any(summary.quartiles is None for summary in summaries):
        return None
    edges = [0.0, *summaries[0].quartiles.edges.tolist(), 1.0]
    rows = []
    for parts in _apart(edges):
        for one, summary in zip(shown, summaries, strict=True):
            quartiles, total = summary.quartiles, summary.mass.total
            sides = []
            for side in (1, 0):
                mass, base, tokens = (
                    float(each[side, parts].sum()) for each in (quartiles.mass, quartiles.base_mass, quartiles.tokens)
                )
                words = share(mass / total if total else 0.0)
                sides.append(Bar(mass, words, base, title=count(int(tokens), "token")))
            span = _span(edges, parts) if one is shown[0] else ""
            rows.append(Row(one.letter, *sides, f"quartile-{parts[0]}-{one.letter.lower()}", note=span))
    return mirror_table(
        rows, theme, common=True, heads=("wrong answers", "tokens by probability", "right answers"),
        caption="Share of each method's advantage mass by quarters of the tokens' probability", middle="13rem",
    )  # fmt: skip


SURE = 1e-4
"""Probabilities nearer to 1 than this are not told apart."""


def _apart(edges: Sequence[float]) -> list[list[int]]:
    """The quarters in lists of those that begin at one probability as it is shown."""
    found: list[list[int]] = []
    for part in range(4):
        if found and _p(edges[part]) == _p(edges[found[-1][0]]):
            found[-1].append(part)
        else:
            found.append([part])
    return found


def _span(edges: Sequence[float], parts: Sequence[int]) -> str:
    """`least likely, p up to 0.643`, `likely and most likely, p > 0.9999`."""
    names = " and ".join(QUARTERS[part] for part in parts)
    low, high = edges[parts[0]], edges[parts[-1] + 1]
    if low >= 1 - SURE:
        return f"{names}, p {_p(low)}"
    return f"{names}, p up to {_p(high)}" if not low else f"{names}, p {_p(low)} to {_p(high)}"


def _p(probability: float) -> str:
    """A probability whose distance from 1 can be seen."""
    if probability >= 1 - SURE:
        return "> 0.9999"
    return f"{probability:.4f}" if probability > 0.99 else number(probability)


def _note(summary: Summary) -> str:
    words = [] if summary.kept_share == 1 else [f"{share(summary.kept_share)} of tokens kept"]
    if summary.clip_share:
        words.append(f"its bounds clip {share(summary.clip_share)}")
    return ", ".join(words)


def mass_frame(shown: Sequence[Shown], summaries: Sequence[Summary]) -> pd.DataFrame:
    """What both mass tables draw, a row a method and part."""
    rows = []
    for one, summary in zip(shown, summaries, strict=True):
        for name, side in (("wrong", 1), ("right", 0)):
            mass, base = (
                getattr(each, "negative" if side else "positive") for each in (summary.mass, summary.base_mass)
            )
            own = {"method": f"{one.letter}: {one.label}", "answers": name}
            rows.append({**own, "tokens": "all", "mass": mass, "mass before factors": base})
            if summary.quartiles is not None:
                for part, quarter in enumerate(QUARTERS):
                    found = (float(each[side, part]) for each in (summary.quartiles.mass, summary.quartiles.base_mass))
                    rows.append(
                        {**own, "tokens": quarter, **dict(zip(("mass", "mass before factors"), found, strict=True))}
                    )
    return pd.DataFrame(rows)


def pair_frame(shown: Sequence[Shown], pairs: Mapping[Chosen, Pair], summaries: Sequence[Summary]) -> pd.DataFrame:
    """A row a pair: how alike two methods are on these tokens. `pairs` hold (second, first) by (first, second)."""
    rows = []
    for (a, b), pair in pairs.items():
        before, after = right_share(summaries[a]), right_share(summaries[b])
        rows.append(
            {
                "from": f"{shown[a].letter}: {shown[a].label}", "to": f"{shown[b].letter}: {shown[b].label}",
                "rank correlation": pair.rank_correlation, "tokens changed": pair.changed_share,
                "signs flipped": pair.flipped_share, "mass elsewhere": pair.moved,
                "to right answers": None if before is None or after is None else after - before,
                "mass ratio": pair.scale,
            }
        )  # fmt: skip
    return pd.DataFrame(rows)


def _part(part: float) -> str:
    """A share; what rounding leaves of 0 is 0."""
    return share(part if part >= 5e-5 else 0.0)


def _signed(part: float) -> str:
    """A change of a share: `+12 %`, `−0.3 %`, `0 %`."""
    return {1: "+", -1: "−"}.get(int(np.sign(part)) if abs(part) >= 5e-5 else 0, "") + _part(abs(part))


COLUMNS = {
    "rank correlation": ("rank correlation", "Spearman's, of the token advantages; 1: the same order", number),
    "tokens changed": ("tokens changed", "share of the tokens that either keeps", _part),
    "signs flipped": ("signs flipped", "reinforced by one, suppressed by the other", _part),
    "mass elsewhere": ("mass elsewhere", "how much of the mass lies on other tokens, or pushes the other way", _part),
    "to right answers": ("mass to right answers", "change of the right answers' share of the mass",
                         _signed),
    "mass ratio": ("mass of this prompt", "the second's mass on this prompt over the first's",
                   lambda value: f"× {number(value)}"),
}  # fmt: skip
STEP_SIZE = ("step size", "the second's mass over the first's: how much larger the whole update is")
"""What the last column is over a whole step."""


def pair_table(frame: pd.DataFrame, theme: Theme, *, whole: bool) -> str:
    """`pair_frame` as HTML; short enough to be read without scrolling sideways. `whole`: it is of the whole step."""
    cell, head, table = _styles(theme)
    told = [(name, doc) for name, doc, _ in COLUMNS.values()]
    heads = "".join(
        f"<th scope='col' style='{head}right' title='{inert_html(doc)}'><span style='{TOLD}'>{name}</span></th>"
        for name, doc in ([*told[:-1], STEP_SIZE] if whole else told)
    )
    body = ""
    for row in frame.to_dict("records"):
        cells = "".join(
            f"<td style='{cell}right' data-testid='pair-{name.replace(' ', '-')}'>{_shown(row[name], words)}</td>"
            for name, (_, _, words) in COLUMNS.items()
        )
        name = f"<b>{row['from'][0]}</b> → <b>{row['to'][0]}</b>"
        body += f"<tr><th scope='row' style='{cell}left;font-weight:400'>{name}</th>{cells}</tr>"
    top = f"<thead><tr><th style='{head}left'>pair</th>{heads}</tr></thead>"
    return f"<table style='{table}'>{top}<tbody>{body}</tbody></table>"


TOLD = "text-decoration:underline dotted;text-underline-offset:3px;cursor:help"
"""How a term looks that says on hovering what it is."""


def _styles(theme: Theme) -> tuple[str, str, str]:
    """(a cell up to its alignment, a head up to its alignment, the table)."""
    cell = f"padding:4px 10px 4px 0;border:0;border-top:1px solid {theme.grid};text-align:"
    head = f"padding:2px 10px 4px 0;border:0;font-weight:400;font-size:.8125rem;color:{theme.muted};text-align:"
    shape = "width:100%;border-collapse:collapse;font-size:.875rem;font-variant-numeric:tabular-nums"
    table = f"{shape};color:{theme.text}"
    return cell, head, table


def prompt_table(frame: pd.DataFrame, theme: Theme) -> str:
    """What is read of `prompt_frame`, as HTML: its cells wrap, so that no method is cut off on a narrow page."""
    cell, head, table = _styles(theme)
    head += f"left;position:sticky;top:0;background:{theme.background}"
    heads = "".join(f"<th scope='col' style='{head}'>{inert_html(name)}</th>" for name in frame.columns)
    body = "".join(
        f"<tr data-testid='prompt-{place}'>"
        + "".join(f"<td style='{cell}left;overflow-wrap:anywhere'>{inert_html(str(value))}</td>" for value in row)
        + "</tr>"
        for place, row in enumerate(frame.itertuples(index=False))
    )
    return (
        f"<div style='max-height:460px;overflow-y:auto' tabindex='0'><table style='{table}'>"
        f"<thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _shown(value: float | None, words: Callable[[float], str]) -> str:
    return DASH if value is None or value != value else inert_html(words(value))


def prompt_frame(
    source: Source, shown: Sequence[Shown], summaries: Sequence[Summary]
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """(the table of prompts as it is read, the heaviest first; the same as plain numbers for a file)."""
    read, plain = [], []
    shares = np.array([[prompt.share or 0.0 for prompt in summary.prompts] for summary in summaries])
    for place in np.argsort(-shares.max(axis=0), kind="stable").tolist():
        prompt = summaries[0].prompts[place]
        text = visible(source.prompts.get(prompt.group, ""))
        row = {"#": prompt.group, "prompt": text, "right": f"{prompt.correct} of {prompt.rollouts}"}
        numbers = {"group": prompt.group, "prompt": text, "correct": prompt.correct, "rollouts": prompt.rollouts}
        for one, summary in zip(shown, summaries, strict=True):
            own = summary.prompts[place]
            row[one.letter] = _judged(own, one)
            numbers |= {
                f"{one.letter} class": own.label, f"{one.letter} weight": own.weight,
                f"{one.letter} mean |advantage|": own.advantage, f"{one.letter} mass share": own.share,
            }  # fmt: skip
        read.append(row)
        plain.append(numbers)
    return pd.DataFrame(read), pd.DataFrame(plain)


def _judged(prompt: Prompt, one: Shown) -> str:
    """`favorable × 2 · 14 %`; in brackets the class that the method does not use."""
    label = prompt.label if one.answer.trace.classes.trained else f"[{prompt.label}]"
    if not prompt.kept:
        return f"{label} · dropped"
    return f"{label} × {number(prompt.weight)} · {share(prompt.share)}"


def token_frame(
    source: Source, view: View, shown: Sequence[Shown], pair: Chosen | None, compared: Pair | None, group: int | None
) -> pd.DataFrame:
    """Every token in view with its advantage under each method."""
    batch, mask = view.batch, view.batch.mask
    columns = {
        "prompt": np.repeat(batch.group, batch.length), "rollout": np.repeat(view.rollout, batch.length),
        "position": np.nonzero(mask)[1],
    }  # fmt: skip
    if group is not None:
        columns["token"] = [visible_token(token) for row in view.rows.tolist() for token in source.texts(row)]
    if batch.sampler_logprob is not None:
        columns["p"] = np.exp(np.asarray(batch.sampler_logprob, dtype=float)[mask])
    for one in shown:
        columns[f"{one.letter}: {one.label}"] = one.answer.trace.advantage[mask]
    if pair is not None and compared is not None:
        first, second = (shown[each].letter for each in pair)
        columns[f"{second} − {first}"] = compared.difference[mask]
        columns["sign flips"] = compared.flipped[mask]
        columns["factor applies"] = (compared.by_factor & compared.changed)[mask]
    return pd.DataFrame(columns)
