"""`compute`: a method on a batch, with the trace of where every advantage came from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from core.advantage.adora import classify
from core.advantage.checks import checked
from core.advantage.groups import group_stats
from core.advantage.polarity import sign_of
from core.advantage.registry import BASES, WEIGHTS
from core.advantage.rules import SELECTED, State
from core.advantage.types import Batch, Classes, Factor, Method, Trace


def compute(method: Method, batch: Batch, polarity_by: str = "correct") -> Trace:
    """Base rule, then each weight in order. Pure: the same batch gives the same trace on any machine.

    `polarity_by`: "correct", or "sign" of the base advantage. Raises AdvantageError, before anything is computed, where
    the batch is malformed or lacks what the method needs.
    """
    batch = checked(batch, method.needs, method.label)
    mask = batch.mask
    base = BASES[method.base.name].rule(batch, method.base.params)
    polarity = sign_of(base.values, mask, batch.correct, polarity_by)
    advantage = np.where(mask, base.values if base.values.ndim == 2 else base.values[:, None], 0.0)
    kept = mask.copy()

    selections = [_signal(batch)] if method.dynamic_sampling else []
    factors = []
    for rule in method.weights:
        weight = WEIGHTS[rule.name]
        outcome = weight.rule(State(batch, base.values, polarity, advantage), rule.params)
        factor = Factor(weight.name, weight.per, outcome.values, outcome.reason, outcome.explain)
        if weight.selects:
            selections.append(factor)
            continue
        advantage = advantage * factor.spread(batch)
        factors.append(factor)
    if selections:
        selected = _merged(selections, batch)
        factors.insert(0, selected)
        chosen = selected.spread(batch) > 0
        kept &= chosen
        advantage = np.where(chosen, advantage, 0.0)
    return Trace(
        method=method,
        base=base.values,
        base_reason=base.reason,
        explain_base=base.explain,
        factors=factors,
        advantage=np.where(mask, advantage, 0.0) + 0.0,  # no negative zeros
        kept=kept,
        polarity=polarity,
        classes=_classes(method, batch),
    )


def _signal(batch: Batch) -> Factor:
    """Dynamic sampling: groups of equal rewards are dropped (and refilled by the training loop)."""
    stats = group_stats(batch.group, batch.reward)
    dropped = stats.equal

    def explain(i: int, t: int) -> str:
        g = stats.index[i]
        return "dropped: all rewards of its group are equal" if dropped[g] else "kept: the rewards of its group differ"

    reason = f"groups of equal rewards are dropped: {int(dropped.sum())} of {len(dropped)}"
    return Factor(SELECTED, "group", (~dropped).astype(float), reason, explain)


def _merged(selections: list[Factor], batch: Batch) -> Factor:
    """One factor from all selections: a token stays where each of them keeps it."""
    per_token = any(factor.per == "token" for factor in selections)
    parts = [factor.spread(batch) for factor in selections]
    parts = parts if per_token else [part[:, 0] for part in parts]
    values = np.prod(parts, axis=0)

    def explain(i: int, t: int) -> str:
        place = (i, t) if per_token else i
        told = [factor.explain(i, t) for factor, part in zip(selections, parts, strict=True) if part[place] == 0]
        return "; ".join(told or [factor.explain(i, t) for factor in selections])

    reason = "; ".join(factor.reason for factor in selections)
    return Factor(SELECTED, "token" if per_token else "rollout", values, reason, explain)


def _classes(method: Method, batch: Batch) -> Classes:
    """The classes of the method's own prompt weight, or the paper's where it has none. Weights of several multiply."""
    found = [WEIGHTS[rule.name].classify(batch, rule.params) for rule in method.weights if WEIGHTS[rule.name].classify]
    if not found:
        return classify(batch)
    return replace(found[0], weight=np.prod([classes.weight for classes in found], axis=0))
