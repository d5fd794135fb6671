"""Every page of the lab, and every view of the pages that have several, as addresses over the benches' runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from streamlit.testing.v1 import local_script_runner

RUN, OTHER, LIVE = "bench", "beside", "live"
"""Ids of the sealed run, of the same as another seed, and of one that still runs."""

POLARITY = ("answers", "strings", "entropy", "distributions", "step", "boundary")
FINDS = (
    "tokens", "strings", "longest", "repeats", "same", "truncated", "lucky", "suppressed", "reinforced",
)  # fmt: skip

Address = tuple[str, dict[str, str | list[str]]]
"""A page's name and its query parameters."""


def addresses(steps: int, live: bool = True) -> dict[str, Address]:
    """What to open, by a name for people; asked for the middle of a run of so many steps."""
    run = {"run": RUN}
    place = {**run, "step": str(steps // 2), "group": "7"}
    views: dict[str, Address] = {
        "Runs": ("runs", {}),
        "Launch": ("launch", {}),
        "Import": ("import", {}),
        "Live": ("live", {**run, "more": "1"}),
        "Tokens: one group": ("tokens", place),
        "Tokens: one prompt": ("tokens", {**place, "view": "prompt"}),
        "Tokens: same, trained": ("tokens", {**place, "view": "prompt", "split": "train"}),
        "Tokens: whole run": ("tokens", {**place, "view": "run"}),
        "Tokens: by position": ("tokens", {**place, "view": "run", "place": "absolute"}),
        "What if": ("whatif", place),
        "What if: step": ("whatif", {**place, "scope": "step", "m": ["a3po", "grpo", "adora_amplify", "dapo"]}),
        "Favorability": ("favorability", place),
        "Favorability: all": ("favorability", {**place, "rows": "all", "by": "step", "scope": "run"}),
        "Compare": ("compare", {"run": [RUN, OTHER]}),
        "SQL": ("sql", run),
    }
    views |= {f"Polarity: {part}": ("polarity", {**run, "part": part}) for part in POLARITY}
    views |= {f"Find: {find}": ("tokens", {**run, "view": "find", "find": find}) for find in FINDS}
    views["Find: text"] = ("tokens", {**run, "view": "find", "find": "text", "q": "tuditu", "case": "1"})
    views["Find: expression"] = ("tokens", {**run, "view": "find", "find": "text", "q": r"tu\w+ \d+$", "regex": "1"})
    if live:
        views["Live: running"] = ("live", {"run": LIVE, "more": "1"})
        views["Polarity: running"] = ("polarity", {"run": LIVE})
        views["Strings: running"] = ("polarity", {"run": LIVE, "part": "strings"})
        views["Find: running"] = ("tokens", {"run": LIVE, "view": "find", "find": "strings"})
    return views


@contextmanager
def sent() -> Iterator[list[int]]:
    """The bytes that every run of an AppTest inside would send to a browser, one number a run."""
    found: list[int] = []
    parse = local_script_runner.parse_tree_from_messages

    def counting(messages):
        found.append(sum(message.ByteSize() for message in messages))
        return parse(messages)

    with patch.object(local_script_runner, "parse_tree_from_messages", counting):
        yield found
