"""The common ground of all figures: one layout, the theme's colours, axes that name their units."""

from __future__ import annotations

import plotly.graph_objects as go

from app.palette import Theme

FONT = '"Source Sans", "Source Sans Pro", sans-serif'


def figure(
    theme: Theme,
    *,
    title: str,
    x: str,
    y: str,
    height: int = 280,
    legend: bool = True,
    hover: str = "x unified",
) -> go.Figure:
    """An empty figure with a title and axes; write units into the axis titles (`entropy (nats)`).

    The title is the caller's own words. `app.widgets.chart` draws it above the figure, so that the tools of a figure
    stand beside it; exports keep it. The legend lies above the axes, where it can wrap without covering a curve.
    """
    axis = {
        "gridcolor": theme.grid, "zerolinecolor": theme.grid, "linecolor": theme.grid, "tickcolor": theme.grid,
        "tickfont": {"color": theme.muted, "size": 12}, "automargin": True,
    }  # fmt: skip
    named = {"font": {"color": theme.muted, "size": 13}, "standoff": 8}
    return go.Figure(
        layout={  # in one piece: updating a figure costs far more than making it
            "title": {"text": title, "font": {"size": 15, "color": theme.text}, "x": 0, "xanchor": "left"},
            "height": height,
            "margin": {"l": 8, "r": 12, "t": 12, "b": 8},
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
            "font": {"family": FONT, "color": theme.text, "size": 13},
            "hovermode": hover,
            "hoverlabel": {
                "bgcolor": theme.surface, "bordercolor": theme.grid, "font": {"color": theme.text, "size": 13},
            },
            "showlegend": legend,
            "legend": {
                "orientation": "h", "yanchor": "bottom", "y": 1.02, "xanchor": "left", "x": 0,
                "font": {"color": theme.text, "size": 12}, "bgcolor": "rgba(0,0,0,0)",
            },
            "separators": ".\u202f",
            "xaxis": {**axis, "title": {**named, "text": x}},
            "yaxis": {**axis, "title": {**named, "text": y, "standoff": 14}},  # clear of the tick labels
        }
    )  # fmt: skip
