"""One run's tables as SQL, wherever they lie: live Parquet steps, the sealed file or a pack, united by step.

Names of folders and columns come from elsewhere: every one is quoted here, and a path is never a pattern.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from core.store import schema
from core.store.errors import StoreError
from core.store.factors import read_schema
from core.store.files import PACKED, SEALED, STEPS, live_steps, table_files
from core.store.packed import Packed, read_packed

_SCALARS = {
    "int64": "BIGINT", "int32": "INTEGER", "int8": "TINYINT", "float": "FLOAT", "double": "DOUBLE", "string": "VARCHAR",
    "bool": "BOOLEAN",
}  # fmt: skip


def sql_type(kind: pa.DataType) -> str:
    """DuckDB's name for an Arrow type of the schema; Arrow's own name for any other."""
    if pa.types.is_map(kind):
        return f"MAP({sql_type(kind.key_type)}, {sql_type(kind.item_type)})"
    if pa.types.is_list(kind):
        return f"{sql_type(kind.value_type)}[]"
    return _SCALARS.get(str(kind), str(kind))


TYPES: dict[str, dict[str, str]] = {
    table: {column.name: sql_type(column.type) for column in columns} for table, columns in schema.COLUMNS.items()
}
"""SQL types of every table's own columns; factor columns are FLOAT."""
SEALED_STEPS = "sealed_steps"
"""Table of a sealed file: `step`, and `mtime_ns` of the step's folder when it was sealed."""

_FACTOR = re.compile(schema.FACTOR_PREFIX + "[a-z0-9_]{1,60}")


@dataclass(frozen=True)
class Source:
    """Where a run's rows are. `columns` holds, for each table, the columns that sealed and live rows really have."""

    run: str
    path: Path
    sealed: str | None
    """The catalog under which the sealed file is attached."""
    packed: Packed | None
    """The pack in place of a sealed file, if the run has one: what follows then speaks of it."""
    sealed_columns: dict[str, frozenset[str]]
    sealed_steps: frozenset[int]
    live: dict[int, Path]
    """Live steps that the sealed file does not already hold, with their folders."""
    live_columns: dict[str, frozenset[str]]
    files: dict[str, dict[int, tuple[str, ...]]]
    """The Parquet files of each table and live step that has rows in it: one for each process that wrote some."""
    factors: dict[str, frozenset[str]]
    """Factor columns of `rollouts` and `tokens`."""

    @property
    def steps(self) -> list[int]:
        return sorted(self.sealed_steps | set(self.live))

    def select_live(self, table: str, columns: dict[str, str], step: int | None = None) -> str:
        """The run's live rows of a table as a SELECT of `run` and these columns; of all steps or one. '' for none."""
        by_step = self.files[table]
        files = [file for number in (by_step if step is None else (step,)) for file in by_step.get(number, ())]
        return self._query(columns, self.live_columns[table], _parquet(files)) if files else ""

    def select_sealed(self, table: str, columns: dict[str, str], step: int | None = None) -> str:
        """The same of its sealed or packed rows, those of live steps left out."""
        if table not in self.sealed_columns or step in self.live:
            return ""
        if self.packed:
            relation = f"(SELECT {self._typed(table, columns)} FROM {_parquet([self.packed.files[table]])})"
        else:
            relation = f"{self.sealed}.main.{identifier(table)}"
        query = self._query(columns, self.sealed_columns[table], relation)
        if step is not None:
            return f"{query} WHERE step = {step}"
        again = sorted(self.sealed_steps & set(self.live))
        return f"{query} WHERE step NOT IN ({', '.join(map(str, again))})" if again else query

    def _typed(self, table: str, columns: dict[str, str]) -> str:
        """A pack's columns with the store's types: its sums are in single precision."""
        there = self.sealed_columns[table]
        return ", ".join(f"{identifier(n)}::{kind} AS {identifier(n)}" for n, kind in columns.items() if n in there)

    def _query(self, columns: dict[str, str], there: frozenset[str], source: str) -> str:
        chosen = [
            identifier(name) if name in there else f"NULL::{sql_type} AS {identifier(name)}"
            for name, sql_type in columns.items()
        ]
        return f"SELECT {literal(self.run)} AS run, {', '.join(chosen)} FROM {source}"


def find(path: Path, connection: duckdb.DuckDBPyConnection, catalog: str) -> Source:
    """Look at a run folder, and attach its sealed file under `catalog` if it has one. Raises StoreError."""
    path = Path(os.path.abspath(path))
    try:
        str(path).encode("utf-8")
    except UnicodeEncodeError:
        raise StoreError(f"{str(path)!r}: the folder's name is not valid UTF-8; rename it") from None
    if not os.path.isdir(path):
        raise StoreError(f"{path}: no such run folder")
    if not os.access(path, os.R_OK | os.X_OK):
        raise StoreError(f"{path}: may not be read by this user; change its permissions")
    sealed_columns: dict[str, frozenset[str]] = {}
    sealed_steps: dict[int, int] = {}
    sealed = catalog if (path / SEALED).is_file() else None
    packed = read_packed(path)
    if sealed and packed:
        raise StoreError(f"{path}: has both {SEALED} and {PACKED}/, and only one can be the run; remove the other")
    if sealed:
        sealed_columns, sealed_steps = attach(connection, path / SEALED, catalog)
    elif packed:
        sealed_columns, sealed_steps = _packed_columns(packed), dict.fromkeys(packed.steps, 0)
    live = {
        step: folder
        for step, folder in live_steps(path).items()
        if step not in sealed_steps or sealed_steps[step] != _mtime(folder)
    }
    files: dict[str, dict[int, tuple[str, ...]]] = {table: {} for table in schema.TABLES}
    for step, folder in live.items():
        for table, found in files_of(str(folder), _mtime(folder)).items():
            files[table][step] = found
    live_columns = {table: _common_columns(list(by_step.values())) for table, by_step in files.items() if by_step}
    declared = read_schema(path)
    factors = {
        table: frozenset(
            name
            for names in (sealed_columns.get(table, ()), live_columns.get(table, ()), declared_names)
            for name in names
            if _FACTOR.fullmatch(name)
        )
        for table, declared_names in (
            ("rollouts", _prefixed(declared.rollout) if declared else ()),
            ("tokens", _prefixed(declared.token) if declared else ()),
        )
    }
    return Source(
        path.name, path, sealed, packed, sealed_columns, frozenset(sealed_steps), live, live_columns, files, factors
    )  # fmt: skip


def attach(
    connection: duckdb.DuckDBPyConnection, file: Path, catalog: str
) -> tuple[dict[str, frozenset[str]], dict[int, int]]:
    """Attach a sealed file read-only: its columns by table, and the steps it holds with their folders' times.

    Raises StoreError for a file that is damaged, or in which a name of the store is no plain table of the right types.
    """
    try:
        connection.execute(f"ATTACH {literal(str(file))} AS {catalog} (READ_ONLY, TYPE duckdb)")
        views = connection.execute(
            "SELECT view_name FROM duckdb_views() WHERE database_name = ? AND NOT internal", [catalog]
        ).fetchall()
        found = connection.execute(
            "SELECT table_name, column_name, data_type FROM duckdb_columns() "
            "WHERE database_name = ? AND schema_name = 'main' AND NOT internal",
            [catalog],
        ).fetchall()
    except duckdb.Error as error:
        raise StoreError(f"{file}: not a sealed run, or damaged ({_first_line(error)})") from error
    foreign = {name.lower() for (name,) in views} & {*schema.TABLES, SEALED_STEPS}
    columns: dict[str, dict[str, str]] = {}
    for table, column, sql_type in found:
        columns.setdefault(table, {})[column] = sql_type
    needed = {*schema.TABLES, SEALED_STEPS} - {*schema.LATER_TABLES}
    if foreign or not needed <= set(columns):
        wrong = sorted(foreign) or sorted(needed - set(columns))
        raise StoreError(f"{file}: not a sealed run of this lab ({', '.join(wrong)} must be a table)")
    for table in schema.TABLES:
        _check_types(file, "sealed", table, columns.get(table, {}))
    try:
        steps = dict(connection.execute(f"SELECT step, mtime_ns FROM {catalog}.main.{SEALED_STEPS}").fetchall())
    except duckdb.Error as error:
        raise StoreError(f"{file}: damaged ({_first_line(error)})") from error
    return {table: frozenset(columns[table]) for table in schema.TABLES if table in columns}, steps


def _packed_columns(packed: Packed) -> dict[str, frozenset[str]]:
    """A pack's columns by table. Raises StoreError where one is not of the store's type."""
    for table, columns in packed.schemas.items():
        _check_types(packed.files[table], "packed", table, {field.name: sql_type(field.type) for field in columns})
    return {table: frozenset(columns.names) for table, columns in packed.schemas.items()}


def _check_types(file: str | Path, kind: str, table: str, columns: dict[str, str]) -> None:
    """Raise StoreError where a column of the store's is of another SQL type than here."""
    for column, found in columns.items():
        expected = TYPES[table].get(column, "FLOAT" if _FACTOR.fullmatch(column) else found)
        if found != expected and (kind, found, expected) != ("packed", "FLOAT", "DOUBLE"):
            raise StoreError(f"{file}: {table}.{column} is {found}, a {kind} run has {expected} there")


def identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


@lru_cache(maxsize=200_000)
def files_of(folder: str, mtime_ns: int) -> dict[str, tuple[str, ...]]:
    """The Parquet files that a step's folder holds, by table; a folder never changes once it is there."""
    return {table: files for table, files in table_files(folder).items() if table in schema.TABLES}


def _common_columns(steps: list[tuple[str, ...]]) -> frozenset[str]:
    """The columns of the first and the last step: all have them, even if a newer version of the lab went on."""
    first, last = steps[0][0], steps[-1][0]
    return columns_of(first, _mtime(first)) & columns_of(last, _mtime(last))


@lru_cache(maxsize=10_000)
def columns_of(file: str, mtime_ns: int) -> frozenset[str]:
    try:
        return frozenset(pq.read_schema(file).names)
    except ValueError as error:  # pyarrow's word for a file that is no Parquet
        raise StoreError(f"{file}: not a Parquet file, or damaged; the step must be recomputed") from error


def _parquet(files: list[str]) -> str:
    """read_parquet of exactly these files. The step in a folder's name prunes files, unless a parent's name has a =."""
    names = ", ".join(literal(_no_pattern(file)) for file in files)
    if len(files) == 1 or "=" in files[0].rpartition(f"/{STEPS}/")[0]:
        return f"read_parquet([{names}], hive_partitioning = false)"
    return f"read_parquet([{names}], hive_partitioning = true, hive_types = {{'step': BIGINT}})"


def _no_pattern(path: str) -> str:
    return re.sub(r"[*?\[]", r"[\g<0>]", path)


def _mtime(path: str | Path) -> int:
    return os.stat(path).st_mtime_ns


def _prefixed(factors: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(schema.FACTOR_PREFIX + factor for factor in factors)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
