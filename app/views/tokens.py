"""The token view's data: which fields a token can be coloured by, their domains, and the rows that the component draws.

Pure functions of the store's rows. Colours are shades in [-100, 100] on one domain a group: 0 is the page's background.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from app.inert import visible, visible_token
from app.palette import SIGN, Theme
from app.words import count, number, share

Kind = Literal["signed", "factor", "ratio", "probability", "amount"]


NOTHING = "Nothing of this group was trained on."


@dataclass(frozen=True)
class Field:
    """A number of a token. Kinds: signed (around 0), factor and ratio (around 1), probability (0 to 1), amount (0
    up).
    """

    id: str
    label: str
    unit: str
    kind: Kind
    doc: str


FIELDS = (
    Field("advantage", "advantage", "", "signed", "what the trainer trained on: base advantage × every factor"),
    Field("base_advantage", "base advantage", "", "signed", "the base rule's advantage, before any factor"),
    Field("push", "push A(1−p)", "", "signed", "advantage × (1 − p): how hard the token's own logit is pushed"),
    Field("probability", "probability", "", "probability", "probability of the token when it was sampled"),
    Field("entropy", "entropy", "nats", "amount", "entropy of the distribution that the token was drawn from"),
    Field("ratio", "ratio", "", "ratio", "importance ratio at the token's last gradient pass"),
    Field("change", "Δ log p", "nats", "signed", "change of the token's log-prob in this step's update"),
    Field("kl", "KL to base", "nats", "amount", "k3 estimate of the KL to the base model at this token"),
)
STRIPS = ("push", "probability", "entropy", "change")
"""What is drawn as bars under the chosen answer."""

SORTS = {
    "reward": ("reward", False),
    "length": ("length", False),
    "log-prob": ("sequence_logprob", False),
    "advantage": ("mean_advantage", False),
    "rollout": ("rollout", True),
}
"""How rows can be ordered: (column, ascending)."""

NOT_RECORDED = {
    "change": "log-probs after the update were not recorded here (record.after_update)",
    "ratio": "there is no ratio: these tokens had no gradient pass",
    "kl": "log-probs of the base model were not recorded (record.reference)",
    "entropy": "entropies were not recorded",
    "probability": "log-probs were not recorded",
    "push": "push needs the sampler's log-probs, which were not recorded",
}


def token_frame(tokens: pd.DataFrame, rollouts: pd.DataFrame, factors: Sequence[str]) -> pd.DataFrame:
    """The tokens of a group with every field of FIELDS, `factor_<id>` for each factor and `factors`, their product.

    A factor that is stored once a rollout is spread over its tokens. What was not recorded is NaN.
    """
    frame = tokens.copy()
    for column in frame.select_dtypes("float32"):
        frame[column] = frame[column].astype(float)
    frame["probability"] = np.exp(_floats(frame, "sampler_logprob"))
    frame["push"] = _floats(frame, "advantage") * (1 - frame["probability"])
    frame["change"] = _floats(frame, "after_logprob") - _floats(frame, "trainer_logprob")
    gap = _floats(frame, "ref_logprob") - _floats(frame, "trainer_logprob")
    frame["kl"] = np.exp(gap) - gap - 1
    frame["factors"] = 1.0
    by_rollout = rollouts.set_index("rollout")
    for factor in factors:
        values = _floats(frame, f"f_{factor}")
        if f"f_{factor}" in by_rollout:
            values = values.fillna(frame["rollout"].map(by_rollout[f"f_{factor}"].astype(float)))
        frame[f"factor_{factor}"] = values
        frame["factors"] *= values
    return frame


def fields(frame: pd.DataFrame, factors: Sequence[str]) -> list[Field]:
    """The fields that a reader can choose: those of FIELDS, each factor of the method, and their product if several.

    KL to the base is left out where it was not recorded; the others stay and say so.
    """
    own = [Field(f"factor_{name}", f"× {name}", "", "factor", f"the factor {name} of the method") for name in factors]
    if len(factors) > 1:
        own.insert(0, Field("factors", "× all factors", "", "factor", "the product of all factors"))
    listed = [*FIELDS[:2], *own, *FIELDS[2:]]
    return [field for field in listed if field.id != "kl" or frame["kl"].notna().any()]


def limit(values: np.ndarray) -> float:
    """The half-width of a zero-centred domain: the larger of |2nd| and |98th percentile|, else of the extremes, else
    0.
    """
    finite = values[np.isfinite(values)]
    if not len(finite):
        return 0.0
    reach = float(np.abs(np.percentile(finite, [2, 98])).max())
    return reach or float(np.abs(finite).max())


def shades(values: np.ndarray, kind: Kind) -> tuple[list[int | None], float]:
    """Shades in [-100, 100] (None where a value is missing) and the half-width of the domain they were drawn on.

    Values beyond the domain get ±101: the strongest colour, and a mark that they lie outside. A ratio's domain is in
    log ratio, a factor's in factor − 1, so that 1 is the background.
    """
    values = np.asarray(values, dtype=float)
    centred = values
    if kind == "factor":
        centred = values - 1
    elif kind == "ratio":
        centred = np.log(np.where(values > 0, values, np.nan))
    reach = 1.0 if kind == "probability" else limit(centred)
    if reach < 1e-9 and kind in ("factor", "ratio"):
        reach = 0.0  # rounding is no change
    scaled = np.zeros(len(values)) if reach == 0 else np.clip(100 * centred / reach, -101, 101)
    return [
        None if np.isnan(value) else int(shade) for value, shade in zip(centred, np.fix(scaled), strict=True)
    ], reach


def legend(field: Field, reach: float, recorded: bool, theme: Theme) -> dict[str, object]:
    """The colour bar in words, and its two hues: `above` and `below` the page's background (`below` empty if
    one-sided).
    """
    above, below = {
        "signed": (theme.reinforced, theme.suppressed),
        "ratio": (theme.reinforced, theme.suppressed),
        "factor": (theme.favorable, theme.unfavorable),
        "probability": (theme.favorable, ""),
        "amount": (theme.warning, ""),
    }[field.kind]
    low, high = {
        "signed": (number(-reach, field.unit), number(reach, field.unit, signed=True)),
        "factor": (f"× {number(max(0.0, 1 - reach))}", f"× {number(1 + reach)}"),
        "ratio": (number(float(np.exp(-reach))), number(float(np.exp(reach)))),
        "probability": ("0", "1"),
        "amount": ("0", number(reach, field.unit)),
    }[field.kind]
    note = "" if field.kind == "probability" else "2nd to 98th percentile of this group"
    if not recorded:
        low = high = None
        note = NOT_RECORDED.get(field.id, "not recorded in this run")
    elif reach == 0:
        low = high = None
        note = "1 on every token" if field.kind in ("factor", "ratio") else "0 on every token"
    return {
        "id": field.id, "label": field.label, "doc": field.doc, "low": low, "high": high, "note": note,
        "above": above, "below": below,
    }  # fmt: skip


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
    words = ["correct" if rollout["correct"] else "wrong"]
    if _positive(traits, "lucky"):
        words.append("right by luck")
    if rollout["truncated"]:
        words.append("truncated")
    words += [f"reward {number(rollout['reward'])}", count(int(rollout["length"]), "token")]
    if _positive(traits, "steps") and traits.get("steps_right") is not None:
        words.append(f"{number(traits['steps_right'])} of {count(int(traits['steps']), 'step')} right")
    if _positive(traits, "self_check"):
        words.append("with a self-check")
    if bool(rollout["correct"]) and rollout["mean_advantage"] < 0:
        words.append("correct but suppressed")
    if not trained:
        words.append("not trained (probe)")
    elif not rollout["kept"]:
        words.append("dropped, not in the loss")
    return f"rollout {int(rollout['rollout'])}: {', '.join(words)}"


def matrix_rows(
    ordered: pd.DataFrame, frame: pd.DataFrame, chosen: Field, shown: Sequence[Field], trained: bool, selected: int
) -> tuple[list[dict[str, object]], float, bool]:
    """(rows for the component, half-width of the domain, whether any token has the chosen field).

    Beyond 12,000 tokens a group, only the selected rollout brings all its numbers, the others those of the coloured
    field, so that the page stays quick.
    """
    all_shades, reach = shades(frame[chosen.id].to_numpy(dtype=float), chosen.kind)
    recorded = any(value is not None for value in all_shades)
    few = len(frame) <= 12_000
    coloured = [field for field in shown if field.id == chosen.id]
    frame = frame.assign(
        _shade=pd.Series(all_shades, index=frame.index, dtype=object),
        _flag=(~frame["kept"].fillna(False).astype(bool)).astype(int) * int(trained)
        + 2 * frame["clipped"].fillna(False).astype(bool).astype(int),
    )
    by_rollout = dict(tuple(frame.groupby("rollout")))
    rows = []
    for _, rollout in ordered.iterrows():
        tokens = by_rollout.get(rollout["rollout"], frame.iloc[:0])
        rows.append(
            {
                "rollout": int(rollout["rollout"]),
                "sign": SIGN[1 if rollout["polarity"] > 0 else -1],
                "title": rollout_title(rollout, trained),
                "cells": [
                    f"{int(rollout['rollout'])}", number(rollout["mean_advantage"], signed=True),
                    number(rollout["reward"]), str(int(rollout["length"])),
                ],
                "kept": bool(rollout["kept"]) or not trained,
                "tokens": [visible_token(token) for token in tokens["token"]],
                "breaks": [i for i, token in enumerate(tokens["token"]) if "\n" in str(token)],
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
        "fields": [{"id": field.id, "label": field.label, "unit": field.unit} for field in shown],
        "prompt": visible(prompt),
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
        table[f"{field.label} ({field.unit})" if field.unit else field.label] = tokens[field.id].astype(float)
    table["loss weight"] = tokens["loss_weight"].astype(float)
    table["in the loss"] = tokens["kept"].fillna(False).astype(bool)
    table["clipped"] = tokens["clipped"].astype("boolean")
    return table


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


def _floats(frame: pd.DataFrame, column: str) -> pd.Series:
    return frame[column].astype(float) if column in frame else pd.Series(np.nan, index=frame.index)
