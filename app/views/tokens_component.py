"""The component that draws the token view; it answers with the (rollout, position) that its reader chose."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from app.views.components import component

_component = component("tokens", "tokens_text")


def token_view(data: dict[str, Any], *, key: str, on_select: Callable[[int, int], None]) -> None:
    """Draw the payload of `app.views.tokens.payload`; `on_select(rollout, position)` is called before the next
    rerun.
    """

    def chosen() -> None:
        place = st.session_state[key].get("selected")
        if place and place.get("key") == data["key"]:
            on_select(int(place["rollout"]), int(place["position"]))

    _component(key=key, data=data, on_selected_change=chosen)
