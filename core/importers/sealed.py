"""The sealed file of an imported run, written in bulk: many steps in one go, every table sorted as `seal` does.

Beside the store's tables it keeps what a later import goes on from, so that one move replaces all of it at once:
`import_tail`, the rows of the last steps as they were read, and `import_manifest`, the text of import.json.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from core.importers.base import ROLLOUT, SCHEMA
from core.importers.manifest import Manifest, from_json, to_json
from core.store import schema
from core.store.errors import StoreError
from core.store.factors import Factors
from core.store.open import SAFE
from core.store.rows import Tables
from core.store.sources import SEALED_STEPS, TYPES, identifier, literal, sql_type

TAIL_STEPS = 3
"""The last steps whose rows are kept as they were read: what comes late to one of them still finds its group."""
TAIL, MANIFEST = "import_tail", "import_manifest"
MEMORY_MB = 512
AT_ONCE = 150_000
"""Rows of an insert, about: whole row groups of the file, which then needs no second writing."""
BYTES_AT_ONCE = 64 * 2**20
"""Of an insert, about: fewer rows, where their texts are long."""


class Sealed:
    """The file being written, new or a copy that is extended. `close` ends it; the caller moves it into place."""

    def __init__(self, file: Path, factors: Factors) -> None:
        new = not file.exists()
        self.connection = duckdb.connect(config=SAFE)
        self.connection.execute("SET enable_progress_bar = false")  # it would print among the command's own words
        self.connection.execute(f"ATTACH {literal(str(file))} AS writing (TYPE duckdb, RECOVERY_MODE no_wal_writes)")
        self.connection.execute("USE writing")
        self.connection.execute(f"SET memory_limit = '{MEMORY_MB}MB'")
        self.connection.execute(f"SET threads = {min(2, os.cpu_count() or 1)}")
        self.columns = {table: dict(TYPES[table]) for table in schema.TABLES}
        for table, names in (("rollouts", factors.rollout), ("tokens", factors.token)):
            self.columns[table] |= {schema.FACTOR_PREFIX + name: "FLOAT" for name in names}
        (self._create if new else self._widen)()
        self._waiting: list[Tables] = []
        self._steps: list[int] = []
        self._rows = self._bytes = 0
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="insert")
        self._running: Future[None] | None = None

    def __enter__(self) -> Sealed:
        return self

    def __exit__(self, *_: object) -> None:
        self.abandon()

    def _create(self) -> None:
        for table, columns in self.columns.items():
            defined = ", ".join(f"{identifier(name)} {kind}" for name, kind in columns.items())
            self.connection.execute(f"CREATE TABLE {table} ({defined})")
        self.connection.execute(f"CREATE TABLE {SEALED_STEPS} (step BIGINT, mtime_ns BIGINT)")
        defined = ", ".join(f"{identifier(column.name)} {sql_type(column.type)}" for column in ROLLOUT)
        self.connection.execute(f"CREATE TABLE {TAIL} ({defined})")
        self.connection.execute(f"CREATE TABLE {MANIFEST} (json VARCHAR)")

    def _widen(self) -> None:
        """Columns that this version, or this import, has and the file lacks."""
        for table, columns in self.columns.items():
            for name, kind in columns.items():
                self.connection.execute(f"ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {identifier(name)} {kind}")

    def drop(self, steps: Iterable[int]) -> None:
        """Take steps out, to be written anew."""
        for step in steps:
            for table in (*schema.TABLES, SEALED_STEPS):
                self.connection.execute(f"DELETE FROM {table} WHERE step = ?", [step])

    def add(self, several: list[Tables], steps: list[int]) -> None:
        """Write the tables of some steps, in the background and many at a time."""
        self._waiting += several
        self._steps += steps
        self._rows += sum(rows.num_rows for tables in several for rows in tables.values())
        self._bytes += sum(rows.nbytes for tables in several for rows in tables.values())
        if self._rows >= AT_ONCE or self._bytes >= BYTES_AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        self.wait()
        if self._steps:
            self._running = self._thread.submit(self._insert, self._waiting, self._steps)
        self._waiting, self._steps, self._rows, self._bytes = [], [], 0, 0

    def wait(self) -> None:
        """Return when all that was handed over is written; what went wrong there is raised here."""
        running, self._running = self._running, None
        if running is not None:
            running.result()

    def finish(self) -> None:
        """Have every step in the file."""
        self._flush()
        self.wait()

    def abandon(self) -> None:
        """Let go of the file, whatever it holds; more than once does no harm."""
        self._thread.shutdown(wait=True, cancel_futures=True)
        self.connection.close()

    def _insert(self, several: list[Tables], steps: list[int]) -> None:
        for table, columns in self.columns.items():
            parts = [tables[table] for tables in several if table in tables]
            if not parts:
                continue
            rows = pa.concat_tables(parts, promote_options="default")
            names = ", ".join(identifier(name) for name in columns if name in rows.column_names)
            keys = (*schema.KEYS, "polarity", "bin", "field")
            order = ", ".join(identifier(key) for key in keys if key in rows.column_names)
            order = "" if table in ("rollouts", "tokens") else f" ORDER BY {order}"  # those come sorted
            self.connection.register("written", rows)
            self.connection.execute(f"INSERT INTO {table} ({names}) SELECT {names} FROM written{order}")
            self.connection.unregister("written")
        self.connection.executemany(f"INSERT INTO {SEALED_STEPS} VALUES (?, 0)", [[step] for step in steps])

    def totals(self) -> tuple[int, int]:
        """Rollouts and tokens that are in the file."""
        query = "SELECT (SELECT count(*) FROM rollouts), (SELECT count(*) FROM tokens)"
        return self.connection.execute(query).fetchall()[0]

    def close(self, tail: pa.Table, manifest: Manifest) -> None:
        """Keep what a later import needs, and finish the file."""
        self.connection.execute(f"DELETE FROM {TAIL}")
        self.connection.register("written", tail)
        names = ", ".join(map(identifier, SCHEMA.names))
        self.connection.execute(f"INSERT INTO {TAIL} ({names}) SELECT {names} FROM written")
        self.connection.unregister("written")
        self.connection.execute(f"DELETE FROM {MANIFEST}")
        self.connection.execute(f"INSERT INTO {MANIFEST} VALUES (?)", [to_json(manifest)])
        self.connection.execute("CHECKPOINT writing")
        self.abandon()


class Before:
    """What a run's sealed file says of earlier imports. Raises StoreError where it is not one of an import."""

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            self._connection = duckdb.connect(str(file), read_only=True, config=SAFE)
            self._connection.execute("SET enable_progress_bar = false")
            self._connection.execute(f"SET memory_limit = '{MEMORY_MB}MB'")
            found = self._connection.execute(f"SELECT json FROM {MANIFEST}").fetchall()
            self.manifest = from_json(found[0][0] if found else "")
            self.tail = self._connection.sql(f"SELECT * FROM {TAIL}").to_arrow_table().cast(SCHEMA)
            self.steps = {step for (step,) in self._connection.execute(f"SELECT step FROM {SEALED_STEPS}").fetchall()}
        except (duckdb.Error, ValueError) as error:
            raise StoreError(f"{file}: not the file of an imported run, or damaged; delete the run") from error

    def vocabulary(self) -> dict[str, int]:
        """The numbers that the lab gave to token texts."""
        return dict(self._connection.execute("SELECT DISTINCT token, token_id FROM tokens").fetchall())

    def rollouts(self, but: set[int]) -> dict[str, np.ndarray]:
        """Training rollouts of all other steps, in order: what fits are made of."""
        found = self._connection.execute(
            """SELECT step, "group", reward::DOUBLE AS reward, coalesce(correct, false) AS correct,
            greatest(coalesce(length, 1), 1) AS tokens, coalesce(imported_advantage, 'nan'::DOUBLE) AS advantage
            FROM rollouts WHERE split = 'train' AND reward IS NOT NULL
            AND step NOT IN (SELECT unnest(?::BIGINT[])) ORDER BY step, "group", rollout""",
            [sorted(but)],
        ).fetchnumpy()
        return {name: np.ma.getdata(values) for name, values in found.items()}

    def close(self) -> None:
        self._connection.close()
