"""Reading a dataset file row by row: JSONL, Parquet or CSV. What is no row is told, with its place, never skipped."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from core.tasks.base import TaskError

FIELD = "task.file.path"
KINDS = {".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet", ".csv": "csv", ".tsv": "csv"}
"""By the end of the file's name; nothing else is opened."""
LONGEST_LINE = 4 * 2**20
"""Bytes of a line of JSONL."""
BATCH = 1024
SNIFFED = 8
"""Lines of a table by which its separator is told."""
LONGEST_NAME = 2000
"""Bytes of a column's name, beyond which it cannot be chosen."""
LOOKED_AT = 50
"""Rows that are looked at for the names of the columns."""

Row = tuple[str, Mapping[str, Any] | str]
"""(where it stands, its columns, or why it is none)."""


def rows(path: Path, columns: Sequence[str] = ()) -> Iterator[Row]:
    """Every row in order; `columns` is all that is read, where the format allows. Raises TaskError for the file."""
    kind = KINDS.get(path.suffix.lower())
    if kind is None:
        raise TaskError(f"{FIELD}: {path} ends in {path.suffix or 'nothing'}; it must be a .jsonl, .parquet or .csv")
    if path.exists() and not path.is_file():
        raise TaskError(f"{FIELD}: {path} is no file")
    try:
        yield from {"jsonl": _jsonl, "parquet": _parquet, "csv": _csv}[kind](path, columns)
    except FileNotFoundError:
        raise TaskError(f"{FIELD}: there is no file {path}") from None
    except (OSError, ValueError) as error:
        if isinstance(error, TaskError):
            raise
        words = " ".join(str(getattr(error, "strerror", None) or error).split())[:200]
        raise TaskError(f"{FIELD}: {path} cannot be read ({words})") from error


def look(path: Path, count: int = 5) -> tuple[list[str], list[Row]]:
    """(the columns of the first rows that can be chosen, those within columns as `a.b`; the first `count` rows)."""
    first = list(islice(rows(path), LOOKED_AT))
    names: dict[str, None] = {}
    for _, row in first:
        for name, value in row.items() if isinstance(row, Mapping) else ():
            inner = value if isinstance(value, Mapping) else {}
            names |= dict.fromkeys([f"{name}.{key}" for key in inner] or [str(name)])
    return [name for name in names if _can_be_named(name)], first[:count]


def _can_be_named(column: str) -> bool:
    """Whether a config can say it: it is kept as UTF-8."""
    try:
        return len(column.encode()) <= LONGEST_NAME
    except UnicodeEncodeError:
        return False


def cell(row: Mapping[str, Any], column: str) -> Any:
    """The value of a column, or of a field within one; None where it is not there."""
    if column in row:
        return row[column]
    outer, _, inner = column.partition(".")
    place = row.get(outer)
    return place.get(inner) if inner and isinstance(place, Mapping) else None


def text_of(value: Any) -> str | None:
    """A cell as text: text, a number, a list of one of them, or the one message of a chat. None for anything else."""
    if isinstance(value, list) and len(value) == 1:
        (value,) = value
        if isinstance(value, Mapping) and value.get("role") in (None, "user"):
            value = value.get("content")
    if isinstance(value, float):
        value = None if value != value else int(value) if value.is_integer() and abs(value) < 1e15 else value
    return str(value) if isinstance(value, str | int | float) and not isinstance(value, bool) else None


def _jsonl(path: Path, _columns: Sequence[str]) -> Iterator[Row]:
    with path.open("rb") as file:
        number = 0
        while line := file.readline(LONGEST_LINE + 1):
            number += 1
            where = f"line {number}"
            if len(line) > LONGEST_LINE:
                while line and not line.endswith(b"\n"):
                    line = file.readline(LONGEST_LINE)
                yield where, f"a line of more than {LONGEST_LINE // 2**20} MB"
                continue
            if number == 1:
                line = line.removeprefix(b"\xef\xbb\xbf")
                if line.lstrip().startswith(b"["):
                    raise TaskError(f"{FIELD}: {path} is one JSON list; write one object a line (JSONL)")
            if line.strip():
                yield where, _object(line)


def _object(line: bytes) -> Mapping[str, Any] | str:
    try:
        row = json.loads(line.decode("utf-8"))
    except UnicodeDecodeError:
        return "not UTF-8"
    except (ValueError, RecursionError):
        return "not JSON"
    return row if isinstance(row, dict) else "not a JSON object"


def _csv(path: Path, _columns: Sequence[str]) -> Iterator[Row]:
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as file:
        reader = csv.reader(file, delimiter=_separator([file.readline(LONGEST_LINE) for _ in range(SNIFFED)], path))
        file.seek(0)
        try:
            header = next(reader, [])
        except csv.Error as error:
            raise TaskError(f"{FIELD}: the first line of {path} names no columns ({error})") from error
        if any("\ud800" <= char <= "\udfff" for name in header for char in name):
            raise TaskError(f"{FIELD}: the first line of {path} is not UTF-8; save the file as UTF-8")
        if len(set(header)) < len(header):
            raise TaskError(f"{FIELD}: {path} names a column twice in its first line")
        while True:
            try:
                fields = next(reader, None)
            except csv.Error:
                yield f"line {reader.line_num}", "not CSV"
                continue
            if fields is None:
                return
            if not fields:
                continue
            right = len(fields) == len(header)
            yield (
                f"line {reader.line_num}",
                dict(zip(header, fields, strict=True)) if right else ("not as many fields as the first line"),
            )


def _separator(lines: Sequence[str], path: Path) -> str:
    """What parts most of the first lines like the very first, then into the most columns: tables of half of Europe have
    semicolons in their .csv."""
    return max("\t," if path.suffix.lower() == ".tsv" else ",;\t", key=lambda sign: _agreeing(lines, sign))


def _agreeing(lines: Sequence[str], sign: str) -> tuple[int, int]:
    """(how many lines have the columns of the first, how many those are); (0, 0) if it has one alone."""
    try:
        counts = [len(fields) for fields in csv.reader(lines, delimiter=sign) if fields]
    except csv.Error:  # a field of more than 128 kB
        return 0, 0
    return (counts.count(counts[0]), counts[0]) if counts and counts[0] > 1 else (0, 0)


def _parquet(path: Path, columns: Sequence[str]) -> Iterator[Row]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    if path.stat().st_size == 0:
        raise TaskError(f"{FIELD}: {path} is empty")
    try:
        with pq.ParquetFile(path) as file:
            there = file.schema_arrow.names
            wanted = [name for name in there if name in {part for c in columns for part in (c, c.partition(".")[0])}]
            number = 0
            for batch in file.iter_batches(BATCH, columns=wanted if columns else None):
                for row in batch.to_pylist():
                    number += 1
                    yield f"row {number}", row
    except (pa.ArrowException, UnicodeDecodeError) as error:
        words = " ".join(str(error).split())[:160]
        raise TaskError(f"{FIELD}: {path} is not Parquet, or damaged ({words})") from error
