"""Widgets for an experiment's methods: which, and for each its base rule, further weights and parameters."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import streamlit as st

from app.draft import Draft
from app.forms import OWN
from app.inert import inert_markdown, visible
from app.param_forms import Place, carried, escape, parameter, places, schedule, settled, step, usable
from core.advantage import AdvantageError, Recipe, bases, build, recipes

EMPTY = (None, "", [], {}, (), False)
"""What a method says where it says nothing."""


def methods(draft: Draft) -> None:
    """The experiment's methods: which, and for each its base rule, further weights and parameters."""
    known = recipes()
    entries = [_entry(entry) for entry in _listed(draft.value("methods"))]
    key = "draft:methods"

    def write() -> None:
        wanted = st.session_state[key]
        kept = [entry for entry in entries if entry["name"] in wanted]
        added = [{"name": name} for name in wanted if name not in {entry["name"] for entry in entries}]
        _write(draft, kept + added)

    names = list(dict.fromkeys(entry["name"] for entry in entries))
    st.session_state[key] = names
    st.multiselect(
        "Methods", list(dict.fromkeys([*known, *names])), key=key, on_change=write,
        format_func=_label, placeholder="Pick one or more",
        help="Each method is one run for each seed, on the same prompts.",
    )  # fmt: skip
    for i, entry in enumerate(entries):
        recipe = known.get(entry["name"])
        if recipe:
            _method(draft, entries, i, recipe)


def _method(draft: Draft, entries: list[dict[str, Any]], i: int, recipe: Recipe) -> None:
    """One method: what it does, and what can be changed about it."""
    entry = entries[i]

    def change(**fields: Any) -> None:
        changed = [dict(other) for other in entries]
        changed[i] = {**changed[i], **fields}
        _write(draft, changed)

    given = ", ".join(f"{name} {value}" for name, value in entry.get("set", {}).items())
    mark = f" · {inert_markdown(given)}" if given else ""
    with st.expander(f"**{_title(entry, recipe)}**{mark}: {escape(recipe.summary)}", key=f"draft:method:{i}"):
        stand = recipes().get(entry.get("base") or recipe.on, recipe)
        told = dict.fromkeys(part.loss_source for part in (recipe, stand) if part.loss_source)
        st.caption(f"Source: {escape(recipe.source)}. Loss: {escape('; '.join(told))}.")
        _composition(entry, i, recipe, change)
        _parameters(entry, i, recipe, change)
        if recipe.weights or entry.get("also") or entry.get("mass_matched"):
            _mass_matched(entry, i, change)
        with st.container(horizontal=True):
            _copies(draft, entries, i, recipe)


def _title(entry: dict[str, Any], recipe: Recipe) -> str:
    """`A3PO × ADORA amplify on DAPO, mass-matched`; the recipe's label where the composition is refused."""
    try:
        return build(entry["name"], base=entry.get("base"), also=entry.get("also", ()),
                     mass_matched=entry.get("mass_matched", False)).label  # fmt: skip
    except AdvantageError:
        return recipe.label


def _composition(entry: dict[str, Any], i: int, recipe: Recipe, change: Callable[..., None]) -> None:
    """The base rule under the weights, and further weights."""
    known = recipes()
    now = {"base": entry.get("base", ""), "also": entry.get("also", [])}

    def compose(**other: Any) -> None:
        before, after = places(recipe, **now), places(recipe, **{**now, **other})
        change(**other, set=carried(entry.get("set", {}), before, after))

    if recipe.weights:
        key = f"draft:methods.{i}.base"
        st.session_state[key] = OWN if now["base"] == recipe.on else now["base"]
        others = [name for name in bases() if name != recipe.on]
        st.selectbox(
            "Base rule", list(dict.fromkeys([OWN, *others, st.session_state[key]])), key=key,
            format_func=lambda name: f"{known[recipe.on].label} (its own)" if name == OWN else _label(name),
            on_change=lambda: compose(base=st.session_state[key]),
            help="The advantage under the weights; its loss comes with it.",
        )  # fmt: skip
    also_key = f"draft:methods.{i}.also"
    st.session_state[also_key] = [name for name in now["also"] if name in known]
    weighing = [name for name, other in known.items() if other.weights and other is not recipe]
    st.multiselect(
        "Weights that multiply in too", weighing, key=also_key, format_func=_label,
        placeholder="None", on_change=lambda: compose(also=st.session_state[also_key]),
        help="As many as you like, of prompts, answers and tokens. Those that contradict each other are refused, with "
        "the reason.",
    )  # fmt: skip


def _parameters(entry: dict[str, Any], i: int, recipe: Recipe, change: Callable[..., None]) -> None:
    """Each rule's own parameters, and its schedule folded away."""
    given = entry.get("set", {})
    by_rule = places(recipe, entry.get("base", ""), entry.get("also", ()))
    for rule, there in by_rule.items():
        if len(by_rule) > 1:
            st.markdown(f":small[{_heading(rule, there[0].recipe)}]")
        columns = st.columns(2)
        for j, place in enumerate(there):
            if place.param.group == "schedule":
                continue
            with columns[j % 2]:
                key = f"draft:methods.{i}.{rule}.{place.param.name}"

                def put(value: Any, place: Place = place, there: list[Place] = there) -> None:
                    change(set=settled(given, place.put(given, value), there, place.param.name))

                parameter(place, given, key, put)
        fading = [place for place in there if place.param.group == "schedule"]
        if fading:

            def fade(changed: dict[str, Any], there: list[Place] = there) -> None:
                change(set=settled(given, changed, there, "schedule"))

            schedule(fading, given, f"draft:methods.{i}.{rule}", fade)


def _heading(rule: str, recipe: Recipe) -> str:
    """Whose parameters follow: the weight's recipe, or the base rule."""
    weighs = any(weight.name == rule for weight in recipe.weights)
    return f"**{recipe.label}**" if weighs else "**Base rule**"


def _mass_matched(entry: dict[str, Any], i: int, change: Callable[..., None]) -> None:
    key = f"draft:methods.{i}.mass_matched"
    st.session_state[key] = bool(entry.get("mass_matched"))
    st.toggle(
        "Mass-matched", key=key, on_change=lambda: change(mass_matched=st.session_state[key]),
        help="The control for one question: is it only a larger learning rate? Each step's advantages are scaled so "
        "that all of them together, as the loss weighs them, are as large as the base rule's; what is left is how they "
        "are shared out. AdamW cancels a factor that all steps have in common, so under it the control only takes away "
        "what varies from step to step; under SGD it takes away the whole difference in size.",
    )  # fmt: skip


def _copies(draft: Draft, entries: list[dict[str, Any]], i: int, recipe: Recipe) -> None:
    """The same method once more, beside it: with another parameter, or as its own control."""
    entry = entries[i]

    def button(label: str, name: str, icon: str, help_: str, copy: dict[str, Any]) -> None:
        st.button(
            label, key=f"draft:methods.{i}.{name}", type="tertiary", icon=icon, help=help_, on_click=_write,
            args=(draft, [*entries[: i + 1], copy, *entries[i + 1 :]]),
        )  # fmt: skip

    variant = _variant(recipe, entry)
    if variant:
        button("Add a variant", "variant", ":material/add:",
               "The same method once more, to be given other parameters", variant)  # fmt: skip
    control = {**entry, "mass_matched": True}
    if (recipe.weights or entry.get("also")) and control not in entries:
        button("Add its mass-matched control", "control", ":material/balance:",
               "The same method once more, its advantages scaled to the base rule's size", control)  # fmt: skip


def _variant(recipe: Recipe, entry: dict[str, Any]) -> dict[str, Any] | None:
    """The same method with its first number moved by a step, since two of a kind must differ; None without a number."""
    rules = {rule.name for rule in recipe.weights}
    for param in recipe.params:
        given = dict(entry.get("set", {}))
        now = given.get(param.name, param.default)
        own = param.group != "schedule" and param.target.partition(".")[0] in rules
        if param.kind == "choice" or not own or not usable(now):
            continue
        by = step(param)
        moved = now + by if param.high is None or now + by <= param.high else now - by
        given[param.name] = moved if param.kind == "int" else float(f"{moved:.12g}")
        return {**entry, "set": given}
    return None


def _label(name: str) -> str:
    known = recipes()
    return known[name].label if name in known else visible(name)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _entry(entry: Any) -> dict[str, Any]:
    """A method as a mapping, whatever way the draft writes it."""
    if not isinstance(entry, dict):
        return {"name": str(entry)}
    given = {key: value for key, value in entry.items() if value not in EMPTY}
    for key, kind in (("set", dict), ("also", list), ("base", str), ("mass_matched", bool)):
        if not isinstance(given.get(key, kind()), kind):
            given.pop(key)
    if "also" in given:
        given["also"] = [name for name in given["also"] if isinstance(name, str)]
    return {**given, "name": str(given.get("name", "grpo"))}


def _write(draft: Draft, entries: list[dict[str, Any]]) -> None:
    """Change the methods; as they were at the start, they are no change."""
    start = draft.original("methods")
    plain = _plain(entries)
    draft.write("methods", start if plain == _plain([_entry(entry) for entry in _listed(start)]) else plain)


def _plain(entries: list[dict[str, Any]]) -> list[Any]:
    """Methods as short as the config allows: a bare name where nothing else is said."""
    clean = [{key: value for key, value in entry.items() if value not in EMPTY} for entry in entries]
    return json.loads(json.dumps([entry["name"] if set(entry) == {"name"} else entry for entry in clean]))
