"""Sealing: a finished run's steps become one DuckDB file, sorted, that any number of processes read.

`tokens` is narrow and sorted by (step, split, group, rollout, position), so that one group's tokens are a few blocks
of the file. The file is written aside, flushed and renamed, and only then called sealed; the Parquet steps stay for a
grace period, since readers that are open still read them. Extending a finished run adds steps beside the sealed file;
the next seal replaces it by one that holds both.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path

import duckdb

from core.store import schema
from core.store.errors import StoreError
from core.store.files import SEALED, clear_leftovers, flush, live_steps, replace_text, take_away
from core.store.open import SAFE, Lab
from core.store.packed import is_packed
from core.store.sources import SEALED_STEPS, attach, identifier, literal

GRACE_S = 600.0
"""Seconds for which a sealed run's Parquet steps stay."""
_CHUNK = 64  # steps sorted at a time: what bounds the memory
_ASIDE = f".{SEALED}.writing"


def seal(run_dir: str | Path, mark: Callable[[Path], None] | None = None) -> Path:
    """Seal a finished run, or seal it anew after it was extended. Returns the sealed file.

    `mark` flips `sealed` in the run's status once the file is in place; None edits status.json here. Raises StoreError
    for a run that is not finished, has no steps or cannot be read; what was there then stays.
    """
    run_dir = Path(os.path.abspath(run_dir))
    state = _status(run_dir).get("state")
    if state != "finished":
        raise StoreError(f"{run_dir.name}: only finished runs are sealed, this one is {state or 'without a status'}")
    if is_packed(run_dir):
        raise StoreError(f"{run_dir.name} is packed, one file a table: it can be read as it is and is not sealed")
    if "?" in str(run_dir):  # DuckDB would look for the file's log under another name
        raise StoreError(f"{run_dir}: a folder with ? in its name cannot be sealed; rename it, or leave the run live")
    aside = run_dir / _ASIDE
    _remove(aside)
    try:
        with Lab([run_dir]) as lab:
            source = lab.source(lab.runs[0])
            if not source.steps:
                raise StoreError(f"{run_dir.name}: no steps to seal")
            if not source.live and source.sealed:
                (mark or _mark)(run_dir)
                return run_dir / SEALED
            times = {step: os.stat(folder).st_mtime_ns for step, folder in live_steps(run_dir).items()}
            try:
                write_sealed(aside, lab, {step: times.get(step, 0) for step in source.steps})
            except duckdb.Error as error:
                raise StoreError(f"{run_dir.name}: cannot be sealed: {str(error).partition(chr(10))[0]}") from error
        flush(aside)
        os.replace(aside, run_dir / SEALED)
        flush(run_dir)
    finally:
        _remove(aside)
    (mark or _mark)(run_dir)
    return run_dir / SEALED


def sweep(run_dir: str | Path, grace_s: float = GRACE_S) -> list[int]:
    """Remove the Parquet steps that the sealed file holds, once it is `grace_s` seconds old. Returns those removed.

    Call it when a run starts, and some time after sealing; never while another process writes the run.
    """
    run_dir = Path(run_dir)
    try:
        age = time.time() - os.stat(run_dir / SEALED).st_mtime
    except FileNotFoundError:
        return []
    if age < grace_s:
        return []
    with duckdb.connect(config=SAFE) as connection:
        _, sealed = attach(connection, run_dir / SEALED, "sealed")
    clear_leftovers(run_dir)
    live = live_steps(run_dir)
    swept = [step for step, folder in live.items() if sealed.get(step) == os.stat(folder).st_mtime_ns]
    for step in reversed(swept):
        take_away(live[step], run_dir)
    return swept


def write_sealed(path: Path, lab: Lab, times: dict[int, int]) -> None:
    """Copy the lab's one run into a new file, a few steps at a time, sorted: a plain file, not yet a run's.

    `times` are its steps with their folders' times in nanoseconds, 0 without one. Raises duckdb.Error.
    """
    connection = lab.cursor()
    steps = sorted(times)
    try:
        connection.execute(f"ATTACH {literal(str(path))} AS writing (TYPE duckdb, RECOVERY_MODE no_wal_writes)")
        for table in schema.TABLES:
            columns = lab.columns(table)
            defined = ", ".join(f"{identifier(name)} {sql_type}" for name, sql_type in columns.items())
            connection.execute(f"CREATE TABLE writing.main.{table} ({defined})")
            names = ", ".join(map(identifier, columns))
            order = ", ".join(identifier(key) for key in (*schema.KEYS, "polarity", "bin", "field") if key in columns)
            for i in range(0, len(steps), _CHUNK):
                chunk = steps[i : i + _CHUNK]
                connection.execute(
                    f"INSERT INTO writing.main.{table} SELECT {names} FROM main.{table} "
                    f"WHERE step BETWEEN {chunk[0]} AND {chunk[-1]} ORDER BY {order}"
                )
        connection.execute(f"CREATE TABLE writing.main.{SEALED_STEPS} (step BIGINT, mtime_ns BIGINT)")
        connection.execute(
            f"INSERT INTO writing.main.{SEALED_STEPS} SELECT unnest(?::BIGINT[]), unnest(?::BIGINT[])",
            [list(times), list(times.values())],
        )
        connection.execute("CHECKPOINT writing")
        connection.execute("DETACH writing")
    finally:
        connection.close()


def _status(run_dir: Path) -> dict:
    try:
        data = json.loads((run_dir / "status.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise StoreError(f"{run_dir / 'status.json'}: cannot be read") from error
    return data if isinstance(data, dict) else {}


def _mark(run_dir: Path) -> None:
    replace_text(run_dir / "status.json", json.dumps({**_status(run_dir), "sealed": True}, indent=1) + "\n")


def _remove(path: Path) -> None:
    for file in (path, path.with_name(path.name + ".wal")):
        file.unlink(missing_ok=True)
