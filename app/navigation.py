"""The pages of the lab, and how Streamlit is told of them."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import streamlit as st

from app import presentation
from app.guard import guarded
from app.theme import theme
from app.urls import PAGES

ICONS = {
    "runs": "home", "launch": "rocket_launch", "import": "move_to_inbox",
    "live": "monitor_heart", "tokens": "grid_on", "polarity": "exposure",
    "favorability": "star", "whatif": "alt_route", "compare": "stacked_line_chart",
    "sql": "database",
}  # fmt: skip
TITLES = {"whatif": "What if", "sql": "SQL"}
"""Pages whose name in the navigation is not that of their address."""
HOME = "runs"
_here = threading.local()


def show() -> None:
    """Draw the page that the address asks for, inside the guard. This is all that main.py does."""
    page = _register()
    presentation.settle()
    st.html(presentation.style(theme()))
    _here.inside = True
    try:
        guarded(page.run)
    finally:
        _here.inside = False


def _register() -> Any:
    st.set_page_config(page_title="Advantage Lab", page_icon="🔬", layout="wide")
    pages = [_page(name) for name in PAGES]
    home = _page(HOME, visibility="hidden")  # the default page answers to "/" alone; this one to its name
    pages[list(PAGES).index(HOME)] = _page(HOME, url_path="home", default=True)
    return st.navigation([*pages, home], position="top")


def _page(name: str, **options: Any) -> Any:
    file = Path(__file__).parent / PAGES[name]
    title, icon = TITLES.get(name, name.capitalize()), f":material/{ICONS[name]}:"
    return st.Page(file, title=title, icon=icon, **{"url_path": name, **options})


def ensure() -> None:
    """Start over through main.py where Streamlit ran a page's file by itself.

    It does so for a deep link in the first session after a start: a folder named `pages` beside main.py counts as the
    navigation until `st.navigation` is called once.
    """
    if not getattr(_here, "inside", False):
        _register()
        st.rerun()
