"""The lab's own views as Streamlit components: a script and a style of their own after the parts that all share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import streamlit as st

_HERE = Path(__file__).parent


def component(name: str) -> Callable[..., Any]:
    """The component of `<name>_component.js` and `.css`."""
    script, style = (
        "".join(
            (_HERE / f"{part}.{kind}").read_text(encoding="utf-8") for part in ("component_parts", f"{name}_component")
        )
        for kind in ("js", "css")
    )
    return st.components.v2.component(f"advantage_lab_{name}", css=style, js=script)
