"""Tokens: which tokens got the advantage, and why? A group, a prompt through training, the whole run, or a search."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app import data, widgets
from app.tokens import find, group, map, training
from core.runs import RunInfo
from core.store import Lab

VIEWS: dict[str, tuple[str, Callable[[RunInfo, Lab], None]]] = {
    "group": ("One group", group.show),
    "prompt": ("One prompt through training", training.show),
    "run": ("The whole run", map.show),
    "find": ("Find", find.show),
}
"""Views by their name in the address: what they are called, and what draws them."""


def page() -> None:
    widgets.page_header("Which tokens got the advantage, and why?")
    with st.container(horizontal=True, vertical_alignment="bottom"):
        view = widgets.choice("View", list(VIEWS), param="view", format_func=lambda name: VIEWS[name][0])
        info = widgets.run_picker(suits=("a3po",))
    if info is None:
        return
    VIEWS[view][1](info, data.lab(info))


if __name__ == "__main__":
    page()
