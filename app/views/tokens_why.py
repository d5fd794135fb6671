"""Why a token got its advantage, line by line: its probability, the base advantage, every factor, and what the update
did.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from app.inert import visible
from app.views.explain_loss import Term
from app.words import number
from core.store.schema import UNMOVED

SHARE = 0.2
"""The share of a response that is called its most or least probable tokens, as A3PO ranks them."""


@dataclass(frozen=True)
class Reasons:
    """The method's own words about a rollout, recomputed: `base(t)`, by factor id `factors[id](t)`, and `penalty(t)`
    where the method has one, of position t. `term(t)` and `kl(t)` are what it adds to the loss, `weighing(t, sum)` what
    weighs their sum.
    """

    base: Callable[[int], str]
    factors: dict[str, Callable[[int], str]]
    penalty: Callable[[int], str] | None = None
    term: Callable[[int], Term] | None = None
    kl: Callable[[int], Term | None] | None = None
    weighing: Callable[[int, float | None], Term] | None = None


@dataclass(frozen=True)
class Line:
    """One line of the ledger. `raw` is the full-precision number, None where there is none; `kind` is its style."""

    id: str
    label: str
    value: str
    raw: float | None = None
    note: str = ""
    kind: str = ""

    def json(self) -> dict[str, object]:
        """For the component."""
        raw = None if self.raw is None else repr(self.raw)
        return {
            "id": self.id,
            "label": self.label,
            "value": self.value,
            "raw": raw,
            "note": visible(self.note),
            "kind": self.kind,
        }


def ranks(probability: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(rank from the most probable, rank from the least probable) of each token, from 1; ties by position."""
    most, least = np.empty(len(probability), int), np.empty(len(probability), int)
    most[np.argsort(-probability, kind="stable")] = np.arange(1, len(probability) + 1)
    least[np.argsort(probability, kind="stable")] = np.arange(1, len(probability) + 1)
    return most, least


def rank_words(most: int, least: int, n: int, correct: bool) -> str:
    """`rank 3 of 23, among the 20 % most probable of this wrong answer`."""
    kind = "correct" if correct else "wrong"
    few = max(1, int(SHARE * n))
    rank = f"rank {most} of {n}"
    if most <= few:
        return f"{rank}: among the 20 % most probable tokens of this {kind} answer"
    if least <= few:
        return f"{rank}: among the 20 % least probable tokens of this {kind} answer"
    return f"{rank} by probability in this {kind} answer"


def why(
    tokens: pd.DataFrame,
    *,
    correct: bool,
    factors: Sequence[str],
    trained: bool,
    updates: int | None,
    reasons: Reasons | None,
    position: int,
    window: int = 80,
) -> dict[str, object]:
    """The lines of one rollout's tokens around a position, for the component: {rollout, start, tokens: [[line]]}.

    `tokens` are the rollout's rows of `app.views.tokens.token_frame` by position; `reasons` is None where the
    advantages could not be recomputed. Lines of ±`window` positions are made, so that the arrow keys need no answer
    from here.
    """
    start, end = max(0, position - window), min(len(tokens), position + window + 1)
    most, least = ranks(tokens["probability"].to_numpy(dtype=float))
    rows = tokens.iloc[start:end].to_dict("records")
    lines = [
        [
            line.json()
            for line in token_lines(
                rows[t - start], t, rank=rank_words(most[t], least[t], len(tokens), correct), factors=factors,
                trained=trained, updates=updates, reasons=reasons,
            )
        ]
        for t in range(start, end)
    ]  # fmt: skip
    return {"rollout": int(tokens["rollout"].iloc[0]) if len(tokens) else -1, "start": start, "tokens": lines}


def token_lines(
    token: dict,
    t: int,
    *,
    rank: str,
    factors: Sequence[str],
    trained: bool,
    updates: int | None,
    reasons: Reasons | None,
) -> list[Line]:
    """All lines of one token: a row of `token_frame` as a mapping, at position t."""
    advantage, kept = _value(token, "advantage"), bool(token.get("kept"))
    lines = [
        _line("probability", "probability p", token, note=rank),
        _line("entropy", "entropy", token, "nats"),
        _line(
            "base_advantage",
            "base advantage",
            token,
            note=reasons.base(t) if reasons else "",
            kind="start",
            signed=True,
        ),
    ]
    for factor in factors:
        words = reasons.factors.get(factor) if reasons else None
        value = _value(token, f"factor_{factor}")
        shown = "not recorded" if value is None else f"× {number(value)}"
        kind = "missing" if value is None else ""
        lines.append(Line(f"factor_{factor}", visible(factor), shown, value, words(t) if words else "", kind))
    lines.append(_advantage(advantage, trained, kept))
    lines.append(
        _line("push", "push A(1 − p)", token, note="what moves its own logit: small where p is near 1", signed=True)
    )
    lines += _loss(token, t, trained, kept, reasons)
    if _value(token, "penalty") is not None:
        lines.append(_penalty(token, reasons.penalty(t) if reasons and reasons.penalty else ""))
    if _value(token, "tis") is not None:
        lines.append(_correction(token))
    lines.append(_ratio(token, trained, updates))
    lines.append(_change(token, advantage, trained and kept, trained))
    if _value(token, "entropy_change") is not None:
        note = "of the choice at this place"
        lines.append(_line("entropy_change", "update: Δ entropy", token, "nats", note=note, signed=True))
    if _value(token, "kl") is not None:
        lines.append(_line("kl", "KL to base", token, "nats", note="k3 estimate at this token"))
    return lines


def _advantage(advantage: float | None, trained: bool, kept: bool) -> Line:
    if advantage is None:
        return Line("advantage", "= advantage", "not recorded", kind="total missing")
    note = {1: "reinforced", -1: "suppressed", 0: "neither reinforced nor suppressed"}[int(np.sign(advantage))]
    if not trained:
        note = "what the method would give: probes are not trained"
    elif not kept:
        note = "dropped: not in the loss"
    kind = {1: "total reinforced", -1: "total suppressed", 0: "total"}[int(np.sign(advantage))]
    return Line("advantage", "= advantage", number(advantage, signed=True), advantage, note, kind)


def _loss(token: dict, t: int, trained: bool, kept: bool, reasons: Reasons | None) -> list[Line]:
    """What the token adds to the loss: its term, its KL where the loss has one, and the weight of both."""
    value = _value(token, "loss_weight")
    if value is None:
        note = "not recorded in this run" if trained else "a probe has no loss"
        return [Line("loss_weight", "loss weight", "not recorded" if trained else "not trained", None, note, "missing")]
    if not kept:
        return [Line("loss_weight", "× loss weight", number(value), value, "dropped tokens weigh nothing")]
    if reasons is None or reasons.term is None or reasons.kl is None or reasons.weighing is None:
        note = "what the loss's averaging multiplies its term by"
        return [Line("loss_weight", "× loss weight", number(value), value, note)]
    term, kl, tis = reasons.term(t), reasons.kl(t), _value(token, "tis")
    parts = [term.value if tis is None or term.value is None else tis * term.value, kl.value if kl else 0.0]
    if None in parts or (tis is not None and _value(token, "penalty")):  # the correction leaves the penalty alone
        weighing = reasons.weighing(t, None)
    else:
        weighing = reasons.weighing(t, sum(parts))
    lines = [_term("loss_term", "loss term", term, number(term.value, signed=True), kind="start")]
    if kl is not None:
        lines.append(_term("kl_term", "+ KL term", kl, number(kl.value, signed=True)))
    return [*lines, _term("loss_weight", "× loss weight", weighing, number(value), value)]


def _term(id: str, label: str, term: Term, value: str, raw: float | None = None, kind: str = "") -> Line:
    note = "; ".join(filter(None, [" = ".join(filter(None, [term.formula, term.numbers])), term.words]))
    return Line(id, label, value, term.value if raw is None else raw, note, kind)


def _penalty(token: dict, words: str) -> Line:
    """What the loss adds on this token beside its advantage's term."""
    value = _value(token, "penalty")
    return Line("penalty", "+ penalty", f"{number(value)} × distance" if value else "none", value, words)


def _correction(token: dict) -> Line:
    """The weight between sampler and trainer, with the two probabilities it comes from."""
    value, sampler, trainer = (_value(token, name) for name in ("tis", "sampler_logprob", "trainer_logprob"))
    note = "multiplies its policy term"
    if sampler is not None and trainer is not None:
        note = f"p {number(float(np.exp(trainer)))} in the trainer / {number(float(np.exp(sampler)))} in the sampler"
        if trainer - sampler > np.log(value) + UNMOVED:
            note += ", cut at the cap"
    return Line("tis", "sampler correction", f"× {number(value)}", value, note)


def _ratio(token: dict, trained: bool, updates: int | None) -> Line:
    value = _value(token, "ratio")
    if value is None:
        if trained and not _value(token, "advantage"):
            return Line("ratio", "ratio", "none", None, "advantage 0 needs no gradient pass", "missing")
        shown = "not recorded" if trained else "not trained"
        return Line("ratio", "ratio", shown, None, "" if trained else "a probe has no gradient pass", "missing")
    if updates == 1:
        note = "one update a step: nothing can clip"
    elif token.get("clipped") is True or token.get("clipped") == 1:
        note = "clipped: no gradient in its last pass"
    else:
        note = "not clipped in its last pass"
    return Line("ratio", "ratio", number(value), value, note)


def _change(token: dict, advantage: float | None, pushed: bool, trained: bool) -> Line:
    change, before, after = _value(token, "change"), _value(token, "trainer_logprob"), _value(token, "after_logprob")
    if change is None:
        return Line(
            "change", "Δ log p", "not recorded", None, "log-probs after the update (record.after_update)", "missing"
        )
    moved = f"p {number(float(np.exp(before)))} → {number(float(np.exp(after)))}"
    if not trained:
        note = f"{moved}: by the training prompts alone, this probe was not trained"
    elif abs(change) < UNMOVED:
        note = f"{moved}: the update did not move it"
    elif not pushed or not advantage:
        note = f"{moved}: without a push of its own, by what it shares with other tokens"
    elif np.sign(change) == np.sign(advantage):
        note = f"✓ {moved}: as its advantage pushed"
    else:
        note = f"✗ {moved}: against its advantage, other tokens pulled harder"
    return Line("change", "update: Δ log p", number(change, "nats", signed=True), change, note, "start")


def _line(
    name: str, label: str, token: dict, unit: str = "", note: str = "", kind: str = "", signed: bool = False
) -> Line:
    value = _value(token, name)
    if value is None:
        return Line(name, label, "not recorded", None, "", f"{kind} missing".strip())
    return Line(name, label, number(value, unit, signed=signed), value, note, kind)


def _value(token: dict, name: str) -> float | None:
    value = token.get(name)
    return None if value is None or not np.isfinite(value) else float(value)
