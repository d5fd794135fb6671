"""What a figure or a table can be taken along as: its numbers as CSV, Parquet or JSON, its picture as PNG, SVG or HTML.

Nothing is made before it is asked for. The browser draws the pictures itself, with the plotly.js that a standalone page
of the figure carries, so that they look like what is on the screen and need no other program and no network.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Callable

import pandas as pd
import plotly.graph_objects as go
import plotly.io as pio
import pyarrow as pa
import pyarrow.parquet as pq
import streamlit as st

from app.guard import guarded
from app.theme import theme
from core.store.values import no_formula

Frame = pd.DataFrame | Callable[[], pd.DataFrame]
PICTURES = ("PNG", "SVG")
SCALE = 2
"""Pixels of a PNG to one of the page."""
WIDTH, LEAST_HEIGHT, TITLE = 1000, 400, 40
ROOM = {"l": 64, "r": 28, "t": 28, "b": 60}
"""Of a picture in pixels: its size, what its title takes, and what is left free on each side at least."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_-]+")
_LONGEST = 80


def as_csv(frame: pd.DataFrame) -> bytes:
    """UTF-8, empty for null. A text that a spreadsheet would run as a formula gets an apostrophe before it."""
    kept = frame.copy()
    for name in filter(lambda name: _is_text(kept[name]), kept.columns):
        kept[name] = [no_formula(_text_or_null(value)) for value in kept[name]]
    return kept.rename(columns=no_formula).to_csv(index=False).encode("utf-8", "replace")


def as_parquet(frame: pd.DataFrame) -> bytes:
    """Every column with its own type; what is neither number nor truth value is text."""
    columns = {
        str(name): pa.array(list(map(_text_or_null, frame[name])), pa.string())
        if _is_text(frame[name])
        else pa.Array.from_pandas(frame[name])
        for name in frame.columns
    }
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def as_json(frame: pd.DataFrame) -> bytes:
    """A list with an object a row, numbers to the last digit; null where there is none, and for an infinite one."""
    columns = {str(name): _plain(frame[name]) for name in frame.columns}
    made = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    return json.dumps(made, indent=1, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")


def _plain(column: pd.Series) -> list[object]:
    """A column as JSON has it. `tolist` gives Python's own numbers, which print to the digit that tells them apart."""
    if _is_text(column):
        return list(map(_text_or_null, column))
    return [None if pd.isna(value) or value in (math.inf, -math.inf) else value for value in column.tolist()]


FORMS: dict[str, tuple[Callable[[pd.DataFrame], bytes], str]] = {
    "CSV": (as_csv, "text/csv"),
    "Parquet": (as_parquet, "application/vnd.apache.parquet"),
    "JSON": (as_json, "application/json"),
}


def _is_text(column: pd.Series) -> bool:
    return not (pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column))


def _text_or_null(value: object) -> str | None:
    """As text, and a lone surrogate as a question mark: no file can hold one."""
    return None if pd.isna(value) else str(value).encode("utf-8", "replace").decode()


def page_of(fig: go.Figure, name: str) -> bytes:
    """The figure as a page that stands alone, with plotly.js in it: it zooms, and its camera saves a picture."""
    config = {"displaylogo": False, "toImageButtonOptions": {"format": "svg", "filename": name}}
    return pio.to_html(_alone(fig), include_plotlyjs=True, config=config, div_id="figure").encode("utf-8", "replace")


def saving_page(fig: go.Figure, name: str, kind: str) -> str:
    """A page that draws the figure and has the browser save it as a PNG or SVG."""
    wanted = {"format": kind.lower(), "filename": name, "scale": SCALE if kind == "PNG" else 1}
    drawn = _alone(fig)
    wanted |= {"width": drawn.layout.width or WIDTH, "height": drawn.layout.height}
    script = f"Plotly.downloadImage(document.getElementById('{{plot_id}}'), {json.dumps(wanted)});"
    return pio.to_html(drawn, include_plotlyjs=True, div_id="figure", post_script=script)


def _alone(fig: go.Figure) -> go.Figure:
    """The figure with what the page around it gave it: a background, its title, and room for that."""
    colours, drawn = theme(), go.Figure(fig)
    own = drawn.layout.margin.to_plotly_json()
    room = {side: max(own.get(side) or 0, least) for side, least in ROOM.items()}
    room["t"] += TITLE if drawn.layout.title.text else 0
    place = {"x": 0, "xref": "container", "xanchor": "left", "y": 1, "yref": "container", "yanchor": "top"}
    return drawn.update_layout(
        paper_bgcolor=colours.background, plot_bgcolor=colours.background, margin=room,
        height=max(LEAST_HEIGHT, (drawn.layout.height or 0) + TITLE), font={"color": colours.text},
        title={**place, "pad": {"t": 16, "l": 16}},
    )  # fmt: skip


def file_name(view: str) -> str:
    """A name of letters, digits and dashes: the run and the step of the address, where there is one, and the view."""
    runs, steps = (st.query_params.get_all(name) for name in ("run", "step"))
    pieces = [*(runs if len(runs) == 1 else ()), view, *(f"step {step}" for step in steps[:1])]
    return "-".join(filter(None, (_UNSAFE.sub("-", piece[:_LONGEST]).strip("-") for piece in pieces))) or "figure"


def menu(
    view: str, *, key: str, frame: Frame | None = None, fig: go.Figure | None = None, label: str = ""
) -> None:  # fmt: skip
    """A small menu that offers a figure's numbers and its picture, drawn once it is opened. `label` is Markdown."""
    if frame is not None or fig is not None:
        st.fragment(lambda: guarded(lambda: _menu(view, key, frame, fig, label)))()


def _menu(view: str, key: str, frame: Frame | None, fig: go.Figure | None, label: str) -> None:
    place = st.popover(
        label, type="tertiary", icon=":material/download:", key=f"download:{key}", on_change="rerun",
        help="Download the numbers or the picture" if fig is not None else "Download the table",
    )  # fmt: skip
    if not place.open:
        return
    with place:
        name = file_name(view)
        if frame is not None:
            st.caption("The numbers")
            with st.container(horizontal=True, gap="small"):
                for form in FORMS:
                    numbers(form, frame, name, key=key)
        if fig is not None:
            st.caption("The picture, as it is now")
            with st.container(horizontal=True, gap="small"):
                asked = [kind for kind in PICTURES if st.button(kind, key=f"{kind}:{key}")]
                st.download_button(
                    "HTML", lambda: page_of(fig, name), f"{name}.html", "text/html", key=f"html:{key}",
                    on_click="ignore", help="A page that stands alone, 5 MB, and can be zoomed without a network",
                )  # fmt: skip
            for kind in asked:
                st.caption(f"The browser saves {name}.{kind.lower()}.")
                st.iframe(saving_page(fig, name, kind), height=1)


def numbers(form: str, frame: Frame, name: str, *, key: str) -> None:
    """The button that gives a frame, or what makes one, in one of FORMS; made when clicked."""
    made, mime = FORMS[form]

    def content() -> bytes:
        return made(frame() if callable(frame) else frame)

    st.download_button(
        form, content, f"{name}.{form.lower()}", mime, key=f"{form.lower()}:{key}", on_click="ignore"
    )  # fmt: skip
