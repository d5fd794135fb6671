"""The numbers of a token: which ones it can be coloured by, their domains and shades, and the colour bar in words.

Pure functions of the store's rows. Shades lie in [-100, 100] on one domain a group: 0 is the page's background.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from app.palette import Theme
from app.words import number
from core.store.schema import UNMOVED

Kind = Literal["signed", "factor", "ratio", "probability", "amount", "flag", "along"]


@dataclass(frozen=True)
class Field:
    """A number of a token. Kinds: signed (around 0), factor and ratio (around 1), probability (0 to 1), amount (0
    up), flag (0 or 1), along (around 0: with or against the push).
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
    Field("kl", "KL to base", "nats", "amount", "k3 estimate of the KL to the base model at this token"),
    Field("ratio", "importance ratio", "", "ratio", "importance ratio at the token's last gradient pass"),
    Field("clipped", "clipped", "", "flag", "whether clipping stopped its gradient in its last pass"),
    Field("loss_weight", "loss weight", "", "amount", "what the loss's averaging multiplies the token's term by"),
    Field("penalty", "penalty", "", "amount", "what multiplies the distance that the loss adds on this token"),
    Field("tis", "sampler correction", "", "ratio", "the trainer's probability over the sampler's, capped"),
    Field("change", "Δ log p", "nats", "signed", "change of the token's log-prob in this step's update"),
    Field("along", "moved as pushed?", "nats", "along", "Δ log p in the direction of the advantage's sign"),
    Field("entropy_change", "Δ entropy", "nats", "signed", "change of the entropy at this place in this step's update"),
)
OPTIONAL = ("kl", "penalty", "tis")
"""Fields that are left out where nothing of them was recorded; the others stay and say so."""

NOT_RECORDED = {
    "change": "log-probs after the update were not recorded here (record.after_update)",
    "along": "no token here has both an advantage in the loss and a log-prob after the update",
    "entropy_change": "entropies after the update were not recorded here (record.after_update)",
    "ratio": "there is no ratio: these tokens had no gradient pass",
    "clipped": "nothing could clip: these tokens had no gradient pass",
    "loss_weight": "there is no loss weight: probes have no loss, and earlier versions of the lab kept none",
    "entropy": "entropies were not recorded",
    "probability": "log-probs were not recorded",
    "push": "push needs the sampler's log-probs, which were not recorded",
}


def token_frame(
    tokens: pd.DataFrame, rollouts: pd.DataFrame, factors: Sequence[str], trained: bool = True
) -> pd.DataFrame:
    """The tokens of a group with every field of FIELDS, `factor_<id>` for each factor and `factors`, their product.

    A factor that is stored once a rollout is spread over its tokens. What was not recorded is NaN. Nothing is `along`
    a push where nothing was trained.
    """
    frame = tokens.copy()
    for column in frame.select_dtypes("float32"):
        frame[column] = frame[column].astype(float)
    for column in ("penalty", "tis", "loss_weight", "ratio", "clipped"):
        frame[column] = _floats(frame, column)
    advantage = _floats(frame, "advantage")
    frame["probability"] = np.exp(_floats(frame, "sampler_logprob"))
    frame["push"] = advantage * (1 - frame["probability"])
    frame["change"] = _floats(frame, "after_logprob") - _floats(frame, "trainer_logprob")
    pushed = frame["kept"].fillna(False).astype(bool) & (advantage.abs() > 0) & trained
    moved = frame["change"].where(frame["change"].isna() | (frame["change"].abs() >= UNMOVED), 0.0)
    frame["along"] = (np.sign(advantage) * moved).where(pushed)
    frame["entropy_change"] = _floats(frame, "entropy_after") - _floats(frame, "entropy")
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
    """The fields that a reader can choose: those of FIELDS, each factor of the method, and their product if several."""
    own = [Field(f"factor_{name}", f"× {name}", "", "factor", f"the factor {name} of the method") for name in factors]
    if len(factors) > 1:
        own.insert(0, Field("factors", "× all factors", "", "factor", "the product of all factors"))
    listed = [*FIELDS[:2], *own, *FIELDS[2:]]
    return [field for field in listed if field.id not in OPTIONAL or frame[field.id].notna().any()]


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
    one-sided). `cross`: values below zero are marked with a cross.
    """
    above, below = {
        "signed": (theme.reinforced, theme.suppressed),
        "ratio": (theme.reinforced, theme.suppressed),
        "factor": (theme.favorable, theme.unfavorable),
        "probability": (theme.favorable, ""),
        "amount": (theme.warning, ""),
        "flag": (theme.warning, ""),
        "along": (theme.favorable, theme.warning),
    }[field.kind]
    low, high = {
        "signed": (number(-reach, field.unit), number(reach, field.unit, signed=True)),
        "factor": (f"× {number(max(0.0, 1 - reach))}", f"× {number(1 + reach)}"),
        "ratio": (number(float(np.exp(-reach))), number(float(np.exp(reach)))),
        "probability": ("0", "1"),
        "amount": ("0", number(reach, field.unit)),
        "flag": ("no", "yes"),
        "along": (f"× against, {number(-reach, field.unit)}", f"{number(reach, field.unit, signed=True)}, as pushed"),
    }[field.kind]
    note = "" if field.kind in ("probability", "flag") else "2nd to 98th percentile of this group"
    if not recorded:
        low = high = None
        note = NOT_RECORDED.get(field.id, "not recorded in this run")
    elif reach == 0:
        low = high = None
        note = {"factor": "1 on every token", "ratio": "1 on every token", "flag": "no token of this group"}.get(
            field.kind, "0 on every token"
        )
    return {
        "id": field.id, "label": field.label, "doc": field.doc, "low": low, "high": high, "note": note,
        "above": above, "below": below, "cross": field.kind == "along",
    }  # fmt: skip


def _floats(frame: pd.DataFrame, column: str) -> pd.Series:
    return frame[column].astype(float) if column in frame else pd.Series(np.nan, index=frame.index)
