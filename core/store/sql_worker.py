"""The process of one query: a request on its input (JSON), the answer on its output (pickled pieces).

Sealed runs are attached read-only; of live steps and packs, the tables and columns that the statement names are copied
into memory; then the door to the file system is shut and the settings are locked. Before that the statement is read:
one SELECT, over the store's tables, with table functions that make rows from nothing but their arguments.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import duckdb
import pyarrow as pa

from core.store import schema
from core.store.errors import StoreError
from core.store.open import SAFE, columns_of, empty, find_all
from core.store.sources import literal
from core.store.sql import OWN_MEMORY, memory_bytes, stopped, too_much
from core.store.sql_file import write_file

TABLE_FUNCTIONS = frozenset({"range", "generate_series", "unnest", "repeat", "repeat_row", "json_each", "json_tree"})
"""Table functions that can be used; the others read files, run text as SQL, or tell of the machine."""
REFUSED_FUNCTIONS = frozenset({"current_setting", "getenv", "getvariable", "write_log", "sleep_ms", "pg_sleep"})
"""Functions that tell of the machine, or that do something instead of telling something."""
AFTER_S = 1.0
"""Seconds between the query's interrupt and the end of its process."""
PIECE = 256
"""Rows sent at once."""
RESERVED = 8
"""Times the query's memory that the process may reserve; its parent watches what it really holds."""

_SELECTING = {"SELECT_NODE", "SET_OPERATION_NODE", "RECURSIVE_CTE_NODE", "CTE_NODE"}
_MISSING = re.compile(r"Table with name (\S+) does not exist")
_PLACE = re.compile(r"\nLINE (\d+): (.*)\n( *)\^")


def main() -> None:
    """Answer the request on the standard input."""
    request = json.load(sys.stdin)
    _leash(request["memory"], request["timeout_s"])
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb") as out, open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())  # DuckDB draws a progress bar there for slow queries
        answer(out, **request)


def answer(
    out: BinaryIO,
    paths: Sequence[str | Path],
    sql: str,
    timeout_s: float,
    max_rows: int,
    memory: str,
    threads: int,
    max_bytes: int,
    file: str = "",
    form: str = "",
    safe: bool = False,
) -> None:
    """Write ("columns", [(name, type)]), ("rows", [row, ...]) as often as needed, then ("end", (truncated, seconds));
    or ("error", sentence), whatever came before. With a `file`, every row goes there, and the end is (rows, seconds).
    """
    started = time.perf_counter()

    def give(connection: duckdb.DuckDBPyConnection) -> int:
        if file:
            return write_file(connection, sql, Path(file), form, safe, max_bytes)
        return _give_rows(connection, out, sql, max_rows, max_bytes)

    try:
        for last in (False, True):
            try:
                with duckdb.connect(config=SAFE) as connection:
                    given = _run(connection, paths, sql, timeout_s, memory, threads, last, give)
                break
            # a step was taken away between looking and copying, or a column that is meant was not copied
            except (duckdb.IOException, FileNotFoundError, duckdb.BinderException):
                if last:
                    raise
        _send(out, "end", (given, time.perf_counter() - started))
    except (duckdb.Error, pa.ArrowException, StoreError, OSError, MemoryError, RecursionError, ValueError,
            TypeError) as error:  # fmt: skip
        _send(out, "error", _told(error, sql, timeout_s, memory))


def _run(
    connection: duckdb.DuckDBPyConnection,
    paths: Sequence[str | Path],
    sql: str,
    timeout_s: float,
    memory: str,
    threads: int,
    whole: bool,
    give: Callable[[duckdb.DuckDBPyConnection], int],
) -> int:
    """One try, on all columns if `whole`: what `give` makes of a connection that sees the views and nothing else."""
    timer = threading.Timer(timeout_s, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        named, columns = checked(connection, sql)
        for name, value in (("memory_limit", memory), ("max_temp_directory_size", "4GB"), ("threads", threads)):
            connection.execute(f"SET {name} = {literal(str(value))}")
        _views(connection, paths, named, None if whole else columns)
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        return give(connection)
    finally:
        timer.cancel()


def _give_rows(connection: duckdb.DuckDBPyConnection, out: BinaryIO, sql: str, max_rows: int, max_bytes: int) -> bool:
    """Send columns and rows; whether there were more than `max_rows`."""
    cursor = connection.execute(sql)
    _send(out, "columns", [(column[0], str(column[1])) for column in cursor.description or []])
    sent = 0
    while rows := cursor.fetchmany(min(PIECE, max_rows - sent)) if sent < max_rows else []:
        max_bytes -= _send(out, "rows", rows)
        sent += len(rows)
        if max_bytes < 0:
            raise StoreError(f"the first {sent} rows are already too much to send; choose fewer or shorter columns")
    return bool(cursor.fetchone())


def checked(connection: duckdb.DuckDBPyConnection, sql: str) -> tuple[set[str], set[str] | None]:
    """The store's tables that the statement names, and the columns that it may mean (None: any of them).

    Raises StoreError unless it is one SELECT, inside WITH too, that reads nothing but the store's tables.
    """
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
    except RecursionError:
        raise StoreError("the statement is nested too deeply") from None
    if tree.get("error"):
        raise StoreError(f"only SELECT can run here: {tree.get('error_message')}")
    nodes = list(_walk(tree))
    names = {str(node["key"]).lower() for node in nodes if "query_node" in (node.get("value") or ())}
    if taken := sorted(names & _own_views(connection)):  # where the part is out of reach, they would be meant
        raise StoreError(f"{taken[0]} is a view of DuckDB's own: give the part of WITH another name")
    for node in nodes:
        _check(node, names)
    words = set(re.findall(r"\w+", sql.lower()))
    return words & set(schema.TABLES), None if _means_unnamed(nodes) else words


def _means_unnamed(nodes: Sequence[dict[str, Any]]) -> bool:
    """Whether a part stands for columns that it does not name: a star, a whole row, a join on what two tables share,
    columns that are named by their place.
    """
    tables = {str(node.get(key)).lower() for node in nodes if "class" not in node for key in ("table_name", "alias")}
    return any(
        node.get("class") == "STAR"
        or node.get("ref_type") in ("NATURAL", "POSITIONAL")
        or node.get("column_name_alias")
        or (node.get("class") == "COLUMN_REF" and node["column_names"][-1].lower() in tables)
        for node in nodes
    )


def _own_views(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """What DuckDB finds under a bare name without anyone having made it: views that tell of files and settings."""
    found = connection.execute(
        "SELECT view_name FROM duckdb_views() WHERE internal AND schema_name <> 'information_schema'"
    ).fetchall()
    return {name.lower() for (name,) in found}


def _check(node: dict[str, Any], names: set[str]) -> None:
    """Refuse one node of the parsed statement; `names` are those that WITH gives."""
    kind, function, table = str(node.get("type")), node.get("function_name"), str(node.get("table_name") or "")
    if kind.endswith("_NODE") and kind not in _SELECTING:
        raise StoreError(f"only SELECT can run here, not {kind.split('_')[0]} inside WITH; the store is read-only")
    if isinstance(function, str) and function.lower() in REFUSED_FUNCTIONS:
        raise StoreError(f"the function {function.lower()} cannot be used here")
    if kind == "TABLE_FUNCTION":
        name = str(node["function"]["function_name"]).lower()
        if name not in TABLE_FUNCTIONS:
            raise StoreError(f"the table function {name} cannot be used here; {', '.join(sorted(TABLE_FUNCTIONS))} can")
    elif kind == "SHOW_REF" and not (node.get("query") or table in ('"tables"', *schema.TABLES)):
        raise StoreError("only SHOW TABLES, DESCRIBE and SUMMARIZE show something here")
    elif kind == "BASE_TABLE":
        path = node["qualified_name"]["path"]
        known = table.lower() in schema.TABLES or (len(path) == 1 and table.lower() in names)
        if not known or path[:-1] not in ([], ["main"]):
            raise StoreError(f"the table {'.'.join(path)} does not exist; there are {', '.join(schema.TABLES)}")


def _views(
    connection: duckdb.DuckDBPyConnection, paths: Sequence[str | Path], named: set[str], meant: set[str] | None
) -> None:
    """The store's views: sealed rows where they lie; live and packed ones, of the tables that are named, in memory.

    Of columns, those that are `meant` (None: all) and the step.
    """
    sources = find_all(paths, connection)
    connection.execute("CREATE SCHEMA live")
    for table in schema.TABLES:
        columns = columns_of(sources, table)
        if meant is not None and table in named:
            columns = {name: kind for name, kind in columns.items() if name in meant or name == "step"}
        parts = [source.select_sealed(table, columns) for source in sources if not source.packed]
        outside = [source.select_live(table, columns) for source in sources]
        outside += [source.select_sealed(table, columns) for source in sources if source.packed]
        if table in named and any(outside):
            connection.execute(f"CREATE TABLE live.{table} AS {' UNION ALL '.join(filter(None, outside))}")
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


def _told(error: Exception, sql: str, timeout_s: float, memory: str) -> str:
    """An error as one sentence for the person who wrote the statement."""
    if isinstance(error, duckdb.InterruptException):
        return stopped(timeout_s)
    if isinstance(error, duckdb.OutOfMemoryException | MemoryError) or "bad_alloc" in str(error):
        return too_much(memory)
    if isinstance(error, duckdb.CatalogException) and (missing := _MISSING.search(str(error))):
        return f"the table {missing[1]} does not exist; there are {', '.join(schema.TABLES)}" + _place(error, sql)
    if isinstance(error, duckdb.Error):
        lines = str(error).strip().partition("\nLINE ")[0].split("\n")
        return " ".join(filter(None, map(str.strip, lines)))[:500] + _hint(error) + _place(error, sql)
    return str(error)


def _hint(error: duckdb.Error) -> str:
    return ': group is a keyword of SQL, write "group"' if 'at or near "group"' in str(error) else ""


def _place(error: duckdb.Error, sql: str) -> str:
    """Where in the statement DuckDB points, if it does: ` (line 2, column 8)`. It shortens long lines with dots."""
    found = _PLACE.search(str(error))
    if not found:
        return ""
    line, shown, before = int(found[1]), found[2], len(found[3]) - len(f"LINE {found[1]}: ")
    whole = (sql.split("\n")[line - 1 : line] or [""])[0]
    if shown.startswith("..."):
        before += whole.find(shown.strip(".")) - 3
    return f" (line {line}, column {before + 1})"


def _send(out: BinaryIO, kind: str, value: Any) -> int:
    """Write one piece; its size in bytes."""
    piece = pickle.dumps((kind, value), protocol=pickle.HIGHEST_PROTOCOL)
    out.write(piece)
    out.flush()
    return len(piece)


def _leash(memory: str, timeout_s: float) -> None:
    """What the system enforces on this process: its address space (allocators reserve several times what they use),
    its time, and that it leaves no core behind.
    """
    most = OWN_MEMORY + RESERVED * memory_bytes(memory)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, timeout_s + AFTER_S)
    os.nice(5)


if __name__ == "__main__":
    main()
