"""`compute`: a method on a batch, with the trace of where every advantage came from."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from core.advantage.checks import checked
from core.advantage.groups import group_stats
from core.advantage.mass import mass, match
from core.advantage.methods.adora import classify
from core.advantage.methods.polarity import sign_of
from core.advantage.minibatches import minibatches
from core.advantage.registry import BASES, WEIGHTS, turn
from core.advantage.rules import SELECTED, State
from core.advantage.types import Batch, Classes, Factor, Method, Penalty, Trace


def compute(method: Method, batch: Batch, polarity_by: str = "correct") -> Trace:
    """Base rule, then each weight in order. Pure: the same batch gives the same trace on any machine.

    `polarity_by`: "correct", or "sign" of the base advantage. Raises AdvantageError, before anything is computed, where
    the batch is malformed or lacks what the method needs.
    """
    batch = checked(batch, method.needs, method.label)
    mask = batch.mask
    selections = [_signal(batch)] if method.dynamic_sampling else []
    with_signal = kept = mask & (selections[0].spread(batch) > 0) if selections else mask
    batch = replace(batch, dropped=~with_signal.any(axis=1))
    if batch.trained is not None:
        selections.append(_masked(batch))
        with_signal = kept = kept & batch.trained
    minibatch = minibatches(batch.group, batch.counted, batch.minibatches)
    base = BASES[method.base.name].rule(batch, method.base.params)
    started = np.where(mask, base.values if base.values.ndim == 2 else base.values[:, None], 0.0)
    polarity = sign_of(base.values, mask, batch.correct, polarity_by)
    advantage, factors, penalty = started, [], None
    for rule in sorted(method.weights, key=turn):
        weight = WEIGHTS[rule.name]
        seen = np.where(kept, advantage, 0.0) if weight.last else advantage
        outcome = weight.rule(State(batch, base.values, polarity, seen, kept), rule.params)
        if weight.penalty:
            penalty = Penalty(weight.name, weight.penalty, outcome.values, outcome.reason, outcome.explain)
            continue
        factor = Factor(weight.name, weight.per, outcome.values, outcome.reason, outcome.explain)
        if weight.selects:
            selections.append(factor)
            kept = kept & (factor.spread(batch) > 0)
            continue
        advantage = advantage * factor.spread(batch)
        factors.append(factor)
    advantage = np.where(kept, advantage, 0.0)
    if selections:
        factors.insert(0, _merged(selections, batch))
    if method.mass_matched:
        own = mass(advantage, kept, minibatch, batch, method.loss)
        wanted = mass(started, with_signal, minibatch, batch, method.loss)
        factors.append(match(own, wanted, batch))
        advantage = advantage * factors[-1].values[:, None]
    return Trace(
        method=method,
        base=base.values,
        base_reason=base.reason,
        explain_base=base.explain,
        factors=factors,
        advantage=advantage + 0.0,  # no negative zeros
        kept=kept,
        polarity=polarity,
        classes=_classes(method, batch, factors),
        minibatch=minibatch,
        penalty=penalty,
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


def _masked(batch: Batch) -> Factor:
    """Tokens that the trainer's own mask left out: a tool's output, say."""
    trained = batch.trained & batch.mask

    def explain(i: int, t: int) -> str:
        return "kept: part of the trainer's loss" if trained[i, t] else "dropped: no part of the trainer's loss"

    reason = f"the trainer's mask keeps {int(trained.sum())} of {int(batch.mask.sum())} tokens"
    return Factor(SELECTED, "token", trained.astype(float), reason, explain)


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


def _classes(method: Method, batch: Batch, factors: list[Factor]) -> Classes:
    """The classes of the method's own prompt weight, or the paper's where it has none. Weights of several multiply."""
    classing = [rule for rule in method.weights if WEIGHTS[rule.name].classify]
    if not classing:
        return classify(batch)
    given = {factor.id: factor.values for factor in factors}
    found = WEIGHTS[classing[0].name].classify(batch, classing[0].params)
    return replace(found, weight=np.prod([given[rule.name] for rule in classing], axis=0))
