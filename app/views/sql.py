"""The SQL page's parts: a result as a table that Streamlit can show, a quick chart of it, and the schema beside it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from app.inert import inert_html, inert_plotly, visible
from app.palette import Theme, series_styles
from app.views.base import figure
from core.store import schema
from core.store.sql import Result

ABOUT = {
    "metrics": "one row a step of a run",
    "groups": "one row a prompt at a step",
    "rollouts": "one row a response",
    "tokens": "one row a token of a response",
    "evals": "one row a held-out evaluation",
    "summary": "sums over tokens by step, polarity and tenth of the response, one row a field",
    "positions": "sums over tokens by step, polarity and position",
    "strings": "sums over tokens by step, polarity and token string",
}
NEWER = ("positions", "strings")
"""Tables that runs of an earlier version of the lab lack."""
SHOWN_BYTES, SHOWN_CHARACTERS = 1_500_000, 300
"""What a page ships of a result, and of one cell; the download has it all."""
MOST_SERIES, MOST_POINTS = 12, 4000
SYMBOLS = ("circle", "diamond", "triangle-up", "x", "star", "cross")
KEYS = (*schema.KEYS, "polarity", "token_id", "n", "steps")
"""Numbers that name rows rather than tell something of them."""
CELL_NAMES = 40

_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT",
            "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL")  # fmt: skip


@dataclass(frozen=True)
class Field:
    """A column of the schema as a reader needs it."""

    name: str
    type: str
    unit: str
    doc: str


def fields(types: Mapping[str, str], table: str) -> list[Field]:
    """The columns of a table: `types` are their SQL types in order, the factors of the open runs included."""
    known = {column.name: column for column in schema.COLUMNS[table]}
    found = [Field("run", "VARCHAR", "", "the run's id, the name of its folder")]
    for name, sql_type in types.items():
        column = known.get(name)
        factor = f"factor {name.removeprefix(schema.FACTOR_PREFIX)} of a method; null in runs without it"
        found.append(Field(name, sql_type, column.unit if column else "", column.doc if column else factor))
    return found


def schema_html(tables: Mapping[str, Sequence[Field]], find: str, theme: Theme) -> str:
    """The tables as HTML that folds; with `find` only what has it in a name or its meaning, opened. '' for nothing."""
    wanted, parts = find.strip().lower(), []
    for table, columns in tables.items():
        whole = wanted in f"{table} {ABOUT[table]}".lower()
        rows = [one for one in columns if whole or wanted in f"{one.name} {one.doc} {one.unit}".lower()]
        if rows:
            parts.append(_table_html(table, rows, theme, opened=bool(wanted)))
    return "".join(parts)


def _table_html(table: str, rows: Sequence[Field], theme: Theme, opened: bool) -> str:
    name = "background:none;padding:0;font-weight:650;font-size:.9rem"
    note = f"color:{theme.muted};font-size:.82rem"
    row_style = "margin:0.35rem 0 0 0.9rem;line-height:1.35;overflow-wrap:anywhere"
    lines = "".join(
        f"<div style='{row_style}'><code style='{name};color:{theme.text}'>{inert_html(_quoted(row.name))}</code> "
        f"<span style='{note}'>"
        f"{inert_html(' · '.join(filter(None, (row.type, row.unit))))}<br>{inert_html(row.doc)}</span></div>"
        for row in rows
    )
    return (
        f"<details data-table='{table}' style='margin-bottom:.5rem;line-height:1.4'{' open' if opened else ''}>"
        f"<summary style='cursor:pointer'><code style='{name};color:{theme.reinforced}'>{table}</code> "
        f"<span style='{note}'>{ABOUT[table]}</span></summary>{lines}</details>"
    )


def _quoted(name: str) -> str:
    return f'"{name}"' if name == "group" else name


def frame(result: Result) -> pd.DataFrame:
    """A result with numbers as numbers, truth values as such, and all else as text that cannot hide anything.

    Columns of one name get a number, so that none hides another.
    """
    columns: dict[str, pd.Series] = {}
    for place, (name, sql_type) in enumerate(zip(result.columns, result.types, strict=True)):
        values = [row[place] for row in result.rows]
        label, again = visible(name)[:CELL_NAMES] or "∅", 1
        while label in columns:
            again += 1
            label = f"{visible(name)[:CELL_NAMES]} ({again})"
        columns[label] = _series(values, sql_type)
    return pd.DataFrame(columns)


def _series(values: list[object], sql_type: str) -> pd.Series:
    kind = sql_type.partition("(")[0]
    if sql_type == "BOOLEAN":
        return pd.Series(values, dtype="boolean")
    if kind in _NUMBERS:
        whole = kind.endswith("INT") or kind == "INTEGER"
        if whole and all(value is None or abs(value) < 2**63 for value in values):
            return pd.Series(values, dtype="Int64")
        return pd.Series([math.nan if value is None else float(value) for value in values], dtype="float64")
    return pd.Series([None if value is None else visible(value) for value in values], dtype="object")


def excerpt(table: pd.DataFrame) -> pd.DataFrame:
    """What a page shows of a result: its first rows, long texts cut with an …"""
    shown = table.copy()
    size = pd.Series(9 * len(table.columns), index=table.index)
    for name in table.columns:
        if table[name].dtype == object:
            shown[name] = table[name].map(_cut, na_action="ignore")
            size += shown[name].str.len().fillna(0).astype(int)
    return shown[size.cumsum() <= SHOWN_BYTES]


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_CHARACTERS else text[: SHOWN_CHARACTERS - 1] + "…"


def numbers(table: pd.DataFrame) -> list[str]:
    """The columns that hold numbers."""
    return [name for name in table.columns if table[name].dtype in ("Int64", "float64")]


def chart_defaults(table: pd.DataFrame) -> tuple[str, str, str | None]:
    """(x, y, colour) of a first chart: over steps, a curve for each "answers", polarity or run. It needs a number."""
    kinds = {name: table[name].nunique() for name in table.columns}
    x = next((name for name in ("step", *table.columns) if kinds.get(name, 0) > 1), table.columns[0])
    values = [name for name in numbers(table) if name != x] or numbers(table)
    y = next((name for name in values if name not in KEYS and kinds[name] > 1), values[-1])
    parts = (name for name in ("answers", "polarity", "run") if name != x)
    by = next((name for name in parts if 1 < kinds.get(name, 0) <= MOST_SERIES), None)
    return x, y, by


def chart(table: pd.DataFrame, x: str, y: str, by: str | None, theme: Theme) -> tuple[go.Figure, str]:
    """Curves where x is a number that grows in each series, else points; and in words what was left out."""
    said = []
    names = list(dict.fromkeys(table[by].map(str))) if by else [""]
    if len(names) > MOST_SERIES:
        said.append(f"the first {MOST_SERIES} of {len(names)} values of {visible(by)} are drawn")
    series = [(name, table[table[by].map(str) == name] if by else table) for name in names[:MOST_SERIES]]
    every = max(1, math.ceil(sum(len(rows) for _, rows in series) / MOST_POINTS))
    if every > 1:
        said.append(f"one row in {every} is drawn")
    grows = all(rows[x].is_monotonic_increasing and rows[x].is_unique for _, rows in series)
    along = grows and x in numbers(table)
    title = f"{y} by {x}" + (f", one colour for each {by}" if by else "")
    words = {"title": inert_plotly(title, 100), "x": inert_plotly(x, 60), "y": inert_plotly(y, 60)}
    fig = figure(theme, **words, height=340, legend=by is not None, hover="closest")
    for place, ((name, rows), (colour, dash)) in enumerate(zip(series, _styles(by, names, theme), strict=False)):
        drawn = rows.iloc[::every]
        fig.add_scatter(
            x=_axis(drawn[x]),
            y=_axis(drawn[y]),
            name=inert_plotly(name, 40),
            mode="lines+markers" if along else "markers",
            marker={"color": colour, "size": 5 if along else 7, "symbol": SYMBOLS[place % len(SYMBOLS)]},
            line={"color": colour, "dash": dash, "width": 2},
        )
    return fig, "; ".join(said)


def _styles(by: str | None, names: Sequence[str], theme: Theme) -> list[tuple[str, str]]:
    """Polarity has its own colours; all else takes those of Okabe and Ito."""
    if by == "polarity" and set(names) <= {"1", "-1"}:
        return [(theme.polarity(int(name)), "solid") for name in names]
    return series_styles(min(len(names), MOST_SERIES), theme.dark)


def _axis(values: pd.Series) -> np.ndarray | list[str]:
    if pd.api.types.is_numeric_dtype(values):
        return values.to_numpy(dtype=float, na_value=math.nan)
    return [inert_plotly("–" if pd.isna(value) else value, 40) for value in values]
