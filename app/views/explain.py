"""Explain: why a token has its advantage under each of several methods, line by line, and what its loss makes of it.

Each line has the formula, the same with this token's numbers, and words. The base, the factors, their product and the
penalty are `core.advantage.explain`'s; the loss term and its weight are added here. Plain data for the view to draw.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from app.views.explain_loss import Term, kl_term, loss_term, loss_weight
from app.words import number
from core.advantage import Batch, Method, explain, recipes
from core.advantage.explain import Line as Told
from core.advantage.registry import WEIGHTS
from core.advantage.rules import MASS_MATCHED, SELECTED
from core.counterfactual import Answer

_EXPRESSION = re.compile(r"(?:min|max|[^A-Za-zρ])+")
"""What a line's words begin with where they fill in the formula: numbers and signs only."""


@dataclass(frozen=True)
class Line:
    """One line of a method's ledger, in the lab's own words. `raw` is the full-precision number, None where there is
    none. Kinds: base, factor, total (with reinforced or suppressed), penalty, term, weight. `idle`: changes nothing.
    """

    id: str
    kind: str
    label: str
    value: str
    raw: float | None
    formula: str
    numbers: str = ""
    words: str = ""
    idle: bool = False


def ledgers(
    answers: Sequence[Answer],
    batch: Batch,
    i: int,
    position: int,
    *,
    row: int,
    ratio: np.ndarray | None = None,
    window: int,
) -> dict[str, Any]:
    """The lines of rollout i's tokens up to `window` from a position, for each method: the component's `explain`.

    {row, start, tokens: [[[line of a method] of each method] of each position from start on]}. Answers, batch and i are
    of the whole batch, `row` is i's row of the picture. `ratio` (N, T): stored importance ratios, NaN where there is
    none; None: the update has not begun, every ratio is 1.
    """
    length = int(batch.length[i])
    start, end = max(0, position - window), min(length, position + window + 1)
    return {
        "row": row,
        "start": start,
        "tokens": [
            [[vars(line) for line in lines(answer, batch, i, t, ratio)] for answer in answers]
            for t in range(start, end)
        ],
    }


def lines(answer: Answer, batch: Batch, i: int, t: int, ratio: np.ndarray | None = None) -> list[Line]:
    """One method's ledger of token t of rollout i: base, factors, advantage, penalty, loss term, loss weight."""
    told = explain(answer.trace, batch, i, t)
    product = " × ".join(_label(line, answer.method) for line in told if line.kind in ("base", "factor"))
    found = [_line(line, answer.method, product) for line in told]
    return [*found, *_loss(answer, batch, i, t, ratio)]


def _line(told: Told, method: Method, product: str) -> Line:
    numbers, words = _split(told.numbers)
    formula, value, kind, idle = told.formula, f"× {number(told.value)}", told.kind, False
    if told.kind == "base":
        value = _exactly(told.value)
        numbers = numbers and _equals(numbers, told.value)
    elif told.kind == "factor":
        idle = told.value == 1
        numbers = numbers or _settings(told.id, method)
    elif told.kind == "total":
        formula, value = f"A = {product}", _exactly(told.value)
        kind += {1: " reinforced", -1: " suppressed"}.get(int(np.sign(told.value)), "")
    else:
        idle = told.value == 0
        value = "none" if idle else f"{number(told.value)} × distance"
        numbers = _settings(told.id, method)
    return Line(told.id, kind, _label(told, method), value, told.value, formula, numbers, words, idle)


def _exactly(value: float) -> str:
    """An advantage to 5 digits: conventions that differ in the fourth are what some come here for."""
    return f"{'+' if value > 0 else ''}{value + 0.0:.5g}".replace("-", "−")


def _equals(numbers: str, value: float) -> str:
    """The filled-in formula with its result; its numbers are rounded, and so may the result be."""
    shown = number(value)
    exact = abs(value) < 1000 and float(shown.replace("−", "-")) == float(f"{value:.5g}")
    return numbers if "=" in numbers else f"{numbers} {'=' if exact else '≈'} {shown}"


def _label(told: Told, method: Method) -> str:
    if told.kind == "total":
        return "advantage"
    if told.id == SELECTED:
        return "in the loss"
    if told.id == MASS_MATCHED:
        return "mass-matched"
    known = recipes()
    return known[told.id].label if told.id in known else told.id.replace("_", " ")


def _split(numbers: str) -> tuple[str, str]:
    """(the formula filled in, the words after it) of a line's numbers; either may be empty."""
    head, _, rest = numbers.partition(": ")
    return (head, rest) if _EXPRESSION.fullmatch(head) else ("", numbers)


def _settings(rule: str, method: Method) -> str:
    """The parameters that a factor's formula names: `rho positive 2, alpha 0.005`; a constant schedule is left out."""
    params: Mapping[str, Any] = next((own.params for own in method.weights if own.name == rule), {})
    schedule = {param.name for param in WEIGHTS[rule].params if param.group} if rule in WEIGHTS else set()
    if params.get("schedule") != "constant":
        schedule = set()
    return ", ".join(
        f"{name.replace('_', ' ')} {value if isinstance(value, str) else number(value)}"
        for name, value in params.items()
        if value is not None and name not in schedule
    )


def _loss(answer: Answer, batch: Batch, i: int, t: int, ratio: np.ndarray | None) -> list[Line]:
    """The token's term of the loss, its KL if the loss has one, and what the loss's averaging multiplies both by."""
    term, kl = loss_term(answer, batch, i, t, ratio), kl_term(answer, batch, i, t, ratio)
    parts = [part.value for part in (term, kl) if part is not None]
    weight = loss_weight(answer, batch, i, t, None if None in parts else sum(parts))
    of_weight = _of("loss_weight", "weight", "loss weight", weight, f"× {number(weight.value)}")
    if not weight.value:
        return [of_weight]
    of_term = _of("loss_term", "term", "loss term", term, number(term.value, signed=True))
    of_kl = [_of("kl", "term", "KL to the base model", kl, number(kl.value, signed=True))] if kl is not None else []
    return [of_term, *of_kl, of_weight]


def _of(id: str, kind: str, label: str, term: Term, value: str) -> Line:
    return Line(id, kind, label, value, term.value, term.formula, term.numbers, term.words)
