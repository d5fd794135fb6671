"""What lies below a path: a glance at the beginning of each file, so that a format is known by what is in it.

A glance reads `HEAD` bytes of a file, and on to the end of the first line, up to `LONGEST_LINE`. Of a longer line, such
as a run in one object, the values that are whole are looked at.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from core.importers.base import Found, ImportFailed
from core.importers.formats._lines import UNREADABLE_PARQUET, opened

HEAD = 256 * 1024
LONGEST_LINE = 8 * 2**20
ROWS_LOOKED_AT = 16
ALIKE = 64
"""So many files of one kind of name are looked at; the others are taken to be like the last of these."""
MAX_FILES = 200_000
"""Files of a folder at most: more than that is no folder of rollouts but a whole disk."""
MAX_ENTRIES = 1_000_000
"""Files of any kind and folders below a folder, at most."""
ENDINGS = (".jsonl", ".json", ".parquet", ".ndjson", ".gz")
"""Files that are looked into in a folder; a single file is looked into whatever its name is."""
PICKLED = (".pt", ".pth", ".pkl", ".pickle")


@dataclass(frozen=True)
class Glance:
    """The beginning of a file."""

    path: Path
    kind: str
    """json (lines or one object), parquet, or unknown: empty, damaged or something else."""
    rows: tuple[dict[str, Any], ...] = ()
    """The first objects of a JSON file; values that the glance cut off are missing or shorter."""
    columns: dict[str, pa.DataType] = field(default_factory=dict)
    """Of a Parquet file."""


_seen: ContextVar[dict[Path, list[Glance]] | None] = ContextVar("seen", default=None)


@contextmanager
def one_look() -> Iterator[None]:
    """Within it, what lies below a path is looked at once for all formats."""
    token = _seen.set({})
    try:
        yield
    finally:
        _seen.reset(token)


def look(path: Path) -> list[Glance]:
    """A glance at the file, or at each file below the folder, in the order of their steps."""
    seen = _seen.get()
    if seen is not None and path in seen:
        return seen[path]
    glances = list(_glances(path))
    if seen is not None:
        seen[path] = glances
    return glances


def _glances(path: Path) -> Iterator[Glance]:
    """A glance at each file. Of many files whose names differ in their numbers alone, the first are looked at."""
    alike: dict[str, list[Glance]] = {}
    for file in files_below(path):
        known = alike.setdefault(re.sub(r"\d+", "#", file.as_posix()), [])
        if len(known) < ALIKE or not file.stat().st_size:
            known.append(glance(file))
            yield known[-1]
        else:
            yield replace(next((seen for seen in reversed(known) if seen.kind != "unknown"), known[-1]), path=file)


def recognise(name: str, path: Path, fits: Callable[[Glance], bool]) -> Found | None:
    """The files below a path that fit, with the unreadable ones beside them: reading reports those. None for none."""
    glances = look(path)
    fitting = [seen for seen in glances if seen.kind != "unknown" and fits(seen)]
    if not fitting:
        return None
    places = {(seen.path.parent, seen.path.suffix) for seen in fitting}
    files = {seen.path for seen in fitting}
    files |= {
        seen.path for seen in glances if seen.kind == "unknown" and (seen.path.parent, seen.path.suffix) in places
    }
    return Found(name, path, tuple(seen.path for seen in glances if seen.path in files))


def rows_fit(fits: Callable[[dict[str, Any]], bool]) -> Callable[[Glance], bool]:
    """Whether any of the first objects of a JSON file fits."""
    return lambda seen: seen.kind == "json" and any(fits(row) for row in seen.rows)


def files_below(path: Path) -> list[Path]:
    """The file itself, or a folder's files with a data format's ending, by step and then by name.

    Folders that are links, and hidden ones, are left out. Raises ImportFailed where there are too many files.
    """
    if path.is_file():
        return [path]
    found, entries = [], 0
    for folder, inner, names in os.walk(path):
        inner[:] = [name for name in inner if not name.startswith(".")]
        entries += len(names) + len(inner)
        if entries > MAX_ENTRIES:
            raise ImportFailed(f"{path} has more than {MAX_ENTRIES:,} entries; name the folder that has the rollouts.")
        found += [Path(folder, name) for name in names if name.lower().endswith(ENDINGS) and not name.startswith(".")]
        if len(found) > MAX_FILES:
            raise ImportFailed(f"{path} has more than {MAX_FILES:,} files; name the folder that has the rollouts.")
    return sorted((file for file in found if file.is_file()), key=lambda file: _order(file.relative_to(path)))


def step_of(name: str) -> int | None:
    """The step that a path says: `step_3/…`, `iteration_000003/…`, a folder `3/`, or a file whose name ends in 3."""
    named = re.findall(r"(?:step|iteration)[_=-]?(\d{1,15})(?!\d)", name)
    folders = re.findall(r"(?:^|/)(\d{1,15})(?=/)", name)
    ending = re.findall(r"(\d{1,15})(?:\.[A-Za-z]+)*$", name)
    for numbers in (named, folders, ending):
        if numbers:
            return int(numbers[-1])
    return None


def split_of(name: str) -> str:
    """Whether a path's names say that it is an evaluation, else train."""
    parts = re.split(r"[/._-]", name.lower())
    return "eval" if {"eval", "evals", "val", "valid", "validation"} & set(parts) else "train"


def _order(name: Path) -> tuple[int, list[tuple[int, str]]]:
    natural = [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d{1,15})", name.as_posix())]
    step = step_of(name.as_posix())
    return -1 if step is None else step, natural


def is_pickle(path: Path) -> bool:
    """Whether a file is a pickle or a torch archive: by its ending, or by its first bytes."""
    if path.suffix.lower() in PICKLED:
        return True
    try:
        with path.open("rb") as handle:
            head = handle.read(4096)
    except OSError:
        return False
    return (head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05") or (head[:2] == b"PK" and b"/data.pkl" in head)


def glance(path: Path) -> Glance:
    """The beginning of one file."""
    try:
        with opened(path) as handle:
            head = _head(handle)
    except (ImportFailed, OSError):
        return Glance(path, "unknown")
    if head[:4] == b"PAR1":
        try:
            schema = pq.read_schema(path)
        except UNREADABLE_PARQUET:
            return Glance(path, "unknown")
        return Glance(path, "parquet", columns={item.name: item.type for item in schema})
    rows = tuple(_objects(head))
    return Glance(path, "json" if rows else "unknown", rows)


def _head(handle: BinaryIO) -> bytes:
    """The first bytes of a file; what there is of them in a packed file that is damaged."""
    head = bytearray()
    try:
        while len(head) < HEAD or (b"\n" not in head and head[:1] == b"{" and len(head) < LONGEST_LINE):
            more = handle.read(16 * 1024 if len(head) < HEAD else HEAD)
            if not more:
                break
            head += more
    except (EOFError, zlib.error, gzip.BadGzipFile):
        pass
    return bytes(head)


def _objects(head: bytes) -> Iterator[dict[str, Any]]:
    """The objects in the first lines; where there is none, what can be mended of the beginning."""
    written = head.decode("utf-8", "replace").lstrip("\ufeff")
    some = False
    for line in written.split("\n")[:ROWS_LOOKED_AT]:
        value = _parsed(line)
        if isinstance(value, dict):
            some = True
            yield value
    if not some and isinstance(value := mended(written), dict) and value:
        yield value


_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},]', re.DOTALL)


def mended(written: str) -> Any:
    """The value of JSON that was cut off: what was whole, with the brackets closed. None where it is no JSON."""
    open_brackets: list[str] = []
    cut, closing = 0, ""
    for token in _TOKENS.finditer(written):
        sign = token[0]
        if sign in "[{":
            open_brackets.append("]" if sign == "[" else "}")
        elif sign in "]}":
            if not open_brackets or open_brackets.pop() != sign:
                return None
        elif sign != ",":
            continue
        if len(open_brackets) > 100:
            break
        cut, closing = token.start() if sign == "," else token.end(), "".join(reversed(open_brackets))
        if not open_brackets:
            break
    return _parsed(written[:cut] + closing)


def _parsed(written: str) -> Any:
    try:
        return json.loads(written)
    except (ValueError, RecursionError):
        return None
