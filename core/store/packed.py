"""A packed run's files: one Parquet file a table for all its steps, and a list of what must be in them.

    tables/pack.json      the steps, those whose tokens were kept, and the rows of each table
    tables/TABLE.parquet  every table that has rows

A pack is what a run becomes to be shared: `core.store.pack` makes it, and it is only ever read.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from core.store import schema
from core.store.errors import StoreError
from core.store.files import PACKED

MANIFEST = "pack.json"
FORMAT = 1
"""The version of a pack's layout."""

_STEPS = 10**12  # a step's folder has at most twelve digits


@dataclass(frozen=True)
class Packed:
    """The tables of a pack: where they lie, what columns they have, and which steps."""

    files: dict[str, str]
    schemas: dict[str, pa.Schema]
    steps: frozenset[int]
    token_steps: frozenset[int]
    """The steps whose tokens were kept."""


def is_packed(run_dir: str | Path) -> bool:
    """Whether a run folder holds a pack, whole or not."""
    return (Path(run_dir) / PACKED).is_dir()


def read_packed(run_dir: Path) -> Packed | None:
    """The pack of a run folder, its tables' rows counted; None without one. Raises StoreError for a damaged one."""
    if not is_packed(run_dir):
        return None
    folder = run_dir / PACKED
    try:
        data = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        found, rows = data["format"], {table: int(data["rows"].get(table, 0)) for table in schema.TABLES}
        steps, token_steps = (frozenset(map(_step, data[name])) for name in ("steps", "token_steps"))
    except FileNotFoundError:
        raise StoreError(f"{folder}: not a packed run ({MANIFEST} is missing); copy its whole folder again") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise StoreError(f"{folder / MANIFEST}: damaged, it does not say what the pack holds; copy it again") from error
    if found != FORMAT:
        raise StoreError(f"{folder / MANIFEST}: its format is {found!r}, this version reads {FORMAT}")
    files = {table: folder / f"{table}.parquet" for table, count in rows.items() if count}
    schemas = {table: _schema(file, rows[table]) for table, file in files.items()}
    return Packed({table: str(file) for table, file in files.items()}, schemas, steps, token_steps)


def write_manifest(folder: Path, steps: list[int], token_steps: list[int], rows: dict[str, int]) -> None:
    """Write the list of what the pack in this folder holds."""
    data: dict[str, Any] = {"format": FORMAT, "steps": steps, "token_steps": token_steps, "rows": rows}
    (folder / MANIFEST).write_text(json.dumps(data) + "\n", encoding="utf-8")


def _step(value: Any) -> int:
    """A step of the list. Raises ValueError for what none can be."""
    if type(value) is not int or not 0 <= value < _STEPS:
        raise ValueError(value)
    return value


def _schema(file: Path, rows: int) -> pa.Schema:
    try:
        with pq.ParquetFile(file) as opened:
            found, columns = opened.metadata.num_rows, opened.schema_arrow
    except FileNotFoundError:
        raise StoreError(f"{file}: missing; copy the whole folder of the packed run again") from None
    except (ValueError, OSError) as error:  # pyarrow's words for a file that is no Parquet, or cut off
        raise StoreError(f"{file}: not a Parquet file, or damaged; copy it again") from error
    if found != rows:
        raise StoreError(f"{file}: holds {found} rows where {MANIFEST} says {rows}; copy it again")
    return columns
