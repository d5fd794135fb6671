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
from app.words import DASH, number, share
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
    """The same by quarters of the tokens' probability, the least likely first; None without log-probs."""
    if any(summary.quartiles is None for summary in summaries):
        return None
    edges = [0.0, *summaries[0].quartiles.edges.tolist(), 1.0]
    rows = []
    for part, name in enumerate(QUARTERS):
        for one, summary in zip(shown, summaries, strict=True):
            quartiles, total = summary.quartiles, summary.mass.total
            sides = [
                Bar(float(quartiles.mass[side, part]), share(quartiles.mass[side, part] / total if total else 0.0),
                    float(quartiles.base_mass[side, part]), title=f"{int(quartiles.tokens[side, part])} tokens")
                for side in (1, 0)
            ]  # fmt: skip
            first = one is shown[0]
            span = f"{name}, p {number(edges[part])}–{number(edges[part + 1])}" if first else ""
            rows.append(Row(one.letter, *sides, f"quartile-{part}-{one.letter.lower()}", note=span))
    return mirror_table(
        rows, theme, common=True, heads=("wrong answers", "tokens by probability", "right answers"),
        caption="Share of each method's advantage mass by quarters of the tokens' probability", middle="13rem",
    )  # fmt: skip


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
                "step size": pair.scale,
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
    "step size": ("step size", "the second's whole mass over the first's", lambda value: f"× {number(value)}"),
}  # fmt: skip


def pair_table(frame: pd.DataFrame, theme: Theme) -> str:
    """`pair_frame` as HTML; short enough to be read without scrolling sideways."""
    cell = f"padding:4px 10px 4px 0;border:0;border-top:1px solid {theme.grid};text-align:"
    head = f"padding:2px 10px 4px 0;border:0;font-weight:400;font-size:13px;color:{theme.muted};text-align:"
    heads = "".join(
        f"<th scope='col' style='{head}right' title='{inert_html(doc)}'>{name}</th>"
        for name, doc, _ in COLUMNS.values()
    )
    body = ""
    for row in frame.to_dict("records"):
        cells = "".join(
            f"<td style='{cell}right' data-testid='pair-{name.replace(' ', '-')}'>{_shown(row[name], words)}</td>"
            for name, (_, _, words) in COLUMNS.items()
        )
        name = f"<b>{row['from'][0]}</b> → <b>{row['to'][0]}</b>"
        body += f"<tr><th scope='row' style='{cell}left;font-weight:400'>{name}</th>{cells}</tr>"
    table = f"width:100%;border-collapse:collapse;font-size:14px;font-variant-numeric:tabular-nums;color:{theme.text}"
    top = f"<thead><tr><th style='{head}left'>pair</th>{heads}</tr></thead>"
    return f"<table style='{table}'>{top}<tbody>{body}</tbody></table>"


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
    if not prompt.kept:
        return f"{prompt.label} · dropped"
    label = prompt.label if one.answer.trace.classes.trained else f"({prompt.label})"
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
