"""Figures of several panels, put together as plain dicts: plotly's own subplots take half a second to build, these a
few ms.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import plotly.graph_objects as go

from app.palette import Theme, rgba
from app.views.base import figure


class Panels:
    """A grid of panels with the common layout. Rows and columns count from 1, the first row is the top one.

    Panels of a row share the y axis unless `own_y` names their column; all panels share the x axis's range with
    `link_x`. Column titles may each have a colour.
    """

    def __init__(
        self,
        theme: Theme,
        title: str,
        *,
        rows: int = 1,
        heads: Sequence[tuple[str, str]],
        height: int,
        widths: Sequence[float] | None = None,
        own_y: frozenset[int] = frozenset(),
        link_x: bool = True,
        left: int = 64,
    ) -> None:
        self.theme, self.rows, self.cols = theme, rows, len(heads)
        self.traces: list[dict[str, Any]] = []
        self.layout: dict[str, Any] = copy.deepcopy(_common(theme))
        self.layout["title"]["text"], self.layout["height"] = title, height
        style = self.layout.pop("xaxis")
        self.layout.pop("yaxis")
        self.layout["margin"] = {"l": left, "r": 12, "t": 30, "b": 50}
        style = {**style, "automargin": False, "title": {"font": {"color": theme.muted, "size": 13}, "standoff": 10}}
        across_style = {**style, "title": {**style["title"], "standoff": 16}}
        widths = widths or [1 / self.cols] * self.cols
        gap_x, gap_y = 0.05, 0.14 / rows
        room_x, room_y = 1 - gap_x * (self.cols - 1), 1 - gap_y * (rows - 1)
        starts = [sum(widths[:col]) * room_x + gap_x * col for col in range(self.cols)]
        for row in range(1, rows + 1):
            top = 1 - (row - 1) * (room_y / rows + gap_y)
            for col in range(1, self.cols + 1):
                x, y = self.axes(row, col)
                across = [starts[col - 1], starts[col - 1] + widths[col - 1] * room_x]
                self.layout[x] = {**across_style, "domain": across, "anchor": _short(y)}
                self.layout[y] = {**style, "domain": [max(0.0, top - room_y / rows), top], "anchor": _short(x)}
                if link_x and (row, col) != (1, 1):
                    self.layout[x]["matches"] = "x"
                if row < rows:
                    self.layout[x]["showticklabels"] = False
                if col > 1 and col not in own_y:
                    self.layout[y] |= {"matches": _short(self.axes(row, 1)[1]), "showticklabels": False}
        self.layout["annotations"] = [
            {
                "text": text, "x": start + width * room_x / 2, "y": 1, "xref": "paper", "yref": "paper",
                "showarrow": False,
                "xanchor": "center", "yanchor": "bottom", "yshift": 6, "font": {"size": 13, "color": colour},
            }
            for (text, colour), start, width in zip(heads, starts, widths, strict=True)
        ]  # fmt: skip
        self.layout["shapes"] = []

    def axes(self, row: int, col: int) -> tuple[str, str]:
        """The layout's names of a panel's axes."""
        number = (row - 1) * self.cols + col
        end = "" if number == 1 else str(number)
        return f"xaxis{end}", f"yaxis{end}"

    def add(self, row: int, col: int, trace: dict[str, Any]) -> None:
        x, y = self.axes(row, col)
        self.traces.append({**trace, "xaxis": _short(x), "yaxis": _short(y)})

    def x(self, row: int, col: int, **changes: Any) -> None:
        self._change(self.axes(row, col)[0], changes)

    def y(self, row: int, col: int, **changes: Any) -> None:
        self._change(self.axes(row, col)[1], changes)

    def fit_y(self, row: int, from_zero: bool = False) -> None:
        """Give the shared y axis of a row the range of its data; `from_zero` begins it at 0 where nothing lies below.

        Set here because plotly's own range of axes that match forgets some of them once the x axis has a range.
        """
        own = [name for name in (self.axes(row, col)[1] for col in range(1, self.cols + 1)) if self._shares(name)]
        short = {_short(name) for name in own}
        values = [np.asarray(t["y"], dtype=float) for t in self.traces if t["yaxis"] in short]
        finite = np.concatenate([value[np.isfinite(value)] for value in values]) if values else np.zeros(0)
        low, high = (finite.min(), finite.max()) if len(finite) else (0.0, 1.0)
        low = min(low, 0.0) if from_zero else low
        room = 0.06 * (high - low) or 0.5
        for name in own:
            self.layout[name]["range"] = [float(low if low == 0 and from_zero else low - room), float(high + room)]

    def _shares(self, axis: str) -> bool:
        first = self.axes((int(axis.removeprefix("yaxis") or 1) - 1) // self.cols + 1, 1)[1]
        return axis == first or self.layout[axis].get("matches") == _short(first)

    def band(self, first: float, last: float, cols: Sequence[int] | None = None) -> None:
        """A light band over steps first..last in every panel, or in those of some columns."""
        for row in range(1, self.rows + 1):
            for col in cols or range(1, self.cols + 1):
                x, y = self.axes(row, col)
                self.layout["shapes"].append(band(first, last, self.theme, _short(x), _short(y)))

    def line(self, row: int, col: int, y: float) -> None:
        """A thin level line across a panel."""
        x_axis, y_axis = self.axes(row, col)
        self.layout["shapes"].append(
            {
                "type": "line", "xref": f"{_short(x_axis)} domain", "yref": _short(y_axis), "x0": 0, "x1": 1,
                "y0": y, "y1": y,
                "line": {"color": self.theme.muted, "width": 1}, "layer": "below",
            }
        )  # fmt: skip

    def figure(self) -> go.Figure:
        return go.Figure({"data": self.traces, "layout": self.layout})

    def _change(self, axis: str, changes: dict[str, Any]) -> None:
        if "title" in changes:
            changes["title"] = {**self.layout[axis]["title"], "text": changes["title"]}
        self.layout[axis] |= changes


@lru_cache(maxsize=8)
def _common(theme: Theme) -> dict[str, Any]:
    """The layout that all figures share, made once: plotly takes its time."""
    return figure(theme, title="", x="", y="", legend=False).layout.to_plotly_json()


def band(first: float, last: float, theme: Theme, x: str = "x", y: str = "y") -> dict[str, Any]:
    """The shape that marks steps first..last on one pair of axes."""
    return {
        "type": "rect", "xref": x, "yref": f"{y} domain", "x0": first - 0.5, "x1": last + 0.5, "y0": 0, "y1": 1,
        "fillcolor": rgba(theme.muted, 0.12), "line": {"width": 0}, "layer": "below",
    }  # fmt: skip


def line(x: Any, y: Any, colour: str, name: str, fmt: str, dash: str = "solid") -> dict[str, Any]:
    """A curve whose points can be clicked; they are drawn where there are few."""
    seen = 1 if len(x) <= 30 else 0
    return {
        "type": "scatter", "x": np.asarray(x), "y": np.asarray(y, dtype=float), "name": name, "mode": "lines+markers",
        "marker": {"size": 5 if seen else 9, "color": colour, "opacity": seen},
        "selected": {"marker": {"opacity": 1, "size": 9}}, "unselected": {"marker": {"opacity": seen}},
        "line": {"color": colour, "width": 2, "dash": dash},
        "hovertemplate": f"%{{y:{fmt}}}", "showlegend": False,
    }  # fmt: skip


def _short(axis: str) -> str:
    """`x2` of `xaxis2`."""
    return axis.replace("axis", "")
