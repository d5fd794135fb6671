"""Reading runs: one connection with the same views over live and sealed runs, together.

    lab = open_runs([path, ...])
    lab.df('SELECT run, step, reward FROM metrics ORDER BY run, step')
    lab.step(run, 12).df('SELECT * FROM tokens WHERE "group" = ?', [3])

The views are the tables of `schema`, each with `run` (the folder's name) as its first column; `rollouts` and `tokens`
have the factor columns of all the runs, null where a run lacks one. A run without steps has no rows. Live rows win over
sealed rows of the same step. A Lab shows the steps that were there when it was opened: open another when `fingerprint`
changes.
"""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import threading
from collections.abc import Hashable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np

from core.store import schema
from core.store.errors import StoreError
from core.store.factors import SCHEMA
from core.store.files import STEPS, identity, live_steps, settled
from core.store.sources import TYPES, Source, find, identifier

if TYPE_CHECKING:
    import pandas as pd

SAFE: dict[str, str | bool] = {
    "python_enable_replacements": False,
    "autoinstall_known_extensions": False,
    "autoload_known_extensions": False,
    "allow_community_extensions": False,
    "temp_directory": str(Path(tempfile.gettempdir()) / f"advantage-lab-duckdb-{os.getpid()}"),
}
"""Settings of every connection of the store: no table is ever a Python variable, no extension is ever fetched."""

_WITH = re.compile(r"\s*WITH\s+(RECURSIVE\s+)?", re.IGNORECASE)
_MISTAKES = (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException)
"""What a query can be wrong in; every other error of DuckDB's says that a file vanished or is damaged."""


class Lab:
    """Views over some runs. Any thread may query; each query has its own cursor."""

    def __init__(self, paths: Sequence[str | Path]) -> None:
        self.paths = [Path(path) for path in paths]
        self._lock = threading.Lock()
        self._memory_mb: int | None = None
        self._open()

    def _open(self) -> None:
        for last in (False, True):
            connection = duckdb.connect(config=SAFE)
            try:
                sources = find_all(self.paths, connection)
                break
            except FileNotFoundError as error:  # a step was taken away while it was looked at
                if last:
                    raise StoreError(f"{error.filename}: vanished while the run was opened; try again") from error
        self._sources = {source.run: source for source in sources}
        self._connection, self._views = connection, set()
        if self._memory_mb:
            self.limit_memory(self._memory_mb)

    def limit_memory(self, megabytes: int) -> None:
        """What queries may take and what is kept of the files they read, in memory; what needs more goes to the disk.

        Without a limit it is most of the machine's memory. A query that is running keeps what it has.
        """
        self._memory_mb = megabytes
        with contextlib.suppress(duckdb.OutOfMemoryException), self._connection.cursor() as cursor:
            cursor.execute(f"SET memory_limit = '{megabytes:d}MB'")

    @property
    def runs(self) -> list[str]:
        """The runs' ids, in the order they were given."""
        return list(self._sources)

    def steps(self, run: str) -> list[int]:
        """The steps that a run has, ascending, live and sealed."""
        return self.source(run).steps

    def source(self, run: str) -> Source:
        try:
            return self._sources[run]
        except KeyError:
            raise StoreError(f"{run}: not one of the runs that are open ({', '.join(self.runs) or 'none'})") from None

    def columns(self, table: str) -> dict[str, str]:
        """A view's columns with their SQL types, `run` left out."""
        return columns_of(self._sources.values(), table)

    def factors(self, table: str) -> list[str]:
        """The factor columns of `rollouts` or `tokens`."""
        return [name for name in self.columns(table) if name.startswith(schema.FACTOR_PREFIX)]

    def df(self, sql: str, params: Sequence[Any] | dict[str, Any] | None = None) -> pd.DataFrame:
        """A query's rows as a data frame."""
        return self._run(sql, params, lambda cursor: cursor.df())

    def rows(self, sql: str, params: Sequence[Any] | dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """A query's rows as dicts."""
        return self._run(sql, params, _dicts)

    def arrays(self, sql: str, params: Sequence[Any] | dict[str, Any] | None = None) -> dict[str, np.ndarray]:
        """A query's columns as numpy arrays; null numbers are NaN, so columns of whole numbers must not have any."""
        return self._run(sql, params, _arrays)

    def step(self, run: str, step: int) -> StepLab:
        """The same views, restricted to one step of one run: a live step is read by its own path."""
        return StepLab(self, run, step)

    def cursor(self, tables: Iterable[str] = schema.TABLES) -> duckdb.DuckDBPyConnection:
        """A cursor over the views of these tables, for one thread; the caller closes it."""
        with self._lock:
            for table in set(tables) - self._views:  # not before: a view over 400 live steps takes 10 ms
                view = union(list(self._sources.values()), table, self.columns(table))
                self._connection.execute(f"CREATE VIEW {table} AS {view}")
                self._views.add(table)
            return self._connection.cursor()

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> Lab:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, sql: str, params: Any, fetch: Any, scope: tuple[str, int] | None = None) -> Any:
        """Run a query on a cursor of its own; once more, on what is there now, if a file vanished in between."""
        connection = self._connection
        try:
            return self._once(sql, params, fetch, scope)
        except _MISTAKES:
            raise
        except duckdb.DataError as error:  # a count that is not a number, say: reading again will not help
            why = str(error).partition("\n")[0]
            raise StoreError(f"{', '.join(self.runs)}: holds a value that cannot be used: {why}") from error
        except duckdb.Error:
            with self._lock:
                if self._connection is connection:
                    self._open()
        try:
            return self._once(sql, params, fetch, scope)
        except _MISTAKES:
            raise
        except duckdb.Error as error:
            raise StoreError(f"{', '.join(self.runs)}: cannot be read: {str(error).partition(chr(10))[0]}") from error

    def _once(self, sql: str, params: Any, fetch: Any, scope: tuple[str, int] | None) -> Any:
        named = [table for table in schema.TABLES if re.search(rf"\b{table}\b", sql, re.IGNORECASE)]
        cursor = self.cursor(() if scope else named)
        try:
            cursor.execute(self._restricted(sql, named, *scope) if scope else sql, params)
            return fetch(cursor)
        finally:
            cursor.close()

    def _restricted(self, sql: str, named: list[str], run: str, step: int) -> str:
        """The query with the tables that it names narrowed to a step; temporary views would cost a millisecond each."""
        source = self.source(run)
        tables = (
            f"{table} AS NOT MATERIALIZED ({union([source], table, self.columns(table), step)})" for table in named
        )
        own = _WITH.match(sql)
        rest = f", {sql[own.end() :]}" if own else f" {sql}"
        return f"WITH {own[1] or '' if own else ''}{', '.join(tables)}{rest}" if named else sql


class StepLab:
    """A Lab's views over one step of one run."""

    def __init__(self, lab: Lab, run: str, step: int) -> None:
        lab.source(run)
        self._lab, self.run, self.step = lab, run, int(step)

    def factors(self, table: str) -> list[str]:
        return self._lab.factors(table)

    def df(self, sql: str, params: Sequence[Any] | dict[str, Any] | None = None) -> pd.DataFrame:
        return self._lab._run(sql, params, lambda cursor: cursor.df(), (self.run, self.step))

    def rows(self, sql: str, params: Sequence[Any] | dict[str, Any] | None = None) -> list[dict[str, Any]]:
        return self._lab._run(sql, params, _dicts, (self.run, self.step))

    def arrays(self, sql: str, params: Sequence[Any] | dict[str, Any] | None = None) -> dict[str, np.ndarray]:
        return self._lab._run(sql, params, _arrays, (self.run, self.step))


def open_runs(paths: Sequence[str | Path]) -> Lab:
    """Open run folders for reading. Raises StoreError for a folder that is not there or cannot be read."""
    return Lab(paths)


def fingerprint(paths: Sequence[str | Path]) -> Hashable:
    """Equal as long as a Lab over these folders still shows everything: what to cache a Lab by."""
    return tuple(_fingerprint(Path(path)) for path in paths)


def union(sources: Sequence[Source], table: str, columns: dict[str, str], step: int | None = None) -> str:
    """The SELECT of all the runs' rows, or of one step's; typed, and empty where there are none."""
    parts = []
    for source in sources:
        parts += [source.select_sealed(table, columns, step), source.select_live(table, columns, step)]
    return " UNION ALL ".join(filter(None, parts)) or empty(columns)


def empty(columns: dict[str, str]) -> str:
    """A SELECT of no rows that has `run` and these columns."""
    nulls = ", ".join(f"NULL::{sql_type} AS {identifier(name)}" for name, sql_type in columns.items())
    return f"SELECT NULL::VARCHAR AS run, {nulls} WHERE false"


def columns_of(sources: Iterable[Source], table: str) -> dict[str, str]:
    """A view's columns with their SQL types, `run` left out: the table's own, then the runs' factors."""
    factors = sorted({name for source in sources for name in source.factors.get(table, ())})
    return TYPES[table] | dict.fromkeys(factors, "FLOAT")


def find_all(paths: Sequence[str | Path], connection: duckdb.DuckDBPyConnection) -> list[Source]:
    """Look at run folders and attach their sealed files. Raises StoreError, also for two runs of one name."""
    sources = [find(Path(path), connection, f"sealed_{i}") for i, path in enumerate(paths)]
    names = [source.run for source in sources]
    for name in names:
        if names.count(name) > 1:
            raise StoreError(f"two of the run folders are named {name}; rename one to open them together")
    return sources


def _fingerprint(path: Path) -> Hashable:
    steps = live_steps(path)
    schema_and_steps = identity(path / SCHEMA), identity(path / STEPS)
    return str(path), len(steps), max(steps, default=-1), settled(path), schema_and_steps


def _dicts(cursor: duckdb.DuckDBPyConnection) -> list[dict[str, Any]]:
    names = [column[0] for column in cursor.description]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def _arrays(cursor: duckdb.DuckDBPyConnection) -> dict[str, np.ndarray]:
    columns = cursor.fetchnumpy()
    return {
        name: values.filled(np.nan) if isinstance(values, np.ma.MaskedArray) and values.dtype.kind == "f" else values
        for name, values in columns.items()
    }
