"""The token view's data: the rows that the component draws, the bars under an answer, and the group's verdict.

Pure functions of the store's rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from app.inert import visible, visible_token
from app.palette import SIGN, Theme
from app.views.tokens_fields import FIELDS, Field, legend, limit, shades
from app.words import DASH, count, length, number, said, share

NOTHING = "Nothing of this group was trained on."
ENDLESS = "An advantage of this group is infinite: it has no shares."

STRIPS = ("push", "probability", "entropy", "change")
"""What is drawn as bars under the chosen answer."""

TEXTS = {"chosen": "the chosen rollout", "right": "all right ones", "wrong": "all wrong ones", "all": "all rollouts"}
"""Whose texts can be shown under the matrix; the chosen rollout's always is."""

NUMBERS = 200_000
"""Numbers that the browser gets of a group. Beyond it, only the chosen rollout brings all of its own."""

SORTS = {
    "reward": ("reward", False),
    "length": ("length", False),
    "log-prob": ("sequence_logprob", False),
    "advantage": ("mean_advantage", False),
    "rollout": ("rollout", True),
}
"""How rows can be ordered: (column, ascending)."""


def row_order(rollouts: pd.DataFrame, frame: pd.DataFrame, sort: str) -> pd.DataFrame:
    """The rollouts in the chosen order with `mean_advantage`, the mean of their tokens' trained advantages; ties by
    index.
    """
    means = frame.groupby("rollout")["advantage"].mean()
    column, ascending = SORTS[sort]
    return rollouts.assign(mean_advantage=rollouts["rollout"].map(means).astype(float)).sort_values(
        [column, "rollout"], ascending=[ascending, True], kind="stable", na_position="last"
    )


def rollout_title(rollout: pd.Series, trained: bool) -> str:
    """`rollout 3: correct, right by luck, reward 1, 23 tokens, 2 of 3 steps right`, with what must not be missed.

    Traits (of the verifier) are said where the task has them.
    """
    traits = rollout.get("traits")
    traits = traits if isinstance(traits, Mapping) else {}
    right = said(rollout["correct"])
    words = ["not judged" if pd.isna(rollout["correct"]) else "correct" if right else "wrong"]
    if _positive(traits, "lucky"):
        words.append("right by luck")
    if said(rollout["truncated"]):
        words.append("truncated")
    words += [f"reward {number(rollout['reward'])}{_parts(rollout)}", length(rollout["length"])]
    if _positive(traits, "steps") and traits.get("steps_right") is not None:
        words.append(f"{number(traits['steps_right'])} of {count(int(traits['steps']), 'step')} right")
    if _positive(traits, "self_check"):
        words.append("with a self-check")
    if right and rollout["mean_advantage"] < 0:
        words.append("correct but suppressed")
    if not trained:
        words.append("not trained (probe)")
    elif not said(rollout["kept"]):
        words.append("dropped, not in the loss")
    return f"rollout {int(rollout['rollout'])}: {', '.join(words)}"


def _parts(rollout: pd.Series) -> str:
    """` (correct 1, format 0.2, length −0.1)`; "" where the reward has one part or none is known."""
    parts = rollout.get("parts")
    parts = {name: value for name, value in parts.items() if value is not None} if isinstance(parts, Mapping) else {}
    return (
        f" ({', '.join(f'{visible(name)} {number(value)}' for name, value in parts.items())})"
        if parts.keys() - {"correct"}
        else ""
    )


def matrix_rows(
    ordered: pd.DataFrame, frame: pd.DataFrame, chosen: Field, shown: Sequence[Field], trained: bool, selected: int
) -> tuple[list[dict[str, object]], float, bool]:
    """(rows for the component, half-width of the domain, whether any token has the chosen field).

    Beyond NUMBERS a group, only the selected rollout brings all its numbers, the others those of the coloured field, so
    that the page stays quick.
    """
    all_shades, reach = shades(frame[chosen.id].to_numpy(dtype=float), chosen.kind)
    recorded = any(value is not None for value in all_shades)
    few = len(frame) * len(shown) <= NUMBERS
    coloured = [field for field in shown if field.id == chosen.id]
    shown_as = {token: visible_token(token) for token in frame["token"].unique()}
    frame = frame.assign(
        _text=frame["token"].map(shown_as),
        _break=frame["token"].astype(str).str.contains("\n", regex=False),
        _shade=pd.Series(all_shades, index=frame.index, dtype=object),
        _flag=(~frame["kept"].fillna(False).astype(bool)).astype(int) * int(trained)
        + 2 * (frame["clipped"] == 1).astype(int),
    )
    by_rollout = dict(tuple(frame.groupby("rollout")))
    rows = []
    for _, rollout in ordered.iterrows():
        tokens = by_rollout.get(rollout["rollout"], frame.iloc[:0])
        rows.append(
            {
                "rollout": int(rollout["rollout"]),
                "sign": SIGN[1 if said(rollout["polarity"] > 0) else -1],
                "title": rollout_title(rollout, trained),
                "cells": [
                    f"{int(rollout['rollout'])}", number(rollout["mean_advantage"], signed=True),
                    number(rollout["reward"]), DASH if pd.isna(rollout["length"]) else str(int(rollout["length"])),
                ],
                "kept": said(rollout["kept"]) or not trained,
                "tokens": tokens["_text"].tolist(),
                "breaks": np.flatnonzero(tokens["_break"]).tolist(),
                "shades": tokens["_shade"].tolist(),
                "flags": tokens["_flag"].tolist(),
                "values": {
                    field.id: rounded(tokens[field.id])
                    for field in (shown if few or rollout["rollout"] == selected else coloured)
                },
            }
        )  # fmt: skip
    return rows, reach, recorded


def strips(frame: pd.DataFrame, theme: Theme) -> list[dict[str, object]]:
    """The fields drawn as bars under the chosen answer, each with its own domain over the group, as the colours
    have.
    """
    out = []
    for field in FIELDS:
        if field.id not in STRIPS:
            continue
        reach = 1.0 if field.kind == "probability" else limit(frame[field.id].to_numpy(dtype=float))
        hues = legend(field, reach, True, theme)
        scale = f"{'±' if hues['below'] else '0 to '}{number(reach)}"
        out.append(
            {
                "id": field.id,
                "label": field.label,
                "scale": scale,
                "reach": reach,
                "above": hues["above"],
                "below": hues["below"],
            }
        )
    return out


def payload(
    rows: list[dict[str, object]],
    colour: dict[str, object],
    shown: Sequence[Field],
    bars: list[dict[str, object]],
    *,
    key: str,
    prompt: str,
    texts: str,
    selected: tuple[int, int],
    why: dict[str, object],
    theme: Theme,
) -> dict[str, object]:
    """What the component gets: plain JSON, every foreign text already made visible."""
    return {
        "key": key,
        "rows": rows,
        "columns": ["#", "advantage", "reward", "tokens"],
        "colour": colour,
        "fields": [
            {"id": field.id, "label": field.label, "unit": field.unit, "flag": field.kind == "flag"} for field in shown
        ],
        "prompt": visible(prompt),
        "texts": texts,
        "selected": {"rollout": selected[0], "position": selected[1]},
        "why": why,
        "strips": bars,
        "text": theme.text,
        "positive": theme.reinforced,
        "negative": theme.suppressed,
        "warning": theme.warning,
    }


def verdict(frame: pd.DataFrame, rollouts: pd.DataFrame, trained: bool) -> tuple[str, tuple[int, int] | None]:
    """(what this group teaches, in one sentence; the (rollout, position) of its strongest push, None without a push).

    Mass is the sum of loss weight × |advantage|; of |advantage| alone where nothing was trained.
    """
    right = int(rollouts["correct"].sum())
    wrong = len(rollouts) - right
    counts = f"{right} right, {wrong} wrong"
    if rollouts["reward"].nunique() == 1 and not frame["advantage"].fillna(0).any():
        same = f"all {len(rollouts)} answers have reward {number(rollouts['reward'].iloc[0])}"
        return f"No signal: {same}, so no token of this group has an advantage.", None
    weight = frame["loss_weight"].fillna(0).where(frame["kept"], 0) if trained else 1.0
    mass = frame["advantage"].abs() * weight
    if not mass.sum() > 0:
        return f"{counts}. {NOTHING}", None
    if not np.isfinite(mass.sum()):
        return f"{counts}. {ENDLESS}", None
    negative = rollouts.set_index("rollout")["polarity"] < 0
    of_wrong = mass[frame["rollout"].map(negative).astype(bool)].sum() / mass.sum()
    if of_wrong in (0, 1):
        sentence = f"{counts}. Only the {'wrong' if of_wrong else 'right'} answers carry advantage"
    else:
        sentence = f"{counts}. The wrong answers carry {share(of_wrong)} of this group's advantage mass"
    push = frame["push"].where(frame["kept"], 0).abs() if trained else frame["push"].abs()
    if not push.max() > 0:
        return sentence + ".", None
    top = frame.loc[push.idxmax()]
    place = (int(top["rollout"]), int(top["position"]))
    return f"{sentence}; the strongest push is {number(top['push'], signed=True)} in rollout {place[0]}.", place


def untrained(sentence: str, reason: str | None) -> str:
    """The verdict of a group without a kept rollout: first that nothing was trained, and the method's reason if known.

    `sentence` is what `verdict` says of the group, `reason` the words of its factor `selected`.
    """
    opening = f"{NOTHING.removesuffix('.')} ({reason})." if reason else NOTHING
    return f"{opening} {sentence.removesuffix(NOTHING)}".strip()


def number_table(tokens: pd.DataFrame, shown: Sequence[Field]) -> pd.DataFrame:
    """One rollout's tokens with every field, columns named with their units; tokens as they are shown."""
    table = pd.DataFrame(
        {"position": tokens["position"].astype(int), "token": [visible_token(t) for t in tokens["token"]]}
    )
    for field in shown:
        name = f"{field.label} ({field.unit})" if field.unit else field.label
        values = tokens[field.id].astype(float)
        table[name] = values.astype("boolean") if field.kind == "flag" else values
    return table.assign(**{"in the loss": tokens["kept"].fillna(False).astype(bool)})


def rounded(values: pd.Series) -> list[float | None]:
    """Numbers for the browser: 6 significant digits, None for what is missing."""
    array = values.to_numpy(dtype=float)
    there = np.isfinite(array)
    size = np.abs(np.where(there & (array != 0), array, 1.0))
    digits = np.power(10.0, 5 - np.floor(np.log10(size)))
    shown = np.round(np.where(there, array, 0.0) * digits) / digits
    return [value if known else None for value, known in zip(shown.tolist(), there.tolist(), strict=True)]


def _positive(traits: Mapping[str, float | None], name: str) -> bool:
    value = traits.get(name)
    return value is not None and value > 0
