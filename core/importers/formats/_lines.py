"""JSONL files, read a line at a time: torn last lines, bytes that are no UTF-8, and files that still grow.

A place counts bytes up to the end of a whole line. The last line of a file may lack its newline: it is taken where it
is a whole JSON object, else it is left for a later import.
"""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from core.importers.base import Found, ImportFailed, Place, Places, Report
from core.importers.formats._values import Refused
from core.importers.places import ENDING, ending_of

LONGEST = 256 * 2**20
"""Bytes of a line at most."""
NO_OBJECT = "the line is no JSON object"
TOO_LONG = "the line is longer than 256 MB"
UNREADABLE = "{} is not there any more, or cannot be opened: it was left out."
GZIP = b"\x1f\x8b"
UNREADABLE_PARQUET = (pa.ArrowException, OSError, ValueError, OverflowError, LookupError)
"""What a Parquet file may raise that is damaged, or has values that Python has no place for: times, zones, texts."""


@dataclass(frozen=True)
class Line:
    """A line of a file that holds a JSON object, or a file's end."""

    file: str
    """Below what was imported, with `/`."""
    number: int
    """From 1."""
    row: dict[str, Any] | None
    """None at the end of the file."""
    place: Place
    """The place behind it; its rows count lines."""
    before: int = 0
    """Rollouts that earlier imports took from the lines before."""

    @property
    def where(self) -> str:
        return f"{self.file}, line {self.number}"


def name_of(found: Found, path: Path) -> str:
    """A file's name in places and reports."""
    return path.name if path == found.root else path.relative_to(found.root).as_posix()


def opened(path: Path) -> BinaryIO:
    """The file's bytes, unpacked where it is gzip. Raises ImportFailed where it cannot be opened."""
    try:
        handle = path.open("rb")
        packed = handle.read(2) == GZIP
        handle.seek(0)
    except OSError as error:
        raise ImportFailed(f"{path.name} cannot be read ({error.strerror}); a readable file would be right.") from error
    return gzip.GzipFile(fileobj=handle) if packed else handle


def loads(raw: bytes) -> tuple[Any, bool]:
    """The JSON value of a line, and whether bytes had to be replaced. Raises Refused where it is none."""
    try:
        written, replaced = raw.decode("utf-8"), False
    except UnicodeDecodeError:
        written, replaced = raw.decode("utf-8", "replace"), True
    try:
        return json.loads(written.lstrip("\ufeff")), replaced
    except (ValueError, RecursionError):
        raise Refused(NO_OBJECT) from None


def _whole(raw: bytes) -> bool:
    """Whether a last line without newline is a whole object."""
    try:
        return isinstance(loads(raw)[0], dict)
    except Refused:
        return False


def lines(found: Found, path: Path, report: Report, done: Places) -> Iterator[Line]:
    """The objects of a file from its place on, then its end. What is no object is refused in the report.

    A packed file that has grown, and a file that is shorter than it was, are read anew.
    """
    file, known = name_of(found, path), done.get(name_of(found, path))
    try:
        stat, handle = path.stat(), opened(path)
    except (OSError, ImportFailed):
        report.note(UNREADABLE.format(file))
        return
    with handle:
        if known and known.modified_ns == stat.st_mtime_ns:
            return
        packed = isinstance(handle, gzip.GzipFile)
        if known and not packed and stat.st_size < known.size:
            report.note(f"{file} is shorter than it was: it was read anew.")
        try:
            goes_on = known is not None and not packed and stat.st_size >= known.size
            at, before = (known.size, known.rows) if goes_on else (0, 0)
            number, last, passed = _count_lines(handle, at)
            if passed < at:  # another process has just begun it anew
                report.note(f"{file} is shorter than it was: it was read anew.")
                at, before, number, last = 0, 0, 0, b""
                handle.seek(0)
            start = Place(at, number, stat.st_mtime_ns)
            for line in _objects(handle, file, start, last, report):
                place = replace(line.place, size=stat.st_size, ending="") if packed else line.place
                yield replace(line, place=place, before=before)
        except (EOFError, zlib.error, gzip.BadGzipFile):
            report.note(f"{file} ends in the middle of what was packed: its rows up to there were read.")
        except OSError as error:
            report.note(f"{file} could not be read to its end ({error.strerror}): its rows up to there were read.")


def _count_lines(handle: BinaryIO, size: int) -> tuple[int, bytes, int]:
    """The lines in the next bytes, which are passed; the last of these bytes; and how many they are."""
    number, last, passed = 0, b"", 0
    while passed < size and (raw := handle.read(min(size - passed, 2**20))):
        number += raw.count(b"\n")
        last = (last + raw)[-ENDING:]
        passed += len(raw)
    return number, last, passed


def _objects(handle: BinaryIO, file: str, start: Place, last: bytes, report: Report) -> Iterator[Line]:
    """`last` are the last bytes before the start."""
    at, number, clean = start.size, start.rows, True
    while raw := handle.readline(LONGEST):
        number += 1
        if len(raw) == LONGEST and not raw.endswith(b"\n"):
            passed, last = _skip(handle)
            at += len(raw) + passed
            report.refuse(TOO_LONG, f"{file}, line {number}")
            continue
        if not raw.endswith(b"\n") and raw.strip() and not _whole(raw):
            report.note(f"The last line of {file} (line {number}) is torn: it was left for a later import.")
            break
        at += len(raw)
        last = raw[-ENDING:] if len(raw) >= ENDING else (last + raw)[-ENDING:]
        if not raw.strip():
            continue
        try:
            row, replaced = loads(raw)
            if not isinstance(row, dict):
                raise Refused(NO_OBJECT)
        except Refused as reason:
            report.refuse(str(reason), f"{file}, line {number}")
            continue
        if replaced and clean:
            report.note(f"{file} has bytes that are no UTF-8 (first in line {number}): they were replaced by \ufffd.")
            clean = False
        yield Line(file, number, row, Place(at, number, start.modified_ns, ending_of(last)))
    if not number:
        report.note(f"{file} is empty.")
    yield Line(file, number, None, Place(at, number, start.modified_ns, ending_of(last)))


def _skip(handle: BinaryIO) -> tuple[int, bytes]:
    """Read on to the end of the line; the bytes passed, and the last of them."""
    passed, last = 0, b""
    while raw := handle.readline(LONGEST):
        passed += len(raw)
        last = (last + raw[-ENDING:])[-ENDING:]
        if raw.endswith(b"\n"):
            break
    return passed, last
