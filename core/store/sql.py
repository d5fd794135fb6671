"""A person's own SQL over runs, read-only and on a leash.

    result = query([path, ...], "SELECT run, max(reward) FROM metrics GROUP BY run")
    rows = query_file([path, ...], "SELECT * FROM tokens", Path("tokens.parquet"))      every row, whatever they weigh

Each query runs in a process of its own (`core.store.sql_worker`), which knows nothing of this one's environment, has a
hard limit of memory, and is killed when its time is up: DuckDB's own interrupt does not reach its planner, and its own
memory limit does not count strings that a function makes.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import pickle
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from core.store.errors import StoreError

if TYPE_CHECKING:
    import pandas as pd

PROJECT = Path(__file__).parents[2]
WORKER = (sys.executable, "-m", "core.store.sql_worker")
FORMS = (".csv", ".json", ".jsonl", ".parquet")
"""What an answer can be written as."""
KEPT = ("PATH", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME")
"""What the process needs of this one's environment to start."""
MAX_LENGTH = 100_000
"""Characters of a statement."""
OWN_MEMORY = 200 * 10**6
"""Bytes that the process has before the query: Python, DuckDB's code and threads."""
POLL_S = 0.1
"""Seconds between two looks at the process."""


@dataclass(frozen=True)
class Result:
    """A query's rows; `truncated` when there were more than the limit. `seconds` is the query's own time."""

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
    max_bytes: int = 2**30,
    waiting: Callable[[float], None] | None = None,
) -> Result:
    """Run one SELECT over the views of `open_runs`. Raises StoreError with a sentence for the person who wrote it.

    `max_bytes` bounds the rows that come back. `waiting` is called with the seconds so far while the query runs; what
    it raises ends the query.
    """
    request = _request(paths, sql, timeout_s, memory, threads, max_bytes) | {"max_rows": max_rows}
    return result_of(_answer(request, waiting), timeout_s)


def query_file(
    paths: Sequence[str | Path],
    sql: str,
    out: Path,
    timeout_s: float = 20.0,
    memory: str = "1GB",
    threads: int = 2,
    max_bytes: int = 64 * 2**30,
    safe: bool = False,
    waiting: Callable[[float], None] | None = None,
) -> int:
    """The same with every row in the new file `out`, whose ending (one of FORMS) says its form; returns the rows.

    `safe` keeps a spreadsheet from running texts of a CSV. `max_bytes` bounds the file. Raises StoreError; nothing is
    left behind then.
    """
    form = out.suffix.lower()
    if form not in FORMS:
        raise StoreError(f"{out}: name a file that ends in {', '.join(FORMS)}")
    if out.exists():
        raise StoreError(f"{out} is already there: name a file that is not")
    part = out.absolute().with_name(f".{out.name}.{os.getpid()}")
    request = _request(paths, sql, timeout_s, memory, threads, max_bytes)
    request |= {"max_rows": 0, "file": str(part), "form": form, "safe": safe}
    try:
        end = next((value for kind, value in _messages(_answer(request, waiting)) if kind in ("end", "error")), None)
        if end is None:
            raise StoreError(stopped(timeout_s))
        if isinstance(end, str):
            raise StoreError(end.replace(str(part), str(out)))
        os.replace(part, out)
    finally:
        part.unlink(missing_ok=True)
    return int(end[0])


def _request(
    paths: Sequence[str | Path], sql: str, timeout_s: float, memory: str, threads: int, max_bytes: int
) -> dict[str, Any]:
    """What the worker is asked. Raises StoreError for a text that can be no statement."""
    if len(sql) > MAX_LENGTH:
        raise StoreError(f"the statement has {len(sql)} characters; at most {MAX_LENGTH} are allowed")
    if not sql.isprintable() and any("\ud800" <= character <= "\udfff" for character in sql):
        raise StoreError("the statement is not valid UTF-8 text")
    return {
        "paths": [os.path.abspath(path) for path in paths], "sql": sql, "timeout_s": timeout_s, "memory": memory,
        "threads": threads, "max_bytes": max_bytes,
    }  # fmt: skip


def _answer(request: dict[str, Any], waiting: Callable[[float], None] | None) -> bytes:
    """What the worker wrote. Raises StoreError where it was ended, or could not start."""
    memory, timeout_s = request["memory"], request["timeout_s"]
    with tempfile.TemporaryDirectory(prefix="advantage-lab-sql-") as scratch:
        code, out = _work(json.dumps(request).encode(), Path(scratch), memory_bytes(memory), waiting)
    if code == -signal.SIGALRM:
        raise StoreError(stopped(timeout_s))
    if code < 0:  # killed here, or an allocator's last word
        raise StoreError(too_much(memory))
    if code:
        raise StoreError(f"the query's process failed (exit status {code}): {' '.join(WORKER)} must run here")
    return out


def memory_bytes(text: str) -> int:
    """Bytes of `512MB`. Raises ValueError."""
    if not (found := re.fullmatch(r"(\d+) ?([KMG])B", text)):
        raise ValueError(f"{text} is no amount of memory, write 512MB")
    return int(found[1]) * 10 ** (3 * (1 + "KMG".index(found[2])))


def stopped(timeout_s: float) -> str:
    """What to say of a query whose time is up."""
    return f"the query was stopped after {timeout_s:g} s; narrow it, or read `summary`"


def too_much(memory: str) -> str:
    """What to say of a query that was refused memory."""
    return f"the query needs more than {memory} of memory; narrow it, or read `summary`"


def _work(request: bytes, scratch: Path, memory: int, waiting: Callable[[float], None] | None) -> tuple[int, bytes]:
    """Run the worker: its exit status and its output. It never outlives this call, and is killed when it holds more
    than `memory` bytes and half as much again, beside what it has before the query.
    """
    environment = {name: os.environ[name] for name in KEPT if name in os.environ} | {"TMPDIR": str(scratch)}
    asked = scratch / "request.json"
    asked.write_bytes(request)
    started = time.monotonic()
    with (
        asked.open("rb") as stdin,
        subprocess.Popen(
            WORKER, cwd=PROJECT, env=environment, stdin=stdin, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        ) as process,
    ):
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    out, _ = process.communicate(timeout=POLL_S)
                    return process.returncode, out
                with contextlib.suppress(psutil.Error):
                    if psutil.Process(process.pid).memory_info().rss > OWN_MEMORY + 3 * memory // 2:
                        process.kill()
                if waiting:
                    waiting(time.monotonic() - started)
        finally:
            process.kill()


def result_of(out: bytes, timeout_s: float) -> Result:
    """What the worker wrote: the columns, rows in pieces, and how it ended."""
    columns: list[tuple[str, str]] = []
    rows: list[tuple[Any, ...]] = []
    for kind, value in _messages(out):
        if kind == "columns":
            columns = value
        elif kind == "rows":
            rows += value
        elif kind == "error":
            raise StoreError(value)
        else:
            return Result([name for name, _ in columns], [sql_type for _, sql_type in columns], rows, *value)
    raise StoreError(stopped(timeout_s))


def _messages(out: bytes) -> Iterator[tuple[str, Any]]:
    stream = io.BytesIO(out)
    while stream.tell() < len(out):
        yield pickle.load(stream)
