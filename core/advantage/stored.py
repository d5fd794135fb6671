"""A composition as plain data, with every number written out: what a run keeps of the method that trained it.

A config names a recipe; what the recipe stands for may change between versions of the lab. The numbers of a run's own
composition may not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from core.advantage.registry import BASES, WEIGHTS
from core.advantage.rules import BaseRule, Weight
from core.advantage.types import AdvantageError, Loss, Method, Rule
from core.advantage.words import nearest


def method_to_json(method: Method) -> dict[str, Any]:
    """The method as JSON data: rules with all their parameters, the loss, the switches."""
    return {
        "name": method.name,
        "label": method.label,
        "base": {"name": method.base.name, "params": dict(method.base.params)},
        "weights": [{"name": rule.name, "params": dict(rule.params)} for rule in method.weights],
        "loss": asdict(method.loss),
        "dynamic_sampling": method.dynamic_sampling,
        "mass_matched": method.mass_matched,
    }


def method_from_json(data: Mapping[str, Any]) -> Method:
    """The method that `method_to_json` wrote; a parameter that is newer than the data has its default.

    Raises AdvantageError where the data is something else, names a rule that is not here, or a number out of range.
    """
    try:
        base = _rule(data["base"], BASES)
        weights = tuple(_rule(rule, WEIGHTS) for rule in data["weights"])
        loss = Loss(**{field.name: data["loss"][field.name] for field in fields(Loss) if field.name in data["loss"]})
        name, label = str(data["name"]), str(data["label"])
        switches = {name: bool(data[name]) for name in ("dynamic_sampling", "mass_matched")}
    except (KeyError, TypeError, AttributeError) as error:
        raise AdvantageError("a stored method has name, label, base, weights, loss and its two switches") from error
    needs = BASES[base.name].needs(base.params).union(*(WEIGHTS[rule.name].needs(rule.params) for rule in weights))
    return Method(name, label, base, weights, loss, needs=needs, **switches)


def _rule(data: Mapping[str, Any], registry: Mapping[str, BaseRule] | Mapping[str, Weight]) -> Rule:
    name = data["name"]
    if name not in registry:
        raise AdvantageError(f"there is no rule {name!r}{nearest(name, registry)}")
    given = data["params"]
    params = {
        param.name: param.check(given[param.name], f"{name}.{param.name}") if param.name in given else param.default
        for param in registry[name].params
    }
    return Rule(name, params)
