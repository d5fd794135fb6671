"""Writing a run's steps: whole or not at all.

A step is a folder `steps/step=000123/` with one Parquet file for each table that has rows. It is written into a hidden
folder of the run, every file and folder flushed to the disk, then moved into place by one rename. A reader, or a
machine that loses power, meets a whole step or none. One process writes a run at a time, or several that train it
together: each then writes a file of its own groups' rows (`tokens-1.parquet`), and the first moves the folder into
place when all are done. Any number of processes read it.
"""

from __future__ import annotations

import functools
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from core.ranks import ALONE, Ranks
from core.store.errors import StoreError
from core.store.factors import Factors, read_schema, write_factors
from core.store.files import (
    REPLACED,
    STEPS,
    WRITING,
    clear_leftovers,
    flush,
    live_steps,
    step_folder,
    table_file,
    take_away,
)
from core.store.record import StepRecord
from core.store.rows import Tables, tables
from core.store.schema import LATER_TABLES, TABLES
from core.store.summary import add_up


def write_step(run_dir: str | Path, record: StepRecord, ranks: Ranks = ALONE) -> float:
    """Write a step, in place of an earlier one of the same number. Returns the seconds it took.

    Several ranks all call it, with the same record. Raises StoreError for a record that contradicts itself or the run's
    schema, OSError where the disk refuses; either leaves the run as it was.
    """
    started = time.perf_counter()
    run_dir = Path(run_dir)
    if record.step < 0:
        raise StoreError(f"step {record.step}: steps count from 0")
    contents = tables(record, _factors(run_dir, record), ranks)
    name = step_folder(record.step)
    steps, writing = run_dir / STEPS, run_dir / (WRITING + name)
    if not ranks.first:
        _write_share(writing, contents, ranks)
        return time.perf_counter() - started
    steps.mkdir(exist_ok=True)
    shutil.rmtree(writing, ignore_errors=True)
    writing.mkdir()
    try:
        _write_share(writing, contents, ranks)
        flush(writing)
        _move(writing, steps / name, run_dir / (REPLACED + name))
    except BaseException:
        if ranks.world == 1:  # others may still write there; the next start clears it
            shutil.rmtree(writing, ignore_errors=True)
        raise
    flush(steps)
    return time.perf_counter() - started


def _write_share(folder: Path, contents: Tables, ranks: Ranks) -> None:
    """Write and flush a rank's tables once the folder is there; returns when all ranks have. The first has the sums."""
    sums = {table: contents.pop(table) for table in ("summary", *LATER_TABLES) if table in contents}
    shares = ranks.gather(sums)
    for table in dict.fromkeys(table for share in shares for table in share) if ranks.first else ():
        contents[table] = add_up(table, [share[table] for share in shares if table in share])
    files = {folder / table_file(table, ranks.rank): rows for table, rows in contents.items()}
    list(_writers(os.getpid()).map(_write_table, files, files.values()))
    ranks.gather(None)


@functools.cache
def _writers(pid: int) -> ThreadPoolExecutor:
    """Threads that write and flush files side by side: together they cost the disk one wait. A process keeps its own,
    as starting them takes as long as writing the tables of a small step."""
    return ThreadPoolExecutor(len(TABLES), thread_name_prefix=f"write-{pid}")


def _write_table(path: Path, rows: pa.Table) -> None:
    few = rows.num_rows < 8  # then dictionaries and statistics would outweigh the rows
    pq.write_table(
        rows,
        path,
        row_group_size=8192,  # a group's tokens are then found without reading the whole step
        compression="lz4",  # the CPU time of a small step is in the headers, so a quick one; sealing compresses better
        use_dictionary=[] if few else [field.name for field in rows.schema if pa.types.is_string(field.type)],
        write_statistics=not few and [name for name in ("group",) if name in rows.column_names],
        store_schema=False,
    )
    flush(path)


def _move(folder: Path, place: Path, hidden: Path) -> None:
    """Put a folder in its place; what was there goes to `hidden` and is deleted, or comes back if the move fails."""
    shutil.rmtree(hidden, ignore_errors=True)
    replacing = place.exists()
    if replacing:
        os.rename(place, hidden)
    try:
        os.rename(folder, place)
    except BaseException:
        if replacing:
            os.rename(hidden, place)
        raise
    shutil.rmtree(hidden, ignore_errors=True)


def drop_steps_from(run_dir: str | Path, step: int) -> list[int]:
    """Remove the live steps from `step` on, newest first, and what a killed writer left. Returns the steps removed."""
    run_dir = Path(run_dir)
    clear_leftovers(run_dir)
    dropped = {number: folder for number, folder in live_steps(run_dir).items() if number >= step}
    for folder in reversed(dropped.values()):
        take_away(folder, run_dir)
    if dropped:
        flush(run_dir / STEPS)
    return list(dropped)


def step_numbers(run_dir: str | Path) -> list[int]:
    """The steps of a run, ascending, live and sealed."""
    from core.store.open import open_runs

    with open_runs([run_dir]) as lab:
        return lab.steps(lab.runs[0])


def _factors(run_dir: Path, record: StepRecord) -> Factors:
    """The run's factor columns: those of schema.json, which the first step writes if nothing did before."""
    factors = read_schema(run_dir)
    if factors is None:
        factors = Factors.of(split.trace for split in record.splits if split.trace is not None)
        write_factors(run_dir, factors)
    return factors
