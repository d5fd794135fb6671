"""A whole run as positions x steps: the mean of a field in each cell, and its margins. Frames in, figures out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from app.palette import SIGN, Theme, diverging, rgba, sequential
from app.views.base import figure
from app.views.panels import band, line
from app.views.tokens_fields import FIELDS, Field, limit
from app.words import count, share
from core.store import schema

MAP_FIELDS: dict[str, Field] = {
    field.id: field
    for field in (
        *(field for field in FIELDS if field.id in ("advantage", "base_advantage", "push")),
        Field("mass", "mass", "", "amount", "loss weight × |advantage|: how much of the update a token asks for"),
        *(field for field in FIELDS if field.id in ("probability", "entropy", "change", "entropy_change")),
        Field("agreed", "moved as pushed", "", "probability", "share of tokens whose log-prob moved as pushed"),
    )
}
"""What a cell can show the mean of, by its name in `summary` and `positions`."""

FEW = 5
"""Cells of fewer tokens stay blank: their mean says little."""
MOST_COLUMNS, MOST_BINS = 200, 128
ANSWERS = {"all": 0, "right": 1, "wrong": -1}
"""Whose tokens are counted, and the polarity that they have (0 for both)."""


@dataclass(frozen=True)
class Grid:
    """Sums by place in the response and column of steps."""

    total: np.ndarray  # (bins, columns), sum of the field
    n: np.ndarray  # (bins, columns), tokens
    steps: np.ndarray  # (columns, 2), first and last step
    places: np.ndarray  # (bins, 2), first and last position, or the tenths' ends in percent
    absolute: bool

    @property
    def mean(self) -> np.ndarray:
        """(bins, columns), NaN where there are fewer than FEW tokens."""
        return np.where(self.n >= FEW, self.total / np.maximum(self.n, 1), np.nan)

    def profile(self, columns: np.ndarray) -> np.ndarray:
        """(bins,) means over some columns, NaN where they have fewer than FEW tokens."""
        n = self.n[:, columns].sum(axis=1)
        return np.where(n >= FEW, self.total[:, columns].sum(axis=1) / np.maximum(n, 1), np.nan)

    def column(self, step: int) -> int | None:
        """The column that a step lies in; None where there is none."""
        found = np.flatnonzero((self.steps[:, 0] <= step) & (step <= self.steps[:, 1]))
        return int(found[0]) if len(found) else None


def window_of(steps: np.ndarray, most: int = MOST_COLUMNS) -> int:
    """How wide (in steps) the columns must be for at most `most` of them; `steps` (n,) ascending, all different."""
    if len(steps) <= most:
        return 1
    return int(np.ceil((steps[-1] - steps[0] + 1) / (most - 1)))


def grid(frame: pd.DataFrame, steps: np.ndarray, every: int, polarity: int, absolute: bool) -> Grid:
    """`queries.tokens_run.by_tenth` or `by_position` as a grid; columns are windows of `every` steps (1: each step).

    `polarity` 0 counts both. Absolute bins beyond MOST_BINS are merged, several of them to one; those at the end that
    nowhere have FEW tokens are left out.
    """
    if polarity:
        frame = frame[frame["polarity"] == polarity]
    windows, first = np.unique(steps // every, return_index=True)
    last = np.append(first[1:], len(steps)) - 1
    column = np.searchsorted(windows, frame["step"].to_numpy() // every)
    number = frame["bin"].to_numpy().astype(np.int64)
    merged = -(-(int(number.max(initial=0)) + 1) // MOST_BINS) if absolute else 1
    bins = int(number.max(initial=0)) // merged + 1 if absolute else schema.SUMMARY_BINS
    place = number // merged * len(windows) + column

    def added(name: str) -> np.ndarray:
        weights = frame[name].to_numpy(dtype=float)
        return np.bincount(place, weights, bins * len(windows)).reshape(bins, len(windows))

    n, total = added("n"), added("sum")
    if absolute:
        shown = int(np.flatnonzero((n >= FEW).any(axis=1)).max(initial=0)) + 1
        starts = schema.bin_start(np.arange(shown + 1) * merged)
        places = np.stack([starts[:-1], starts[1:] - 1], axis=1)
        n, total = n[:shown], total[:shown]
    else:
        tenths = np.arange(bins) * 100 // bins
        places = np.stack([tenths, tenths + 100 // bins], axis=1)
    return Grid(total, n, np.stack([steps[first], steps[last]], axis=1), places, absolute)


def heatmap(shown: Grid, field: Field, whose: str, theme: Theme, chosen: int | None = None) -> go.Figure:
    """The grid as colours, under it the mean of each column (its points can be clicked), beside it the means by place
    at the beginning and now. `chosen` is a column to mark.
    """
    mean, unit = shown.mean, f" ({field.unit})" if field.unit else ""
    place = "position in the response (tokens)" if shown.absolute else "place in the response (%)"
    what = "Share of tokens that moved as pushed" if field.id == "agreed" else f"Mean {field.label}"
    of = "" if whose == "all" else f" of {whose} answers"
    fig = figure(
        theme, title=f"{what}{of} by step and place in the response", x="", y=place, height=560,
        legend=False, hover="closest",
    )  # fmt: skip
    x, y = _edges(shown.steps.mean(axis=1)), np.append(shown.places[:, 0], shown.places[-1, 1] + int(shown.absolute))
    now, then = ends(shown)
    middle = shown.places.mean(axis=1)
    profiles = [(f"first {_steps(shown, then)}", shown.profile(then), theme.muted, "dot")]
    profiles.append((f"last {_steps(shown, now)}", shown.profile(now), theme.text, "solid"))
    if chosen is not None:
        own = np.array([chosen])
        profiles.append((_steps(shown, own, chosen=True), shown.profile(own), theme.favorable, "solid"))
    fig.add_traces(
        [
            {
                "type": "heatmap", "x": x, "y": y, "z": mean, "customdata": _hover(shown), "xaxis": "x", "yaxis": "y",
                **_scale(mean, field, theme),
                "hoverongaps": False, "hovertemplate": "%{customdata[2]}, %{customdata[1]}<br>"
                f"{field.label} %{{z:.3g}}{' ' + field.unit if field.unit else ''}, n = %{{customdata[0]}}"
                "<extra></extra>",
            },
            {
                **line(shown.steps.mean(axis=1), _column_means(shown), theme.text, field.label, ".3g"),
                "xaxis": "x", "yaxis": "y2",
                "customdata": np.stack([_step_names(shown), shown.n.sum(axis=0).astype(int).astype(str)], axis=1),
                "hovertemplate": "%{customdata[0]}: %{y:.3g}, n = %{customdata[1]}<extra></extra>",
            },
            *(
                {
                    "type": "scatter", "mode": "lines", "x": values, "y": middle, "xaxis": "x2", "yaxis": "y",
                    "name": name, "line": {"color": colour, "width": 2, "dash": dash},
                    "hovertemplate": f"{name}: %{{x:.3g}}<extra></extra>", "showlegend": True,
                }
                for name, values, colour, dash in profiles
            ),
        ]
    )  # fmt: skip
    _lay_out(fig, shown, f"{field.label}{unit}", theme)
    if chosen is not None:
        first, last = shown.steps[chosen]
        frame = {"fillcolor": "rgba(0,0,0,0)", "line": {"width": 2, "color": theme.text}, "layer": "above"}
        fig.layout.shapes += (band(first, last, theme) | frame, band(first, last, theme, y="y2"))
    return fig


def ends(shown: Grid) -> tuple[np.ndarray, np.ndarray]:
    """The columns that are called now and the beginning: the last and the first tenth of them, at least one."""
    columns = np.arange(shown.n.shape[1])
    some = max(1, len(columns) // 10)
    return columns[-some:], columns[:some]


def agreement(frame: pd.DataFrame, theme: Theme) -> go.Figure:
    """Share of tokens that moved as pushed, over steps, right and wrong answers. `frame` is `agreed_by_window`."""
    fig = figure(
        theme, title="Tokens whose log-prob moved the way their advantage pushed", x="step",
        y="share of pushed tokens", height=260, hover="x unified",
    )  # fmt: skip
    for polarity, name in ((1, "right answers"), (-1, "wrong answers")):
        part = frame[frame["polarity"] == polarity]
        curve = line(part["step"], part["share"], theme.polarity(polarity), f"{SIGN[polarity]} {name}", ".0%")
        hover = {"customdata": part["pushed"].to_numpy(), "hovertemplate": "%{y:.0%} of %{customdata:,.0f} tokens"}
        fig.add_trace(curve | hover | {"showlegend": True})
    fig.add_shape(type="line", x0=0, x1=1, xref="x domain", y0=0.5, y1=0.5, line={"color": theme.muted, "dash": "dot"})
    fig.update_layout(yaxis={"range": [0, 1.02], "tickformat": ".0%"})
    return fig


def agreed_by_window(frame: pd.DataFrame, every: int) -> pd.DataFrame:
    """`queries.tokens_run.agreement` in windows of steps: step (the first), polarity, pushed, agreed, share."""
    if not len(frame):
        return frame.assign(share=np.zeros(0))
    window = frame["step"] // every
    summed = frame.groupby([window.rename("window"), "polarity"]).agg(
        step=("step", "min"), pushed=("pushed", "sum"), agreed=("agreed", "sum")
    )
    summed = summed.reset_index().drop(columns="window")
    return summed.assign(share=summed["agreed"] / summed["pushed"])


def verdict(agreed: pd.DataFrame) -> str:
    """How much of the run moved as pushed, in one sentence; '' where nothing was pushed. Markdown, no foreign text."""
    sides = {
        name: agreed.loc[agreed["polarity"] == polarity, ["agreed", "pushed"]].sum()
        for polarity, name in ((1, "right"), (-1, "wrong"))
    }
    pushed = sum(int(side["pushed"]) for side in sides.values())
    if not pushed:
        return ""
    moved = sum(int(side["agreed"]) for side in sides.values())
    each = [
        f"{share(side['agreed'] / side['pushed'])} in {name} answers" for name, side in sides.items() if side["pushed"]
    ]
    parts = f": {', '.join(each)}" if len(each) > 1 else f", all of them in {each[0].split(' in ')[1]}"
    return (
        f"Over the run the updates moved **{share(moved / pushed)}** of {count(pushed, 'token')} the way their "
        f"advantage pushed{parts}."
    )


def table(shown: Grid, field: Field) -> pd.DataFrame:
    """The cells that are drawn, as rows: steps, places, mean, n."""
    row, column = np.nonzero(shown.n >= FEW)
    place = "position" if shown.absolute else "percent"
    return pd.DataFrame(
        {
            "first_step": shown.steps[column, 0], "last_step": shown.steps[column, 1],
            f"first_{place}": shown.places[row, 0], f"last_{place}": shown.places[row, 1],
            f"mean_{field.id}": shown.mean[row, column], "n": shown.n[row, column].astype(int),
        }
    )  # fmt: skip


def _lay_out(fig: go.Figure, shown: Grid, label: str, theme: Theme) -> None:
    """Give the heat map most of the room, on grey for its blanks; the profile its right edge, the curve its foot."""
    x, y = fig.layout.xaxis.to_plotly_json(), fig.layout.yaxis.to_plotly_json()
    steps, last = _edges(shown.steps.mean(axis=1)), shown.places[-1, 1] + int(shown.absolute)
    ticks = {"tick0": 0, "dtick": 1} if steps[-1] - steps[0] <= 10 else {}
    grey = {
        "type": "rect", "xref": "x domain", "yref": "y domain", "x0": 0, "x1": 1, "y0": 0, "y1": 1, "layer": "below",
        "fillcolor": rgba(theme.muted, 0.18), "line": {"width": 0},
    }  # fmt: skip
    fig.update_layout(
        xaxis={"domain": [0, 0.76], "anchor": "y2", "title": {"text": "step"}, "showgrid": False, **ticks,
               "range": [float(steps[0]), float(steps[-1])]},
        yaxis={"domain": [0.3, 1], "range": [float(last), 0], "showgrid": False, "zeroline": False},
        xaxis2={**x, "domain": [0.81, 1], "anchor": "y", "title": {**x["title"], "text": label}, "nticks": 4},
        yaxis2={**y, "domain": [0, 0.25], "anchor": "x", "title": {**y["title"], "text": label}, "nticks": 4},
        legend={"x": 1, "xanchor": "right"}, margin={"t": 30}, showlegend=True, shapes=[grey],
    )  # fmt: skip


def _scale(mean: np.ndarray, field: Field, theme: Theme) -> dict[str, Any]:
    """Colours between the 2nd and the 98th percentile of the cells, zero-centred for signed fields."""
    bar = {"thickness": 10, "len": 0.7, "y": 1, "yanchor": "top", "x": 0.765, "xpad": 0, "nticks": 5, "outlinewidth": 0}
    bar |= {"tickfont": {"color": theme.muted, "size": 11}}
    if field.kind == "signed":
        reach = limit(mean) or 1.0
        return {"colorscale": diverging(theme), "zmin": -reach, "zmax": reach, "colorbar": bar}
    finite = mean[np.isfinite(mean)]
    low, high = np.percentile(finite, [2, 98]) if len(finite) else (0.0, 0.0)
    hue = theme.warning if field.kind == "amount" else None
    ends = {"zmin": float(low), "zmax": float(high)} if high > low else {"zmin": 0.0, "zmax": float(high) or 1.0}
    return {"colorscale": sequential(theme, hue), **ends, "colorbar": bar}


def _edges(centres: np.ndarray) -> np.ndarray:
    """(n + 1,) borders half way between columns."""
    if len(centres) == 1:
        return centres[0] + np.array([-0.5, 0.5])
    half = np.diff(centres) / 2
    return np.concatenate([[centres[0] - half[0]], centres[:-1] + half, [centres[-1] + half[-1]]])


def _column_means(shown: Grid) -> np.ndarray:
    n = shown.n.sum(axis=0)
    return np.where(n > 0, shown.total.sum(axis=0) / np.maximum(n, 1), np.nan)


def _hover(shown: Grid) -> np.ndarray:
    """(bins, columns, 3): tokens, place, step or steps; as text."""
    words = ("{} to {} %", "{} to {} %") if not shown.absolute else ("position {}", "positions {} to {}")
    places = np.array([words[int(a != b)].format(a, b) for a, b in shown.places.tolist()], object)
    return np.stack(
        [
            shown.n.astype(int).astype(object),
            np.broadcast_to(places[:, None], shown.n.shape),
            np.broadcast_to(_step_names(shown)[None, :], shown.n.shape),
        ],
        axis=2,
    )


def _step_names(shown: Grid) -> np.ndarray:
    return np.array([f"step {a}" if a == b else f"steps {a} to {b}" for a, b in shown.steps.tolist()], object)


def _steps(shown: Grid, columns: np.ndarray, chosen: bool = False) -> str:
    first, last = int(shown.steps[columns[0], 0]), int(shown.steps[columns[-1], 1])
    name = f"step {first}" if first == last else f"steps {first} to {last}"
    return name if chosen else f"({name})"
