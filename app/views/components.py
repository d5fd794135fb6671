"""The lab's own views as Streamlit components: a script and a style of their own after the parts that all share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

_HERE = Path(__file__).parent


def component(name: str, *scripts: str) -> Callable[..., Any]:
    """The component of `<name>_component.js` and `.css`; further `scripts` of this folder come before its own."""
    parts = ["component_parts", *scripts, f"{name}_component"]
    script = "".join((_HERE / f"{part}.js").read_text(encoding="utf-8") for part in parts)
    style = "".join((_HERE / f"{part}.css").read_text(encoding="utf-8") for part in (parts[0], parts[-1]))
    return st.components.v2.component(f"advantage_lab_{name}", css=style, js=script)
