"""The files of a run's store: their names, and moving them so that they survive a power cut."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

STEPS = "steps"
SEALED = "rollouts.duckdb"
PACKED = "tables"
WRITING, REPLACED, REMOVED = ".writing-", ".replaced-", ".removed-"
"""Prefixes of hidden folders of a run: a step being written, the one it replaces, one taken away for good."""

_STEP = re.compile(r"step=([0-9]{1,12})")
_TABLE = re.compile(r"([a-z]{1,20})(?:-([0-9]{1,4}))?\.parquet")


def table_file(table: str, rank: int = 0) -> str:
    """A step's file of a table: `tokens.parquet`, and `tokens-1.parquet` for the rows that rank 1 wrote."""
    return f"{table}-{rank}.parquet" if rank else f"{table}.parquet"


def table_files(folder: str) -> dict[str, tuple[str, ...]]:
    """The paths of a step's files by table, each table's in the order of the ranks that wrote them."""
    found: dict[str, list[tuple[int, str]]] = {}
    for name in os.listdir(folder):
        if match := _TABLE.fullmatch(name):
            found.setdefault(match[1], []).append((int(match[2] or 0), os.path.join(folder, name)))
    return {table: tuple(path for _, path in sorted(files)) for table, files in found.items()}


def step_folder(step: int) -> str:
    return f"step={step:06d}"


def live_steps(run_dir: str | Path) -> dict[int, Path]:
    """The steps that lie in `steps/`, ascending, with their folders."""
    try:
        names = os.listdir(Path(run_dir) / STEPS)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    found = ((int(match[1]), match[0]) for name in names if (match := _STEP.fullmatch(name)))
    return {step: Path(run_dir, STEPS, name) for step, name in sorted(found)}


def identity(path: str | Path) -> tuple[int, int] | None:
    """What changes when a folder or file is replaced; None if it is not there."""
    try:
        now = os.stat(path)
    except OSError:
        return None
    return now.st_ino, now.st_mtime_ns


def settled(run_dir: str | Path) -> tuple[tuple[int, int] | None, ...]:
    """What changes when a run's sealed file or its pack is replaced, or comes or goes."""
    return tuple(identity(Path(run_dir, name)) for name in (SEALED, PACKED))


def take_away(folder: Path, run_dir: Path) -> None:
    """Remove a step's folder: out of sight in one move, then deleted, so that no reader lists half of it."""
    hidden = run_dir / (REMOVED + folder.name)
    shutil.rmtree(hidden, ignore_errors=True)
    os.rename(folder, hidden)
    shutil.rmtree(hidden, ignore_errors=True)


def clear_leftovers(run_dir: Path) -> None:
    """Undo what a killed writer left half done; a step whose replacement never came is put back.

    Only the run's one writer may call this.
    """
    for name in os.listdir(run_dir):
        place = run_dir / STEPS / name.removeprefix(REPLACED)
        if name.startswith(REPLACED) and not place.exists():
            os.rename(run_dir / name, place)
        elif name.startswith((WRITING, REPLACED, REMOVED)):
            shutil.rmtree(run_dir / name, ignore_errors=True)


def flush(path: Path) -> None:
    """Have a file's contents, or a folder's entries, on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def replace_text(path: Path, text: str) -> None:
    """Write a small file in one move: readers see the old one or the new one."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        aside.write_text(text, encoding="utf-8")
        flush(aside)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)
    flush(path.parent)
