"""Every page with nonsense for each choice that its address can hold: a sentence and a sensible page, no error."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from tests.app.conftest import texts

APP = Path(__file__).parents[2] / "app"
HOSTILE = "\x00'; DROP TABLE tokens; -- <img src=x onerror=alert(1)> $$x$$ ![i](http://evil.example/i.png)"
NONSENSE = {"too large": "9" * 25, "not quite a number": "²", "hostile": HOSTILE}
LONGEST = 4000
"""Characters that a page says about one address at most."""
VIEWS: dict[str, tuple[str, dict[str, object], tuple[str, ...]]] = {
    "runs": ("runs", {}, ("find", "show", "present")),
    "launch": ("launch", {}, ("from", "preset", "set", "asked", "try")),
    "launch, changes": ("launch", {}, ("set",)),
    "imports": ("imports", {}, ("run", "way", "path", "format")),
    "imports, here": ("imports", {"way": "machine"}, ("path", "format", "convention", "tokenizer", "name")),
    "imports, on its way": ("imports", {}, ("job",)),
    "live": ("live", {"run": "finished"}, ("experiment", "detail", "more", "smooth")),
    "live, no such run": ("live", {}, ("run",)),
    "group": (
        "tokens", {"run": "finished"},
        ("view", "step", "split", "group", "prompt", "rollout", "position", "color", "sort", "texts", "table"),
    ),
    "prompt": ("tokens", {"run": "finished", "view": "prompt"}, ("prompt", "split", "color", "step")),
    "whole run": ("tokens", {"run": "finished", "view": "run"}, ("field", "split", "step", "answers", "place")),
    "find": ("tokens", {"run": "finished", "view": "find"}, ("find", "q", "regex", "case", "split", "answers")),
    "find text": ("tokens", {"run": "finished", "view": "find", "q": "check"}, ("hits", "steps", "answers")),
    "find tokens": (
        "tokens", {"run": "finished", "view": "find", "find": "tokens"}, ("extreme", "end", "token", "hits", "steps"),
    ),
    "find strings": ("tokens", {"run": "finished", "view": "find", "find": "strings"}, ("most", "hits", "steps")),
    "find longest": ("tokens", {"run": "finished", "view": "find", "find": "longest"}, ("hits", "steps")),
    "polarity": ("polarity", {"run": "finished"}, ("part", "split", "field")),
    "polarity, one step": ("polarity", {"run": "finished", "part": "step"}, ("step", "split")),
    "polarity, a window": ("polarity", {"run": "finished", "part": "strings"}, ("steps", "field")),
    "favorability": (
        "favorability", {"run": "finished"},
        ("step", "group", "tau", "weight", "variant", "combine", "axes", "scope", "sort", "reverse", "rows", "by",
         "window", "check"),
    ),
    "whatif": (
        "whatif", {"run": "finished"},
        ("step", "split", "group", "rollout", "position", "m", "diff", "scope", "table", "source"),
    ),
    "whatif, one's own": (
        "whatif", {"source": "board"}, ("b", "example", "more", "m", "diff", "scope", "group", "rollout", "position"),
    ),
    "compare": (
        "compare", {"run": ["finished", "sealed"]},
        ("experiment", "metric", "align", "smooth", "base", "side", "colour", "probe", "diff_from", "diff_to", "step"),
    ),
    "sql": ("sql", {"run": "finished"}, ("sql", "ready", "find", "rows", "seconds", "x", "y", "by")),
}  # fmt: skip
"""Views of the pages: the page, what its address keeps, and what becomes nonsense, all at once."""


@pytest.mark.parametrize("value", NONSENSE.values(), ids=NONSENSE)
@pytest.mark.parametrize("view", VIEWS)
def test_nonsense_in_an_address_gives_a_page(
    states: Path, open_page: Callable[..., AppTest], view: str, value: str
) -> None:
    page, kept, names = VIEWS[view]
    at = open_page(page, **kept, **dict.fromkeys(names, value))
    said = texts(at)
    assert not at.exception and "Something went wrong" not in said
    assert at.header
    alerts = "".join(alert.value for kind in ("warning", "error", "info") for alert in getattr(at, kind))
    assert len(alerts) < LONGEST and "<img" not in alerts.replace("\\<", "") and "![i](" not in alerts


def test_a_very_long_value_is_not_repeated_in_full(states: Path, open_page: Callable[..., AppTest]) -> None:
    at = open_page("launch", set="9" * 20_000)
    assert not at.exception and "are left out" in at.warning[0].value
    assert len(at.warning[0].value) < 1000


@pytest.mark.parametrize(
    ("name", "value"), [("steps", "²"), ("steps", "9" * 5000), ("steps", "-1"), ("hits", "9" * 25), ("hits", "0")]
)
def test_what_cannot_be_used_is_said(states: Path, open_page: Callable[..., AppTest], name: str, value: str) -> None:
    """Of these, `find` once made numbers that the store could not hold."""
    at = open_page("tokens", run="finished", view="find", find="longest", **{name: value})
    assert any(f"{name} \\= “" in warning.value or f"{name} = “" in warning.value for warning in at.warning), texts(at)
    assert "of steps 0 to 5 (training)" in texts(at) or "In steps 0 to 5 (training)" in texts(at)


def test_every_choice_of_an_address_is_tried() -> None:
    """A parameter that a page reads and that no view above makes nonsense of is a gap."""
    read = {
        name
        for path in APP.rglob("*.py")
        for name in re.findall(r"param(?:s)?\(\s*\"([a-z_]+)\"|param=\"([a-z_]+)\"", path.read_text(encoding="utf-8"))
        for name in name
        if name
    }
    tried = {name for _, kept, names in VIEWS.values() for name in (*kept, *names)}
    assert read - tried == set()
