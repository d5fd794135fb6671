"""A query's answer as a file, every row of it: Parquet by Arrow's batches, CSV and JSON row by row."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from core.store.errors import StoreError
from core.store.values import apart, no_formula, plain_value

ROWS = 2048
"""Rows of a batch."""


def write_file(connection: duckdb.DuckDBPyConnection, sql: str, file: Path, form: str, safe: bool, most: int) -> int:
    """Write what a SELECT gives, in a form of `core.store.sql.FORMS`; returns its rows.

    `safe` keeps a spreadsheet from running texts of a CSV. JSON has null for a number that is none. Raises StoreError
    where the file would be larger than `most` bytes, duckdb.Error.
    """
    writer = {".csv": _csv, ".json": _json, ".jsonl": _lines, ".parquet": _parquet}[form]
    binary = form == ".parquet"
    rows = 0
    with file.open("wb") if binary else file.open("w", encoding="utf-8", errors="replace", newline="") as out:
        for written in writer(out, connection, sql, safe):
            rows += written
            if out.tell() > most:
                raise StoreError(f"the answer is larger than {most / 2**20:,.0f} MB; choose fewer rows or columns")
    return rows


def _parquet(out: BinaryIO, connection: duckdb.DuckDBPyConnection, sql: str, safe: bool) -> Iterator[int]:
    reader = connection.sql(sql).to_arrow_reader(ROWS)
    names = apart(reader.schema.names)
    columns = pa.schema([_kept(field).with_name(name) for field, name in zip(reader.schema, names, strict=True)])
    with pq.ParquetWriter(out, columns, compression="zstd") as writer:
        for batch in reader:
            arrays = [column.cast(field.type) for column, field in zip(batch.columns, columns, strict=True)]
            writer.write_batch(pa.record_batch(arrays, schema=columns))
            yield batch.num_rows


def _kept(field: pa.Field) -> pa.Field:
    """A column of a type that Parquet's readers know: one of nulls alone becomes texts. Raises StoreError."""
    if pa.types.is_interval(field.type):
        raise StoreError(f"{field.name} is an interval, which Parquet has no type for: write CAST(… AS VARCHAR)")
    return field.with_type(pa.string()) if pa.types.is_null(field.type) else field


def _csv(out: TextIO, connection: duckdb.DuckDBPyConnection, sql: str, safe: bool) -> Iterator[int]:
    """RFC 4180, with \\n between lines; NULL is an empty field, a number that is none is nan."""
    writer = csv.writer(out, lineterminator="\n")
    names, batches = _batches(connection, sql)
    writer.writerow(map(no_formula, names) if safe else names)
    for rows in batches:
        writer.writerows([map(no_formula, row) for row in rows] if safe else rows)
        yield len(rows)


def _json(out: TextIO, connection: duckdb.DuckDBPyConnection, sql: str, safe: bool) -> Iterator[int]:
    """A list with an object a row, each on a line of its own."""
    first = True
    out.write("[")
    for objects in _objects(connection, sql):
        for one in objects:
            out.write(f"{'' if first else ','}\n{one}")
            first = False
        yield len(objects)
    out.write("\n]\n")


def _lines(out: TextIO, connection: duckdb.DuckDBPyConnection, sql: str, safe: bool) -> Iterator[int]:
    for objects in _objects(connection, sql):
        out.writelines(f"{one}\n" for one in objects)
        yield len(objects)


def _objects(connection: duckdb.DuckDBPyConnection, sql: str) -> Iterator[list[str]]:
    names, batches = _batches(connection, sql)
    for rows in batches:
        plain = (dict(zip(names, map(plain_value, row), strict=True)) for row in rows)
        yield [json.dumps(row, ensure_ascii=False, allow_nan=False, default=str) for row in plain]


def _batches(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[list[str], Iterator[list[tuple[Any, ...]]]]:
    cursor = connection.execute(sql)
    return apart([column[0] for column in cursor.description or []]), iter(lambda: cursor.fetchmany(ROWS), [])
