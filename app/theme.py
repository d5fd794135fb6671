"""Which colours the reader sees: the browser tells light or dark."""

from __future__ import annotations

import streamlit as st

from app.palette import DARK, LIGHT, Theme


def theme() -> Theme:
    """The palette of the mode that the browser shows; light until it has said so."""
    return DARK if st.context.theme.type == "dark" else LIGHT
