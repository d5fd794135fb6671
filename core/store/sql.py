"""A person's own SQL over runs, read-only and on a leash.

    result = query([path, ...], "SELECT run, max(reward) FROM metrics GROUP BY run")

Each query gets a connection of its own: sealed runs attached read-only, live steps of the tables that it names copied
into memory, then the door to the file system is shut and the settings locked. One SELECT statement, limited in time,
memory and rows.
"""

from __future__ import annotations

import json
import re
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb

from core.store import schema
from core.store.errors import StoreError
from core.store.open import SAFE, columns_of, empty, find_all
from core.store.sources import literal

if TYPE_CHECKING:
    import pandas as pd

MAX_LENGTH = 100_000
"""Characters of a statement."""

_MISSING = re.compile(r"Table with name (\S+) does not exist")

_SELECTING = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
_REFUSED_FUNCTIONS = {
    "query",
    "query_table",
    "json_execute_serialized_sql",
    "checkpoint",
    "force_checkpoint",
    "write_log",
}
"""Functions that run text as SQL, past the checks, or that do something instead of telling something."""


@dataclass(frozen=True)
class Result:
    """A query's rows; `truncated` when there were more than the limit."""

    columns: list[str]
    types: list[str]
    rows: list[tuple[Any, ...]]
    truncated: bool
    seconds: float

    def df(self) -> pd.DataFrame:
        import pandas as pd

        return pd.DataFrame(self.rows, columns=self.columns)


def query(
    paths: Sequence[str | Path],
    sql: str,
    timeout_s: float = 20.0,
    max_rows: int = 10_000,
    memory: str = "1GB",
    threads: int = 2,
) -> Result:
    """Run one SELECT over the views of `open_runs`. Raises StoreError with a sentence for the person who wrote it."""
    started = time.perf_counter()
    if len(sql) > MAX_LENGTH:
        raise StoreError(f"the statement has {len(sql)} characters; at most {MAX_LENGTH} are allowed")
    if not sql.isprintable() and any("\ud800" <= character <= "\udfff" for character in sql):
        raise StoreError("the statement is not valid UTF-8 text")
    for last in (False, True):
        try:
            columns, rows = _run(paths, sql, timeout_s, max_rows, memory, threads)
            break
        except duckdb.InterruptException:
            raise StoreError(f"the query was stopped after {timeout_s:g} s; narrow it, or read `summary`") from None
        except duckdb.OutOfMemoryException:
            raise StoreError(f"the query needs more than {memory} of memory; narrow it, or read `summary`") from None
        except (duckdb.IOException, FileNotFoundError) as error:  # a step was taken away between looking and copying
            if last:
                raise StoreError(_sentence(error)) from error
        except duckdb.CatalogException as error:
            missing = _MISSING.search(str(error))
            tables = f"the table {missing[1]} does not exist; there are {', '.join(schema.TABLES)}" if missing else ""
            raise StoreError(tables or _sentence(error)) from error
        except duckdb.Error as error:
            raise StoreError(_sentence(error)) from error
    return Result(
        columns=[name for name, _ in columns],
        types=[sql_type for _, sql_type in columns],
        rows=rows[:max_rows],
        truncated=len(rows) > max_rows,
        seconds=time.perf_counter() - started,
    )


def _run(
    paths: Sequence[str | Path], sql: str, timeout_s: float, max_rows: int, memory: str, threads: int
) -> tuple[list[tuple[str, str]], list[tuple[Any, ...]]]:
    """One try: (name, type) of the columns, and one row more than `max_rows` if there are more."""
    with tempfile.TemporaryDirectory(prefix="advantage-lab-sql-") as scratch, duckdb.connect(config=SAFE) as connection:
        timer = threading.Timer(timeout_s, connection.interrupt)
        timer.daemon = True
        timer.start()
        try:
            named = _checked(connection, sql)
            for name, value in (
                ("memory_limit", memory),
                ("temp_directory", scratch),
                ("max_temp_directory_size", "4GB"),
                ("threads", threads),
            ):
                connection.execute(f"SET {name} = {literal(str(value))}")
            _views(connection, paths, named)
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            cursor = connection.execute(sql)
            columns = [(column[0], str(column[1])) for column in cursor.description or []]
            return columns, cursor.fetchmany(max_rows + 1)
        finally:
            timer.cancel()


def _checked(connection: duckdb.DuckDBPyConnection, sql: str) -> set[str]:
    """The store's tables that the statement names. Raises StoreError unless it is one SELECT, inside WITH too."""
    statements = connection.extract_statements(sql)
    if len(statements) != 1:
        raise StoreError(f"write exactly one SELECT statement, not {len(statements) or 'nothing'}")
    if statements[0].type != duckdb.StatementType.SELECT:
        kind = {"MULTI": "PIVOT"}.get(statements[0].type.name, statements[0].type.name.replace("_", " "))
        raise StoreError(f"only SELECT can run here, not {kind}; the store is read-only")
    if statements[0].named_parameters:
        raise StoreError("the statement has parameters (? or $name): write the values themselves")
    try:
        tree = json.loads(connection.execute("SELECT json_serialize_sql(?::VARCHAR)", [sql]).fetchone()[0])
        nodes = list(_walk(tree))
    except RecursionError:
        raise StoreError("the statement is nested too deeply") from None
    if tree.get("error"):
        raise StoreError(f"only SELECT can run here: {tree.get('error_message')}")
    for node in nodes:
        kind, function = node.get("type"), node.get("function_name")
        if isinstance(kind, str) and kind.endswith("_NODE") and kind not in _SELECTING:
            raise StoreError(f"only SELECT can run here, not {kind.split('_')[0]} inside WITH; the store is read-only")
        if isinstance(function, str) and function.lower() in _REFUSED_FUNCTIONS:
            raise StoreError(f"the function {function.lower()} cannot be used here")
    return {table for table in schema.TABLES if re.search(rf"\b{table}\b", sql, re.IGNORECASE)}


def _views(connection: duckdb.DuckDBPyConnection, paths: Sequence[str | Path], named: set[str]) -> None:
    """The store's six views: sealed rows where they lie, live rows of the tables that are named copied into memory."""
    sources = find_all(paths, connection)
    connection.execute("CREATE SCHEMA live")
    for table in schema.TABLES:
        columns = columns_of(sources, table)
        parts = [source.select_sealed(table, columns) for source in sources]
        live = [part for source in sources if table in named and (part := source.select_live(table, columns))]
        if live:
            connection.execute(f"CREATE TABLE live.{table} AS {' UNION ALL '.join(live)}")
            parts.append(f"SELECT * FROM live.{table}")
        connection.execute(f"CREATE VIEW main.{table} AS {' UNION ALL '.join(filter(None, parts)) or empty(columns)}")


def _walk(tree: Any) -> Iterator[dict[str, Any]]:
    """Every mapping of a JSON document."""
    waiting = [tree]
    while waiting:
        here = waiting.pop()
        if isinstance(here, dict):
            yield here
            waiting += here.values()
        elif isinstance(here, list):
            waiting += here


def _sentence(error: Exception) -> str:
    """DuckDB's first line, which names what is wrong; the rest points into the text."""
    return str(error).strip().partition("\n")[0]
