"""Figures for the back of a classroom: type, lines and markers larger, and the room they then need."""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

PLOTLY_FONT, PLOTLY_HEIGHT = 12, 450
"""What plotly draws with where a figure does not say."""
_DISTANCES = {"standoff", "xshift", "yshift"}


def enlarged(fig: go.Figure, scale: float) -> go.Figure:
    """The figure `scale` times as large in all that is counted in pixels, its height by half of that; the same one for
    a scale of 1. Square markers keep their size: they fill the cells of a grid.
    """
    if scale == 1:
        return fig
    drawn = fig.to_dict()
    _enlarge(drawn, scale, "")
    layout = drawn["layout"]
    layout.setdefault("font", {}).setdefault("size", PLOTLY_FONT * scale)
    layout["height"] = layout.get("height", PLOTLY_HEIGHT) * (1 + scale) / 2
    layout["margin"] = {side: value * scale for side, value in layout.get("margin", {}).items()}
    return go.Figure(drawn)


def _enlarge(node: Any, scale: float, name: str) -> None:
    """Enlarge in place what lies under the key `name`."""
    if isinstance(node, list | tuple):
        for item in node:
            _enlarge(item, scale, name)
    elif isinstance(node, dict):
        for key, value in node.items():
            if _in_pixels(node, name, key) and isinstance(value, int | float | np.ndarray):
                node[key] = value * scale
            else:
                _enlarge(value, scale, key)


def _in_pixels(node: dict[str, Any], name: str, key: str) -> bool:
    if key == "size":
        return name.endswith("font") or (name == "marker" and "square" not in str(node.get("symbol")))
    return key in _DISTANCES or (key == "width" and name == "line")
