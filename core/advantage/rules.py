"""What a rule is made of: its parameters, what it sees, what it returns. Every rule of the registry is one of these."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from core.advantage.types import AdvantageError, Batch, Classes, Per
from core.advantage.words import listed, num

Params = Mapping[str, Any]
NOTHING: frozenset[str] = frozenset()
SELECTED = "selected"
"""The id of the one factor that all selections of a method (and dropped groups) multiply into."""
MASS_MATCHED = "mass_matched"
"""The id of the factor that gives the batch the base rule's mass, where the method asks for it."""


@dataclass(frozen=True)
class Param:
    """A named number or choice of a rule, with the range that forms and checks use.

    `doc` ends with where the default comes from: [P] the paper, [C] its authors' code, [S] second-hand, [I] inferred.
    A default of None means "not used unless given". `target` ("rule.param") is set where a recipe renames or pre-sets
    a parameter of one of its rules. `group` is "schedule" for what every weight has, so that forms can fold it away.
    """

    name: str
    default: float | int | str | None
    doc: str
    kind: Literal["float", "int", "choice"] = "float"
    low: float | None = None
    high: float | None = None
    choices: tuple[str, ...] = ()
    target: str = ""
    group: Literal["", "schedule"] = ""

    def check(self, value: Any, name: str | None = None) -> float | int | str | None:
        """The value as the rule wants it; `name` is what the user called it. Raises AdvantageError with the range."""
        name = name or self.name
        if value is None and self.default is None:
            return None
        if self.kind == "choice":
            if value not in self.choices:
                raise AdvantageError(f"{name} must be {listed(self.choices, 'or')}, but is {value!r}")
            return value
        if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
            raise AdvantageError(f"{name} must be a number, but is {value!r}")
        if not -sys.float_info.max <= value <= sys.float_info.max:
            shown = "too large" if isinstance(value, int) else value
            raise AdvantageError(f"{name} must be a finite number, but is {shown}")
        if self.kind == "int" and value != int(value):
            raise AdvantageError(f"{name} must be a whole number, but is {num(value)}")
        if (self.low is not None and value < self.low) or (self.high is not None and value > self.high):
            raise AdvantageError(f"{name} must be {self.range}, but is {num(value)}")
        return int(value) if self.kind == "int" else float(value)

    @property
    def range(self) -> str:
        """The range in words: `between 0 and 1`."""
        if self.low is not None and self.high is not None:
            return f"between {num(self.low)} and {num(self.high)}"
        return f"at least {num(self.low)}" if self.low is not None else f"at most {num(self.high)}"


@dataclass(frozen=True)
class State:
    """What a weight sees. `advantage` is the product so far, `kept` what no selection has dropped so far."""

    batch: Batch
    base: np.ndarray  # (N,) or (N, T)
    polarity: np.ndarray  # (N,) +1 or -1
    advantage: np.ndarray  # (N, T), 0 on padding
    kept: np.ndarray  # (N, T) bool, False on padding


@dataclass(frozen=True)
class Outcome:
    """What a rule returns: its values and, in words, why.

    A base rule gives (N,) or (N, T) advantages; a weight gives values in the shape its `per` says. `reason` is one
    sentence about this step with its numbers; `explain(i, t)` the same for one token, without the value itself.
    """

    values: np.ndarray
    reason: str
    explain: Callable[[int, int], str]


@dataclass(frozen=True)
class BaseRule:
    """The first advantage of a rollout (or of a token), before any weight. See `methods/bases.py` for the pattern.

    `formula` is the rule in one line of plain text. `compares` says that a rollout's advantage comes from the others
    of its group, so that a group of one has none; `least_group` is the smallest group that the rule is defined for.
    """

    name: str
    rule: Callable[[Batch, Params], Outcome]
    formula: str
    params: tuple[Param, ...] = ()
    needs: Callable[[Params], frozenset[str]] = lambda params: NOTHING
    compares: bool = True
    least_group: Callable[[Params], int] = lambda params: 1


@dataclass(frozen=True)
class Weight:
    """A factor on the advantage. See `methods/polarity.py` (a rollout), `adora.py` (a group), `a3po.py` (a token).

    `formula` is the rule in one line of plain text. `needs` names the optional Batch fields the rule reads with these
    parameters. `selects` marks 0/1 rules: their tokens leave the loss and its denominators. `penalty` marks rules whose
    values are no factor but the coefficients of a `Penalty` of that form. `last` marks rules that look at the finished
    advantage: they come after all others, wherever the user names them. `classify` is for weights that class prompts.
    `check` sees the parameters that the user gave and raises AdvantageError where they exclude each other.
    """

    name: str
    per: Per
    rule: Callable[[State, Params], Outcome]
    formula: str
    params: tuple[Param, ...] = ()
    needs: Callable[[Params], frozenset[str]] = lambda params: NOTHING
    selects: bool = False
    penalty: Literal["", "absolute", "proxy"] = ""
    last: bool = False
    classify: Callable[[Batch, Params], Classes] | None = None
    check: Callable[[Params], None] = lambda given: None
