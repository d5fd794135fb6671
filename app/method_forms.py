"""Widgets for an experiment's methods: which, and for each its base rule, further weights and parameters."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import streamlit as st

from app.draft import Draft
from app.forms import OWN
from app.inert import inert_markdown, visible
from core.advantage import Param, Recipe, bases, recipes


def methods(draft: Draft) -> None:
    """The experiment's methods: which, and for each its base rule, further weights and parameters."""
    known = recipes()
    entries = [_entry(entry) for entry in _listed(draft.value("methods"))]
    key = "draft:methods"

    def write() -> None:
        wanted = st.session_state[key]
        kept = [entry for entry in entries if entry["name"] in wanted]
        added = [{"name": name} for name in wanted if name not in {entry["name"] for entry in entries}]
        draft.write("methods", _plain(kept + added))

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
    known = recipes()

    def change(**fields: Any) -> None:
        changed = [dict(other) for other in entries]
        changed[i] = {**changed[i], **fields}
        draft.write("methods", _plain(changed))

    given = ", ".join(f"{name} {value}" for name, value in entry.get("set", {}).items())
    mark = f" · {inert_markdown(given)}" if given else ""
    with st.expander(f"**{recipe.label}**{mark}: {_escape(recipe.summary)}", key=f"draft:method:{i}"):
        st.caption(f"Source: {_escape(recipe.source)}")
        left, right = st.columns(2)
        if recipe.weights:
            key = f"draft:methods.{i}.base"
            st.session_state[key] = str(entry.get("base") or OWN)
            others = [name for name in bases() if name != recipe.on]
            left.selectbox(
                "Base rule", list(dict.fromkeys([OWN, *others, st.session_state[key]])), key=key,
                format_func=lambda name: f"{known[recipe.on].label} (its own)" if name == OWN else _label(name),
                on_change=lambda: change(base=st.session_state[key] or None),
                help="The advantage under the weights; its loss comes with it.",
            )  # fmt: skip
        also_key = f"draft:methods.{i}.also"
        st.session_state[also_key] = [name for name in entry.get("also", ()) if name in known]
        weighing = [name for name, other in known.items() if other.weights and other is not recipe]
        (right if recipe.weights else left).multiselect(
            "Weights that multiply in too", weighing, key=also_key, format_func=_label,
            placeholder="None", on_change=lambda: change(also=st.session_state[also_key]),
        )  # fmt: skip
        columns = st.columns(2)
        for j, (part, param) in enumerate(_params(recipe, entry)):
            with columns[j % 2]:
                _param(entry, i, part, param, change, qualified=bool(entry.get("also")))
        twin = _variant(recipe, entry)
        if twin:
            st.button(
                "Add a variant", key=f"draft:methods.{i}.variant", type="tertiary", icon=":material/add:",
                help="The same method once more, to be given other parameters", on_click=draft.write,
                args=("methods", _plain([*entries[: i + 1], twin, *entries[i + 1 :]])),
            )  # fmt: skip


def _params(recipe: Recipe, entry: dict[str, Any]) -> list[tuple[Recipe, Param]]:
    """What can be set in this composition: the parameters of its weights and of its base rule, each once."""
    known = recipes()
    weighing = [recipe, *(known[name] for name in entry.get("also", ()) if name in known)]
    stand = known.get(entry.get("base") or recipe.on, recipe)
    rules = {rule.name for part in weighing for rule in part.weights} | ({stand.base.name} if stand.base else set())
    found: dict[str, tuple[Recipe, Param]] = {}
    for part in [*weighing, stand]:
        for param in part.params:
            if param.target.partition(".")[0] in rules:
                found.setdefault(param.target, (part, param))
    return list(found.values())


def _param(
    entry: dict[str, Any], i: int, recipe: Recipe, param: Param, change: Callable[..., None], qualified: bool
) -> None:
    given = dict(entry.get("set", {}))
    aliases = {param.name, param.target, f"{recipe.name}.{param.name}"}
    spelled = next((alias for alias in given if alias in aliases), None)
    now = given[spelled] if spelled else param.default
    key = f"draft:methods.{i}.{recipe.name}.{param.name}"
    name = f"{recipe.name}.{param.name}" if qualified else param.name

    def write() -> None:
        left = {alias: value for alias, value in given.items() if alias not in aliases}
        value = st.session_state[key]
        if isinstance(value, float):
            value = float(f"{value:.12g}")
        change(set=left if value == param.default else {**left, name: value})

    label = name.replace("_", " ")
    if param.kind == "choice":
        st.session_state[key] = now if now in param.choices else param.default
        st.selectbox(label, param.choices, key=key, on_change=write, help=_escape(param.doc))
        return
    kind = int if param.kind == "int" else float
    value = kind(now) if isinstance(now, int | float) and not isinstance(now, bool) else None
    low = kind(param.low) if param.low is not None else None
    high = kind(param.high) if param.high is not None else None
    if value is not None:
        low, high = min(value, value if low is None else low), max(value, value if high is None else high)
    st.session_state[key] = value
    needed = value is not None and param.default is not None
    st.number_input(
        label, low, high, value="min" if needed else None, step=_step(param, kind),
        format="%d" if kind is int else "%g", key=key, on_change=write, help=_escape(param.doc),
        placeholder="not used" if param.default is None else "needed",
    )  # fmt: skip


def _step(param: Param, kind: type) -> Any:
    if kind is int:
        return 1
    default = abs(param.default) if isinstance(param.default, int | float) and param.default else 0.1
    return float(f"{default / 5:.1g}") if default < 1 else 0.5


def _variant(recipe: Recipe, entry: dict[str, Any]) -> dict[str, Any] | None:
    """The same method with its first number moved by a step, since two of a kind must differ; None without a number."""
    rules = {rule.name for rule in recipe.weights}
    for param in recipe.params:
        given = dict(entry.get("set", {}))
        now = given.get(param.name, param.default)
        if param.kind == "choice" or param.target.partition(".")[0] not in rules or not isinstance(now, int | float):
            continue
        step = _step(param, int if param.kind == "int" else float)
        moved = now + step if param.high is None or now + step <= param.high else now - step
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
    given = {key: value for key, value in entry.items() if value not in (None, [], {})}
    if not isinstance(given.get("set", {}), dict):
        given.pop("set")
    if not isinstance(given.get("also", []), list):
        given.pop("also")
    return {**given, "name": str(given.get("name", "grpo"))}


def _plain(entries: list[dict[str, Any]]) -> list[Any]:
    """Methods as short as the config allows: a bare name where nothing else is said."""
    clean = [{key: value for key, value in entry.items() if value not in (None, [], {}, ())} for entry in entries]
    return json.loads(json.dumps([entry["name"] if set(entry) == {"name"} else entry for entry in clean]))


def _escape(text: str) -> str:
    """The project's own words in Markdown: their brackets and dollars are no markup."""
    return text.replace("[", r"\[").replace("]", r"\]").replace("$", r"\$").replace("_", r"\_").replace("*", r"\*")
