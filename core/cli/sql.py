"""`sql`: a person's own read-only query over runs, as a table, CSV or JSON, or every row of it as a file."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from core.cli.common import AsJson, RunsFolder, find_run, one_line, print_json
from core.runs import RunError, list_runs, runs_root

CELL = 60
"""Characters of a cell in the table; --csv and --json print all."""


def register(app: typer.Typer) -> None:
    app.command()(sql)


def sql(
    statement: Annotated[
        str,
        typer.Argument(
            metavar='"SELECT …"',
            help="Over metrics, evals, groups, rollouts, tokens, summary, positions and strings.",
        ),
    ],
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN…]", help="Runs to ask; else all of the folder, or the examples.")
    ] = None,
    runs: RunsFolder = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    as_json: AsJson = False,
    limit: Annotated[int, typer.Option(min=1, max=10**9, metavar="ROWS", help="Most rows to print.")] = 10_000,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="Write every row: .csv, .json, .jsonl or .parquet."),
    ] = None,
    seconds: Annotated[float, typer.Option(min=0.1, max=86_400, help="The query is stopped after so long.")] = 20.0,
) -> None:
    """Ask the store in SQL, read-only: python -m core sql "SELECT run, max(reward) FROM metrics GROUP BY run"."""
    from core.store.sql import query, query_file
    from core.store.values import apart, plain_value

    if as_csv + as_json + (out is not None) > 1:
        raise RunError("give one of --csv, --json and --out: a file's ending says its form")
    root = runs_root(runs)
    found = [find_run(name, runs) for name in names or ()] or list_runs(root, examples=False) or list_runs(root)
    if out is not None:
        rows = query_file([run.path for run in found], statement, out, seconds)
        typer.echo(f"{out}: {rows:,} rows ({out.stat().st_size / 2**20:.1f} MB)")
        return
    result = query([run.path for run in found], statement, seconds, limit)
    if as_json:
        names = apart(result.columns)
        print_json([dict(zip(names, map(plain_value, row), strict=True)) for row in result.rows])
    elif as_csv:
        typer.echo(as_csv_text(result.columns, result.rows), nl=False)
    else:
        for line in table(result.columns, result.rows):
            typer.echo(line)
    if result.truncated:
        typer.echo(f"only the first {limit} rows; --limit asks for more", err=True)


def as_csv_text(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """RFC 4180, with \\n between lines; NULL is an empty field."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue()


def table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> list[str]:
    """Aligned columns, numbers to the right; texts on one line, without terminal codes."""
    cells = [[_cell(value) for value in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)] if columns else []
    right = [all(isinstance(row[i], int | float | None) for row in rows) and bool(rows) for i in range(len(columns))]

    def line(row: Sequence[str]) -> str:
        padded = [c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)]
        return "  ".join(padded).rstrip()

    end = f"({len(rows)} row{'' if len(rows) == 1 else 's'})"
    return [line([one_line(name, CELL) for name in columns]), *map(line, cells), end]


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.6g}"
    return one_line(str(value), CELL)
