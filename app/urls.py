"""Every choice of a page lives in the URL: reading it, writing it, and linking to a page with it.

The URL is the only truth. A widget bound with `bound()` gets its value from the URL before it is drawn and writes it
back when its reader changes it, so deep links, the back button and page links all show the same view. A value that the
page cannot use gives a sentence and the default, never an exception.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import urlencode

import streamlit as st

from app.inert import inert_markdown

PAGES = {
    "runs": "pages/runs.py",
    "launch": "pages/launch.py",
    "import": "pages/import.py",
    "live": "pages/live.py",
    "tokens": "pages/tokens.py",
    "polarity": "pages/polarity.py",
    "favorability": "pages/favorability.py",
    "whatif": "pages/whatif.py",
    "compare": "pages/compare.py",
    "sql": "pages/sql.py",
}
"""Pages by the name they have in the URL."""
FAR = 10**9
"""No number in an address is further from 0: larger ones overflow in the store."""
PRESENT = "present"
"""The parameter that every link takes along: larger type, for presenting."""


def param(name: str, default: str | None = None) -> str | None:
    """A text parameter; an empty one counts as absent."""
    return st.query_params.get(name) or default


def int_param(name: str, default: int | None = None, low: int | None = None, high: int | None = None) -> int | None:
    """A whole number in [low, high]; anything else gives a sentence on the page and the default."""
    raw = param(name)
    if raw is None:
        return default
    try:
        value = int(raw)
    except ValueError:
        return _refuse(name, raw, "is not a whole number", default)
    if abs(value) > FAR:
        return _refuse(name, raw, "is out of range", default)
    if (low is not None and value < low) or (high is not None and value > high):
        limits = f"lies outside {low} to {high}" if low is not None and high is not None else "is out of range"
        return _refuse(name, raw, limits, default)
    return value


def int_params(name: str) -> list[int]:
    """The whole numbers of a repeated parameter (`?steps=3&steps=9`), from 0 on; others give a sentence."""
    numbers = []
    for raw in list_param(name):
        if raw.isdecimal() and len(raw) <= len(str(FAR)):
            numbers.append(int(raw))
        else:
            _refuse(name, raw, "is not a whole number from 0 on, so it is left out", None)
    return numbers


def float_param(name: str, default: float, low: float, high: float) -> float:
    """A finite number in [low, high]; anything else gives a sentence on the page and the default."""
    raw = param(name)
    if raw is None:
        return default
    try:
        value = float(raw)
    except ValueError:
        return _refuse(name, raw, "is not a number", default)
    return value if low <= value <= high else _refuse(name, raw, f"lies outside {low:g} to {high:g}", default)


def choice_param(name: str, options: Sequence[str], default: str | None = None) -> str | None:
    """One of the options; anything else gives a sentence on the page and the default."""
    raw = param(name)
    if raw is None or raw in options:
        return raw or default
    return _refuse(name, raw, "is not among " + ", ".join(options[:8]) if options else "has no meaning here", default)


def flag_param(name: str, default: bool = False) -> bool:
    """A switch, written 1 or 0."""
    return {"1": True, "0": False}.get(param(name) or "", default)


def list_param(name: str, options: Sequence[str] | None = None) -> list[str]:
    """All values of a repeated parameter (`?run=a&run=b`), in order, each once; unknown ones give a sentence."""
    values = list(dict.fromkeys(value for value in st.query_params.get_all(name) if value))
    if options is None:
        return values
    for value in values:
        if value not in options:
            _refuse(name, value, "is not here, so it is left out", None)
    return [value for value in values if value in options]


def set_params(**values: Any) -> None:
    """Write parameters into the URL, in one step of the browser's history; None or [] takes one out, a list repeats
    it, True and False are 1 and 0.
    """
    before = {name: st.query_params.get_all(name) for name in st.query_params}
    after = before | {name: _texts(value) for name, value in values.items()}
    after = {name: texts for name, texts in after.items() if texts}
    if after != before:
        st.query_params.from_dict(after)


def bound(name: str, value: Any) -> dict[str, Any]:
    """Keyword arguments that tie a widget to a URL parameter: `st.selectbox("Split", options, **bound("split", now))`.

    `value` is the checked value of the parameter now. Give the widget no index or default of its own.
    """
    key = f"url:{name}"
    st.session_state[key] = value
    return {"key": key, "on_change": _write, "args": (name,)}


def presenting() -> bool:
    """Whether the page is to be drawn with larger type."""
    return flag_param(PRESENT)


def link(page: str, label: str, *, icon: str | None = None, help: str | None = None, **params: Any) -> None:
    """A link to another page with its choices; `label` is Markdown (foreign text goes through inert_markdown)."""
    st.page_link(PAGES[page], label=label, icon=icon, help=help, query_params=_pairs(params))


def go(page: str, **params: Any) -> None:
    """Go to another page with its choices; ends the script."""
    st.switch_page(PAGES[page], query_params=_pairs(params))


def href(page: str, **params: Any) -> str:
    """A relative address for links inside HTML; quoted for URLs, not yet for HTML."""
    pairs = _pairs(params)
    return ("" if page == "runs" else page) + ("?" + urlencode(pairs, doseq=True, errors="replace") if pairs else "")


def remembered(name: str) -> str | None:
    """A choice made earlier in this session (the run, say), for a page that was opened without it."""
    return st.session_state.get(f"last:{name}")


def remember(name: str, value: str | None) -> None:
    """Keep a choice for the other pages of this session."""
    st.session_state[f"last:{name}"] = value


def _write(name: str) -> None:
    set_params(**{name: st.session_state[f"url:{name}"]})


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, bool):
        return [str(int(value))]
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [text for item in value for text in _texts(item)]
    return [str(value)]


def _pairs(params: dict[str, Any]) -> dict[str, list[str]]:
    pairs = {name: texts for name, value in params.items() if (texts := _texts(value))}
    return pairs | {PRESENT: ["1"]} if presenting() else pairs


def _refuse(name: str, raw: str, why: str, default: Any) -> Any:
    st.warning(f"{inert_markdown(name)} = “{inert_markdown(raw[:80])}” in the address {inert_markdown(why)}.")
    return default
