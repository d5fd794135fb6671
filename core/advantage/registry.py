"""Every rule by name: `BASES` give the first advantage, `WEIGHTS` multiply it.

To add a method:
1. Write one small module in `methods/`, with a function that returns an `Outcome`: values, a sentence, and
   `explain(i, t)`. `methods/polarity.py` and `methods/bases.py` are the shortest to start from.
   - a base rule: `rule(batch, params)`, values (N,) or (N, T) (see `bases.py`);
   - a weight: `rule(state, params)`, values (N,), (P,) or (N, T) as its `per` says: "rollout" (`polarity.py`), "group"
     (`adora.py`) or "token" (`a3po.py`). It sees the product so far as `state.advantage`, so an additive rule is the
     factor (A + b) / A, which leaves an advantage of 0 as it is: what must reach groups without a signal is a base.
   - a rule that drops tokens returns 0 and 1 and sets `selects` (see `selection.py`), one over the whole step ranks
     with `top_of_batch`, one that looks at finished advantages sets `last`, and one that adds a term to the loss sets
     `penalty` (see `covariance.py`). An objective belongs to `Loss`.
   State the formula, its source and what it assumes in the docstring; give every number a `Param` with its source.
   Handle the group of equal rewards, the group of one, and T = 1.
2. Make it a `BaseRule` or a `Weight`, a constant of the module, with its formula in one line. It is found from there.
   Its name is the factor's id (`[a-z0-9_]+`), so no two rules share one. Every weight gets the parameters of
   `schedules.py`, and the mass-matched control works on every composition.
3. Add a `Recipe` to `recipes.py`. Configs, the command line, the pages and the store find it from there. Its source
   goes into README's table, and a colour of its own into `app/palette.py` (without one it gets one from its name).
4. Add its numbers to `tests/core/advantage/`. `test_trace.py` and `test_compose.py` go over all recipes by themselves.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from types import ModuleType

from core.advantage import methods
from core.advantage.rules import BaseRule, Weight
from core.advantage.schedules import scheduled
from core.advantage.types import Method, Rule


def discover(package: ModuleType) -> dict[str, BaseRule | Weight]:
    """The rules that the modules of a package define, by name. Raises ValueError where two have one name."""
    found: dict[str, BaseRule | Weight] = {}
    for module in sorted(info.name for info in iter_modules(package.__path__)):
        for value in vars(import_module(f"{package.__name__}.{module}")).values():
            if not isinstance(value, BaseRule | Weight):
                continue
            if found.setdefault(value.name, value) is not value:
                raise ValueError(f"{package.__name__}.{module} has a rule {value.name!r}, and so has another module")
    return found


_RULES = discover(methods)
BASES = {name: rule for name, rule in _RULES.items() if isinstance(rule, BaseRule)}
WEIGHTS = {name: scheduled(rule) for name, rule in _RULES.items() if isinstance(rule, Weight)}


def penalised(method: Method) -> bool:
    """Whether the method adds a penalty to the loss of some tokens."""
    return any(WEIGHTS[rule.name].penalty for rule in method.weights)


def selects(method: Method) -> bool:
    """Whether the method itself leaves tokens, answers or groups out of the loss."""
    return method.dynamic_sampling or any(WEIGHTS[rule.name].selects for rule in method.weights)


def turn(rule: Rule) -> int:
    """When a weight is computed: first which rollouts take part, last which tokens, then what reads the outcome."""
    weight = WEIGHTS[rule.name]
    if weight.selects:
        return 2 if weight.per == "token" else 0
    return 3 if weight.last else 1
