"""The ledger of one token: the method's formulas, the same with this token's numbers, and the product line by line."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from core.advantage.registry import BASES, WEIGHTS
from core.advantage.rules import MASS_MATCHED, SELECTED
from core.advantage.types import Batch, Trace
from core.advantage.words import num


@dataclass(frozen=True)
class Line:
    """One line of the ledger. `numbers` is the formula with this token's numbers, in words; `running` the product of
    all values so far, None where the line does not multiply (a penalty)."""

    id: str
    kind: Literal["base", "factor", "total", "penalty"]
    label: str
    formula: str
    numbers: str
    value: float
    running: float | None


def explain(trace: Trace, batch: Batch, i: int, t: int) -> list[Line]:
    """Why token t of rollout i (rows of the batch) has its advantage: base, every factor, the total, the penalty.

    `trace` is what `compute` gave for this batch. Raises IndexError for a token that the batch does not have.
    """
    if not (0 <= i < len(batch.group) and 0 <= t < batch.length[i]):
        raise IndexError(f"the batch has no token {t} of rollout {i}")
    rule = BASES[trace.method.base.name]
    running = float(trace.base[i, t] if trace.base.ndim == 2 else trace.base[i])
    lines = [Line(rule.name, "base", "base advantage", rule.formula, trace.explain_base(i, t), running, running)]
    for factor in trace.factors:
        value = float(factor.spread(batch)[i, t])
        running *= value
        words = factor.explain(i, t)
        lines.append(Line(factor.id, "factor", factor.id, _formula(trace, factor.id), words, value, running + 0.0))
    product = " × ".join(num(line.value) for line in lines)
    advantage = float(trace.advantage[i, t])
    numbers = f"{product} = {num(advantage)}" if len(lines) > 1 else "nothing multiplies it"
    lines.append(Line("advantage", "total", "advantage", "base × factors", numbers, advantage, advantage))
    if trace.penalty is not None:
        own = trace.penalty
        value = float(own.coefficient[i, t])
        lines.append(Line(own.id, "penalty", own.id, WEIGHTS[own.id].formula, own.explain(i, t), value, None))
    return lines


def _formula(trace: Trace, factor: str) -> str:
    if factor == MASS_MATCHED:
        return "× (mass of the base rule) / (mass of the weighted batch)"
    if factor != SELECTED:
        return WEIGHTS[factor].formula
    rules = [WEIGHTS[rule.name].formula for rule in trace.method.weights if WEIGHTS[rule.name].selects]
    signal = ["keep the group if its rewards differ"] if trace.method.dynamic_sampling else []
    return "; ".join([*signal, *rules])
