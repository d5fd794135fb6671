"""Widgets for the parameters of a method's rules: each writes its change into the method's `set`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app.inert import inert_markdown
from app.words import number, share
from core.advantage import Param, Recipe, recipes

Write = Callable[[dict[str, Any]], None]
"""Takes the method's whole `set`, changed."""

SCHEDULES = {
    "constant": "constant: all the run",
    "linear": "linear: fades evenly to nothing",
    "decay": "decay: by as much every step",
    "until": "until: in full, then not at all",
}
_ENDS = {
    "linear": {"schedule_steps": None, "schedule_fraction": 1.0},
    "decay": {"schedule_alpha": 0.005},
    "until": {"schedule_steps": None, "schedule_fraction": 0.5},
}
"""What each schedule asks for beside its name, one of them; with the number that a newly chosen one starts from."""
_SAID = {"linear": "Fades to nothing by", "decay": "Fades by", "until": "Until"}


@dataclass(frozen=True)
class Place:
    """A parameter in a composition: the recipe that brings it, and how `set` spells it."""

    recipe: Recipe
    param: Param
    name: str

    @property
    def rule(self) -> str:
        return self.param.target.partition(".")[0]

    @property
    def spellings(self) -> set[str]:
        """Every way in which a config may name it."""
        name = self.param.name
        return {name, f"{self.rule}.{name}", f"{self.recipe.name}.{name}"}

    def value(self, given: Mapping[str, Any]) -> Any:
        """What it is now: as the config says, else the default."""
        return next((given[name] for name in given if name in self.spellings), self.param.default)

    def put(self, given: Mapping[str, Any], value: Any) -> dict[str, Any]:
        """`set` with this value; the default is left out."""
        left = {name: other for name, other in given.items() if name not in self.spellings}
        return left if value == self.param.default else {**left, self.name: value}


def places(recipe: Recipe, base: str, also: Sequence[str]) -> dict[str, list[Place]]:
    """What can be set in a composition, by rule: weights in their order, then the base rule; each parameter once."""
    known = recipes()
    weighing = [recipe, *(known[name] for name in also if name in known)]
    stand = known.get(base or recipe.on, recipe)
    rules = [rule.name for part in weighing for rule in part.weights] + ([stand.base.name] if stand.base else [])
    found: dict[str, tuple[Recipe, Param]] = {}
    for part in [*weighing, stand]:
        for param in part.params:
            if param.target.partition(".")[0] in rules:
                found.setdefault(param.target, (part, param))
    names = Counter(param.name for _, param in found.values())
    grouped: dict[str, list[Place]] = {rule: [] for rule in rules}
    for part, param in found.values():
        rule = param.target.partition(".")[0]
        twice = sum(other.name == param.name for other in part.params) > 1
        full = f"{rule if twice else part.name}.{param.name}"
        grouped[rule].append(Place(part, param, full if also or names[param.name] > 1 else param.name))
    return {rule: there for rule, there in grouped.items() if there}


def carried(
    given: Mapping[str, Any], before: Mapping[str, list[Place]], after: Mapping[str, list[Place]]
) -> dict[str, Any]:
    """`set` for another composition: what both have keeps its value, under the name it needs there; the rest goes."""
    old = {place.param.target: place for there in before.values() for place in there}
    ours = {spelling for place in old.values() for spelling in place.spellings}
    moved = {name: value for name, value in given.items() if name not in ours}
    for place in (place for there in after.values() for place in there):
        was = old.get(place.param.target)
        if was and was.spellings & given.keys():
            moved = place.put(moved, was.value(given))
    return moved


def parameter(place: Place, given: Mapping[str, Any], key: str, write: Callable[[Any], None]) -> None:
    """The widget of one parameter; `write` gets its new value."""
    param, now = place.param, place.value(given)
    label = param.name.replace("_", " ")

    def changed() -> None:
        value = st.session_state[key]
        write(float(f"{value:.12g}") if isinstance(value, float) else value)

    if param.kind == "choice":
        st.session_state[key] = now if now in param.choices else param.default
        st.selectbox(label, param.choices, key=key, on_change=changed, help=escape(param.doc))
        return
    kind = int if param.kind == "int" else float
    value = kind(now) if usable(now) else None
    low = kind(param.low) if param.low is not None else None
    high = kind(param.high) if param.high is not None else None
    if value is not None:
        low, high = min(value, value if low is None else low), max(value, value if high is None else high)
    st.session_state[key] = value
    needed = value is not None and param.default is not None
    st.number_input(
        label, low, high, value="min" if needed else None, step=step(param),
        format="%d" if kind is int else "%g", key=key, on_change=changed, help=escape(param.doc),
        placeholder="not used" if param.default is None else "needed",
    )  # fmt: skip


def step(param: Param) -> Any:
    """What a number moves by."""
    if param.kind == "int":
        return 1
    default = abs(param.default) if isinstance(param.default, int | float) and param.default else 0.1
    return float(f"{default / 5:.1g}") if default < 1 else 0.5


FALLING = ("linear", "decay")
"""Schedules by which A3PO's rho falls: beside them it must not fall by itself."""


def settled(
    before: Mapping[str, Any], after: Mapping[str, Any], there: Sequence[Place], changed: str
) -> dict[str, Any]:
    """`after` without what contradicts its changed parameter: A3PO's rho falls by alpha a step, over a fraction of the
    run, or as a schedule says. `there` are the rule's parameters, `changed` is the name of one of them.
    """
    own = {place.param.name: place for place in there}
    if not {"alpha", "decay_fraction", "schedule"} <= own.keys():
        return dict(after)
    alpha, fraction, kind = own["alpha"], own["decay_fraction"], own["schedule"]
    if changed in ("alpha", "decay_fraction"):
        other = fraction if changed == "alpha" else alpha
        after = other.put(after, other.param.default)
        if kind.value(after) in FALLING:
            for place in (one for one in there if one.param.group == "schedule"):
                after = place.put(after, place.param.default)
    elif changed == "schedule" and kind.value(after) in FALLING:
        after = alpha.put(fraction.put(after, None), 0.0)
    elif changed == "schedule" and kind.value(before) in FALLING:
        after = alpha.put(after, alpha.param.default)
    return dict(after)


def schedule(there: Sequence[Place], given: Mapping[str, Any], key: str, write: Write) -> None:
    """How a weight fades over the run, folded away: the kind, and what that kind asks for."""
    by_name = {place.param.name: place for place in there}
    kind, asked = by_name["schedule"].value(given), _asked(by_name, given)
    bare = dict(given)
    for place in there:
        bare = place.put(bare, place.param.default)

    def choose() -> None:
        chosen = st.session_state[f"{key}.schedule"]
        changed = by_name["schedule"].put(bare, chosen)
        for name, start in _ENDS.get(chosen, {}).items():
            changed = by_name[name].put(changed, start)
        write(changed)

    with st.popover(_schedule_words(by_name, given), icon=":material/schedule:", type="tertiary"):
        options = by_name["schedule"].param.choices
        st.session_state[f"{key}.schedule"] = kind if kind in options else "constant"
        st.selectbox(
            "Over the run", options, key=f"{key}.schedule", on_change=choose, format_func=SCHEDULES.get,
            help="What fades is the factor's distance from 1. A3PO's own ρ decays by as much every step; ADORA's "
            "authors suggest ADORA first, then plain training: until.",
        )  # fmt: skip
        for place in asked:

            def put(value: Any, place: Place = place) -> None:
                write(place.put(by_name["schedule"].put(bare, kind), value))

            parameter(place, given, f"{key}.{place.param.name}", put)


def _asked(by_name: Mapping[str, Place], given: Mapping[str, Any]) -> list[Place]:
    """What the chosen schedule asks for."""
    kind = by_name["schedule"].value(given)
    return [by_name[name] for name in _ENDS.get(kind, ()) if name in by_name] if isinstance(kind, str) else []


def _schedule_words(by_name: Mapping[str, Place], given: Mapping[str, Any]) -> str:
    """`Until step 50`: the popover's label."""
    kind = by_name["schedule"].value(given)
    words = {
        "schedule_steps": lambda end: f"step {number(end)}",
        "schedule_fraction": lambda end: f"{share(end)} of the run",
        "schedule_alpha": lambda lost: f"{number(lost)} a step",
    }
    ends = {place.param.name: place.value(given) for place in _asked(by_name, given)}
    said = [words[name](end) for name, end in ends.items() if usable(end)]
    if not said:
        return f"Schedule: {inert_markdown(kind)}"
    return f"{_SAID[kind]} {said[0]}"


def usable(value: Any) -> bool:
    """A number that a widget can hold: addresses may say anything."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e15


def escape(text: str) -> str:
    """The project's own words in Markdown: their brackets and dollars are no markup."""
    return text.replace("[", r"\[").replace("]", r"\]").replace("$", r"\$").replace("_", r"\_").replace("*", r"\*")
