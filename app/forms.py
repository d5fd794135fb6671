"""Widgets for settings: drawn from a draft, each writes its own change into the URL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from app.draft import Draft
from app.inert import visible
from app.views.settings import Setting

OWN = ""
"""What a selectbox holds for None, which it would take for "nothing chosen"."""


def setting(draft: Draft, what: Setting, choices: Sequence[Any] | None = None) -> None:
    """The widget of one setting. A value that the widget cannot hold is shown by the page's error, not here."""
    now, key = draft.value(what.path), f"draft:{what.path}"
    options = list(choices or what.choices)
    changed = "" if now == draft.original(what.path) else " :small[:primary[●]]"
    label, help_ = what.label + changed, f"{what.help}  \n`{what.path}`"

    def write() -> None:
        draft.write(what.path, _read(what, st.session_state[key]))

    if what.kind == "flag":
        st.session_state[key] = bool(now)
        st.toggle(label, key=key, on_change=write, help=help_)
    elif what.kind == "choice":
        if what.none:
            options = [OWN, *options]
            now = OWN if now is None else now
        if what.ask and now not in options and not changed:
            now = None
        elif now not in options:
            options.append(now)
        st.session_state[key] = now
        st.selectbox(
            label, options, index=None if now is None else 0, key=key, on_change=write, help=help_,
            placeholder=what.ask or None, format_func=lambda item: _said(item, what.none),
        )  # fmt: skip
    elif what.kind in ("list", "text"):
        st.session_state[key] = ", ".join(map(str, now)) if isinstance(now, list) else str(now)
        st.text_input(label, key=key, on_change=write, help=help_, placeholder=what.none or None)
    else:
        _number(label, key, now, what, help_, write)


def _number(label: str, key: str, now: Any, what: Setting, help_: str, write: Callable[[], None]) -> None:
    whole = what.kind == "int"
    kind = int if whole else float
    fits = isinstance(now, int if whole else int | float) and not isinstance(now, bool)
    value = kind(now) if fits else None
    low, high = kind(what.low or 0), kind(what.high or 0)
    if value is not None:  # what a preset or a link says is shown, even beyond what the widget would offer
        low, high = min(low, value), max(high, value)
    st.session_state[key] = value
    needed = value is not None and not what.none  # then the widget has no cross that empties it
    st.number_input(
        label, low, high, value="min" if needed else None, step=kind(what.step or 1),
        format="%d" if whole else "%g", key=key,
        on_change=write, help=help_, placeholder=what.none or "needed",
    )  # fmt: skip


def _read(what: Setting, value: Any) -> Any:
    """What a widget holds, as the config wants it."""
    if what.kind == "choice" and value == OWN:
        return None
    if what.kind == "list" and isinstance(value, str):
        parts = [part.strip() for part in value.split(",") if part.strip()]
        numbers = [_as_number(part) for part in parts]
        if what.path == "lora.targets" and len(parts) <= 1:
            return value.strip()
        return numbers if all(number is not None for number in numbers) else parts
    if isinstance(value, float):
        return float(f"{value:.12g}")  # 0.30000000000000004 was 0.3 in the widget
    return value


def _as_number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _said(item: Any, none: str) -> str:
    if isinstance(item, bool):
        return "on" if item else "off"
    return none if item == OWN else visible(item)
