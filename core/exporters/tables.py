"""A whole table of a run as one file: DuckDB streams it, so that its size does not matter."""

from __future__ import annotations

import os
from pathlib import Path

import duckdb

from core.exporters.adapter import ExportError
from core.store import Lab, schema
from core.store.sources import identifier

FORMS = {
    ".parquet": "FORMAT parquet, COMPRESSION zstd",
    ".csv": "FORMAT csv, HEADER",
    ".json": "FORMAT json, ARRAY true",
    ".jsonl": "FORMAT json",
}
MEMORY_MB = 1024
KEYS = (*schema.KEYS, "polarity", "bin", "field", "token_id")


def write_table(run_dir: Path, table: str, out: Path) -> int:
    """Write one of `schema.TABLES`, its form by the file's ending; returns its rows, which are in order. JSON has null
    where a number is none. Raises ExportError for another table or ending, or where `out` is there; StoreError.
    """
    if table not in schema.TABLES:
        raise ExportError(f"{table!r} is no table: name one of {', '.join(schema.TABLES)}")
    if out.suffix.lower() not in FORMS:
        raise ExportError(f"{out}: name a file that ends in {', '.join(FORMS)}")
    if out.exists():
        raise ExportError(f"{out} is already there: name a file that is not")
    part = out.with_name(f".{out.name}.{os.getpid()}")
    with Lab([run_dir]) as lab:
        lab.limit_memory(MEMORY_MB)
        types = lab.columns(table)
        json = out.suffix.lower() in (".json", ".jsonl")
        columns = ", ".join(_finite(name, kind) if json else identifier(name) for name, kind in types.items())
        order = ", ".join(identifier(key) for key in KEYS if key in types)
        target = str(part).replace("'", "''")
        cursor = lab.cursor((table,))
        try:
            query = f"COPY (SELECT {columns} FROM {table} ORDER BY {order}) TO '{target}' ({FORMS[out.suffix.lower()]})"
            (rows,) = cursor.execute(query).fetchone() or (0,)
            os.replace(part, out)
        except duckdb.Error as error:
            raise ExportError(f"{out} cannot be written: {str(error).partition(chr(10))[0]}") from error
        finally:
            cursor.close()
            part.unlink(missing_ok=True)
    return int(rows)


def _finite(name: str, kind: str) -> str:
    """A column of JSON, which knows neither NaN nor infinity."""
    column = identifier(name)
    return f"CASE WHEN isfinite({column}) THEN {column} END AS {column}" if kind in ("FLOAT", "DOUBLE") else column
