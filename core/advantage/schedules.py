"""How a weight fades over a run: parameters that every weight has, beside its own.

`scheduled(weight)` is the weight with them. What fades is the factor's distance from 1 (a penalty's coefficient):

    constant                                            never
    linear   x max(0, 1 - step / N)                     gone at step N
    decay    toward 1 by alpha a step                   as A3PO's rho: max(rho0 - alpha step, 1)
    until    as it is while step < N, then gone         what ADORA's authors suggest: ADORA first, then plain training

N is `schedule_steps`, or `schedule_fraction` of the run. A selection can only end: constant or until.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from core.advantage.rules import Outcome, Param, Params, State, Weight
from core.advantage.types import AdvantageError, Batch
from core.advantage.words import num

SCHEDULES = ("constant", "linear", "decay", "until")


def scheduled(weight: Weight) -> Weight:
    """The same weight, fading as its parameters `schedule`, `schedule_steps`, … say."""

    def rule(state: State, params: Params) -> Outcome:
        outcome = weight.rule(state, params)
        return outcome if params["schedule"] == "constant" else _faded(weight, outcome, params, state.batch)

    def needs(params: Params) -> frozenset[str]:
        length = {"total_steps"} if params["schedule_fraction"] is not None else set()
        return weight.needs(params) | length

    def check(given: Params) -> None:
        weight.check(given)
        _check(weight, given)

    return replace(weight, rule=rule, params=weight.params + _params(weight), needs=needs, check=check)


def _params(weight: Weight) -> tuple[Param, ...]:
    choices = ("constant", "until") if weight.selects else SCHEDULES
    params = (
        Param("schedule", "constant", "how the weight fades over the run [I]", kind="choice", choices=choices),
        Param("schedule_steps", None, "the step at which it is gone [I]", kind="int", low=1, high=1_000_000),
        Param("schedule_fraction", None, "instead: the fraction of the run after which it is gone [I]",
              low=0.01, high=1),
        Param("schedule_alpha", None, "for decay: what the factor moves toward 1 a step, as A3PO's ρ does [I]",
              low=0, high=10),
    )  # fmt: skip
    params = params[:3] if weight.selects else params
    return tuple(replace(param, group="schedule") for param in params)


def _check(weight: Weight, given: Mapping[str, Any]) -> None:
    """Exactly what the schedule needs is given. `given` are the parameters that the user or the recipe set."""
    kind = given.get("schedule", "constant")
    wanted = {"constant": (), "decay": ("schedule_alpha",)}.get(kind, ("schedule_steps", "schedule_fraction"))
    here = [name for name in ("schedule_steps", "schedule_fraction", "schedule_alpha") if given.get(name) is not None]
    if extra := [name for name in here if name not in wanted]:
        hint = ": linear fades over a number of steps or a fraction of the run" if kind == "decay" else ""
        raise AdvantageError(f"{weight.name}.{extra[0]} says nothing where {weight.name}.schedule is {kind}{hint}")
    if wanted and len(here) != 1:
        choice = " or ".join(f"{weight.name}.{name}" for name in wanted)
        raise AdvantageError(f"{weight.name}.schedule is {kind}: give {choice}" + (", not both" if here else ""))


def _faded(weight: Weight, outcome: Outcome, params: Params, batch: Batch) -> Outcome:
    rest = 0.0 if weight.penalty else 1.0
    distance, step = outcome.values - rest, batch.step
    if params["schedule"] == "decay":
        lost = params["schedule_alpha"] * step
        left = np.sign(distance) * np.maximum(np.abs(distance) - lost, 0.0)
        words = f"fading by {num(params['schedule_alpha'])} a step, at step {step}"
    else:
        end = _end(params, batch)
        share = float(step < end) if params["schedule"] == "until" else max(0.0, 1.0 - step / end)
        left = distance * share
        gone = f"over since step {end}, now step {step}"
        still = f"until step {end}, now step {step}"
        words = (
            gone if share == 0 else still if share == 1 else f"{num(share)} of it left at step {step}, gone at {end}"
        )

    def explain(i: int, t: int) -> str:
        return f"{outcome.explain(i, t)}; {words}"

    return Outcome(rest + left, f"{outcome.reason}; {words}", explain)


def _end(params: Params, batch: Batch) -> int:
    """N, in steps, at least 1."""
    if params["schedule_steps"] is not None:
        return int(params["schedule_steps"])
    return max(1, int(np.ceil(params["schedule_fraction"] * batch.total_steps)))
