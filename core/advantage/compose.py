"""`build`: a recipe's name and what the user changed about it, made into a `Method`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from typing import Any, get_args, get_type_hints

from core.advantage.recipes import RECIPES, Recipe, bases
from core.advantage.registry import BASES, WEIGHTS, turn
from core.advantage.rules import MASS_MATCHED, SELECTED, Param
from core.advantage.types import AdvantageError, Loss, Method, Per, Rule
from core.advantage.words import listed, nearest, num

_LOSS_TYPES = get_type_hints(Loss)
_LOSS_RANGES = {"clip_low": (0, 1), "clip_high": (0, 1e6), "dual_clip": (1, 1e6), "kl": (0, 1e6)}
_LOSS_READS = {
    "clip": {"clip_low", "clip_high", "dual_clip"},
    "gspo": {"clip_low", "clip_high", "dual_clip"},
    "cispo": {"clip_low", "clip_high"},
}
"""Which bounds an objective reads; the others read none."""
CLIPPING = tuple(_LOSS_READS)
"""The objectives that clip bounds matter to."""


def build(
    name: str,
    base: str | None = None,
    also: Iterable[str] = (),
    params: Mapping[str, Any] | None = None,
    loss: Mapping[str, Any] | None = None,
    dynamic_sampling: bool | None = None,
    mass_matched: bool = False,
) -> Method:
    """The composition that a recipe names.

    `base`: another bare recipe under its weights, whose loss and dynamic sampling come with it. `also`: recipes whose
    weights multiply in after its own. `params`: changed parameters, `rho_positive` or, where two rules share a name,
    `a3po.ratio` (or nested, `{"a3po": {"ratio": 0.3}}`). `loss`: changed fields of `Loss`. `mass_matched`: rescaled to
    the base rule's mass. Raises AdvantageError, one sentence, for anything that can't be, or that makes no sense.
    """
    recipe = _recipe(name)
    stand = _base(recipe, base)
    extra = [_addition(other) for other in ([also] if isinstance(also, str) else also)]
    weighing = [recipe, *extra] if recipe.weights else extra
    weights = [rule for part in weighing for rule in part.weights]
    for position, rule in enumerate(weights):
        if rule.name in {earlier.name for earlier in weights[:position]}:
            both = [part.label for part in weighing if any(weight.name == rule.name for weight in part.weights)]
            told = f"{both[0]} is named twice" if len(set(both)) == 1 else f"{listed(both)} both bring {rule.name}"
            raise AdvantageError(f"{told}: a weight can multiply in once")

    settable = _settable(dict.fromkeys([*weighing, recipe, stand]), {rule.name for rule in weights}, stand.base.name)
    given = _given(flat_params(params or {}), settable)
    filled_base = _filled(BASES[stand.base.name].params, stand.base, settable, given)
    filled = [_filled(WEIGHTS[rule.name].params, rule, settable, given) for rule in weights]
    for rule in filled:
        WEIGHTS[rule.name].check({k.partition(".")[2]: v for k, v in given.items() if k.startswith(rule.name + ".")})
    needs = (
        BASES[filled_base.name]
        .needs(filled_base.params)
        .union(*(WEIGHTS[rule.name].needs(rule.params) for rule in filled))
    )
    final = _loss(_brought(stand, weighing, loss or {}), loss or {})
    _sensible(filled, final)
    return Method(
        name=name,
        label=_label(recipe, stand, extra) + (", mass-matched" if mass_matched else ""),
        base=filled_base,
        weights=tuple(filled),
        loss=final,
        dynamic_sampling=stand.dynamic_sampling if dynamic_sampling is None else bool(dynamic_sampling),
        mass_matched=bool(mass_matched),
        needs=needs,
    )


def flat_params(params: Mapping[str, Any]) -> dict[str, Any]:
    """`{"a3po": {"ratio": 0.3}}`, as dotted settings arrive, becomes `{"a3po.ratio": 0.3}`; the last one wins."""
    found: dict[str, Any] = {}
    for key, value in params.items():
        nested = isinstance(value, Mapping)
        found |= {f"{key}.{name}": inner for name, inner in value.items()} if nested else {key: value}
    return found


def factor_columns(method: Method) -> dict[str, Per]:
    """The ids of the factors that `compute` gives for this method, and what each is per. The same at every step."""
    columns: dict[str, Per] = {}
    selecting = [WEIGHTS[rule.name].per for rule in method.weights if WEIGHTS[rule.name].selects]
    if selecting or method.dynamic_sampling:
        columns[SELECTED] = "token" if "token" in selecting else "rollout"
    weights = [WEIGHTS[rule.name] for rule in sorted(method.weights, key=turn)]
    columns |= {weight.name: weight.per for weight in weights if not weight.selects and not weight.penalty}
    return columns | ({MASS_MATCHED: "rollout"} if method.mass_matched else {})


def _recipe(name: Any) -> Recipe:
    if not isinstance(name, str) or name not in RECIPES:
        raise AdvantageError(f"there is no method {name!r}{nearest(name, RECIPES)}")
    return RECIPES[name]


def _base(recipe: Recipe, base: str | None) -> Recipe:
    if base is None or base == recipe.name:
        return recipe if not recipe.weights else RECIPES[recipe.on] if base is None else _recipe_is_no_base(base)
    if base not in RECIPES:
        raise AdvantageError(f"there is no base rule {base!r}{nearest(base, bases())}")
    if RECIPES[base].weights:
        return _recipe_is_no_base(base)
    if not recipe.weights:
        raise AdvantageError(f"{recipe.name} is itself a base rule: name {base} as the method instead")
    return RECIPES[base]


def _recipe_is_no_base(base: str) -> Recipe:
    raise AdvantageError(f"{base} is no base rule but weights on one; as a base choose {listed(bases(), 'or')}")


def _addition(name: Any) -> Recipe:
    recipe = _recipe(name)
    if not recipe.weights:
        raise AdvantageError(f"{name} brings no weights that could multiply in: name it as the base instead")
    return recipe


def _settable(parts: Iterable[Recipe], weights: set[str], base: str) -> dict[str, tuple[Param, set[str]]]:
    """Parameters by target "rule.param", with every full name that a user may write for it. The first recipe wins."""
    found: dict[str, tuple[Param, set[str]]] = {}
    for recipe in parts:
        for param in recipe.params:
            rule = param.target.partition(".")[0]
            if rule in weights or rule == base:
                kept = found.setdefault(param.target, (param, set()))[0]
                found[param.target][1].update({f"{rule}.{kept.name}", f"{recipe.name}.{kept.name}"})
    return found


def _given(params: Mapping[str, Any], settable: Mapping[str, tuple[Param, set[str]]]) -> dict[str, Any]:
    """The user's values by target, checked."""
    given: dict[str, Any] = {}
    for key, value in params.items():
        targets = [t for t, (param, full) in settable.items() if key == param.name or key in full]
        if not targets:
            names = dict.fromkeys(param.name for param, _ in settable.values())
            raise AdvantageError(f"there is no parameter {key!r} in this method{nearest(key, names)}")
        if len(targets) > 1:
            raise AdvantageError(f"{key} could mean {listed(targets, 'or')}: write it in full")
        param = settable[targets[0]][0]
        if targets[0] in given:
            raise AdvantageError(f"{targets[0]} is set twice")
        given[targets[0]] = param.check(value, key)
    return given


def _filled(
    params: Iterable[Param], rule: Rule, settable: Mapping[str, tuple[Param, set[str]]], given: Mapping[str, Any]
) -> Rule:
    """The rule with a value for each of its parameters: the user's, or fixed by the recipe, or the default."""
    values = dict(rule.params)
    for param in params:
        target = f"{rule.name}.{param.name}"
        if target in settable:
            values[param.name] = given.get(target, settable[target][0].default)
    return Rule(rule.name, values)


def _label(recipe: Recipe, stand: Recipe, extra: list[Recipe]) -> str:
    """`GRPO`, `PSR`, `A3PO on DAPO`, `A3PO × ADORA amplify on DAPO`: a recipe's usual base is only named if DAPO."""
    weights = " × ".join(part.label for part in ([recipe, *extra] if recipe.weights else extra))
    if not weights:
        return stand.label
    return weights if stand.name == recipe.on != "dapo" else f"{weights} on {stand.label}"


def _brought(stand: Recipe, weighing: Iterable[Recipe], given: Mapping[str, Any]) -> Loss:
    """The base's loss, with what the weights bring along: an objective and clip bounds in the place of the usual ones
    (a base with an objective of its own keeps its bounds), an averaging where no other base was chosen."""
    changes: dict[str, Any] = {}
    bringing: dict[str, str] = {}
    for recipe in weighing:
        if "objective" in recipe.loss_changes and stand.loss.objective != "clip":
            raise AdvantageError(
                f"{recipe.label} brings the objective {recipe.loss_changes['objective']}, and {stand.label} is the "
                f"objective {stand.loss.objective}: a loss has one, so choose another base"
            )
        for name, value in recipe.loss_changes.items():
            if name == "aggregation" and stand.name != recipe.on:
                continue
            if name.startswith("clip_") and stand.loss.objective != "clip":
                continue
            if changes.get(name, value) != value and name not in given:
                both = f"{bringing[name]} brings {name} {num(changes[name])} and {recipe.label} {num(value)}"
                raise AdvantageError(f"{both}: set loss.{name}")
            changes[name], bringing[name] = value, recipe.label
    return replace(stand.loss, **changes)


def _sensible(weights: Iterable[Rule], loss: Loss) -> None:
    """Refuses compositions that could be computed and would mean nothing."""
    rules = [WEIGHTS[rule.name] for rule in weights]
    penalties = [weight.name for weight in rules if weight.penalty]
    if len(penalties) > 1:
        raise AdvantageError(f"{listed(penalties)} each put a penalty on tokens of their own choice: name one of them")
    if loss.objective != "gspo":
        return
    for weight in rules:
        if weight.selects and weight.per == "token":
            raise AdvantageError(
                f"{weight.name} trains on single tokens, and the objective gspo has one ratio for a whole response: "
                "choose a base with a ratio for each token, such as dapo"
            )
        if weight.penalty:
            raise AdvantageError(
                f"{weight.name} holds single tokens in place, and the objective gspo moves a response as a whole: "
                "choose a base with a ratio for each token, such as grpo"
            )


def _loss(loss: Loss, changes: Mapping[str, Any]) -> Loss:
    names = [field.name for field in fields(Loss)]
    for key, value in changes.items():
        if key not in names:
            raise AdvantageError(f"the loss has no field {key!r}{nearest(key, names)}")
        choices = [c for c in get_args(_LOSS_TYPES[key]) if isinstance(c, str)]
        if choices and value not in choices:
            raise AdvantageError(f"loss.{key} must be {listed(choices, 'or')}, but is {value!r}")
        if key in _LOSS_RANGES and not (key == "dual_clip" and value is None):
            low, high = _LOSS_RANGES[key]
            Param(key, 0.0, "", low=low, high=high).check(value, f"loss.{key}")
    changed = replace(loss, **changes)
    for key in ("clip_low", "clip_high", "dual_clip"):
        if changes.get(key) is not None and key not in _LOSS_READS.get(changed.objective, ()):
            raise AdvantageError(
                f"loss.{key} is set, but the objective {changed.objective} does not read it: leave it out"
            )
    return changed
