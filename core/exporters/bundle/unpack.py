"""An archive from anybody to a folder of files under fixed names. No name of the archive is ever part of a path.

Looked at before anything is written: the list of entries, their names, kinds, sizes and how far they are compressed.
While they are written, each is counted and hashed, so that what the archive says of itself need not be believed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import stat
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.exporters.bundle import layout
from core.exporters.bundle.layout import BundleError, size_in_words
from core.runs.folders import is_run_id

_CHUNK = layout.MB
_FIRST, _END, _LARGE = b"PK\x03\x04", b"PK\x05\x06", b"PK\x06\x07"
_END_SIZE, _LARGE_SIZE = 22, 20
_LARGEST_LIST = 64 * 1024
_NOT_WHOLE = (
    zipfile.BadZipFile, zlib.error, EOFError, OSError, struct.error, ValueError, NotImplementedError, RuntimeError,
    OverflowError, IndexError,
)  # fmt: skip
"""What `zipfile` raises for archives that are damaged, locked or of a kind it does not know."""
DAMAGED = "is damaged, locked or no zip file; have it sent again"
ALONE = "is an adapter without its run: ask for what “Send to a colleague” gives"
ELSE = "; rollouts of another trainer are to be unpacked, and their folder imported"


@dataclass(frozen=True)
class Contents:
    """What a bundle says of itself."""

    run: str
    """The run's id where it was made."""
    lab: str
    """The version that made it."""
    packed: bool
    """Whether some steps' tokens had been left out of the run before."""
    digest: str
    """The same for bundles of the same contents alone."""


def unpack(file: Path, folder: Path) -> Contents:
    """Unpack a bundle into a new folder of one that is there. Raises BundleError; what was written is then the caller's
    to remove."""
    try:
        size = file.stat().st_size
        _look_at_its_end(file, size)
        with zipfile.ZipFile(file) as archive:
            run, entries = _entries(archive, file, size)
            _check_room(folder, sum(entry.file_size for entry in entries.values()))
            raw = _small(archive, entries.pop(layout.CONTENTS), file)
            contents, files = _parsed(raw, run, file)
            if set(files) != set(entries):
                other = sorted(set(files) ^ set(entries))[0]
                raise BundleError(
                    f"{file.name}: is not whole: {layout.CONTENTS} and its files disagree about {other[:80]!a}"
                )
            for name in layout.FOLDERS:
                (folder / name).mkdir(parents=True)
            for name, entry in entries.items():
                _write(archive, entry, folder / name, files[name], f"{file.name}: {name}")
    except BundleError:
        raise
    except OSError as error:
        if isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError) or error.errno == 28:
            raise BundleError(f"{file.name}: {error.strerror}") from error
        raise BundleError(f"{file.name}: is damaged; have it sent again") from error
    except _NOT_WHOLE as error:
        raise BundleError(f"{file.name}: {DAMAGED}") from error
    return contents


def look(file: Path) -> None:
    """Raise BundleError for what cannot be a bundle: by the list of its entries, nothing is unpacked."""
    try:
        size = file.stat().st_size
        _look_at_its_end(file, size)
        with zipfile.ZipFile(file) as archive:
            _entries(archive, file, size)
    except BundleError:
        raise
    except _NOT_WHOLE as error:
        raise BundleError(f"{file.name}: {DAMAGED}") from error


def _look_at_its_end(file: Path, size: int) -> None:
    """Raise BundleError for what is no plain zip file, or has a list of more entries than a bundle's."""
    if size > layout.LARGEST:
        raise BundleError(f"{file.name}: is larger than {size_in_words(layout.LARGEST)}, the most that a bundle may be")
    with file.open("rb") as stream:
        start = stream.read(len(_FIRST))
        stream.seek(max(0, size - _END_SIZE - _LARGE_SIZE))
        tail = stream.read()
    end = tail[-_END_SIZE:]
    if start != _FIRST:
        raise BundleError(f"{file.name}: is no bundle: a run that was sent is a .zip of its own")
    if len(end) < _END_SIZE or end[:4] != _END:
        raise BundleError(f"{file.name}: is cut off, or no bundle; have it sent again")
    entries, listed = struct.unpack("<HI", end[10:16])
    large = tail.startswith(_LARGE) and len(tail) == _END_SIZE + _LARGE_SIZE
    if entries > layout.MOST_ENTRIES or listed > _LARGEST_LIST or (large and size < 2**31):
        raise BundleError(f"{file.name}: is no bundle: it holds more than the files of a run{ELSE}")


def _entries(archive: zipfile.ZipFile, file: Path, size: int) -> tuple[str, dict[str, zipfile.ZipInfo]]:
    """The run's id and the archive's files by their fixed names. Raises BundleError for anything that is not fine."""
    found: dict[str, zipfile.ZipInfo] = {}
    runs = set()
    names = {name.rpartition("/")[2] for name in archive.namelist()}
    if layout.SETTINGS in names and layout.CONTENTS not in names:
        raise BundleError(f"{file.name}: {ALONE}")
    for entry in archive.infolist():
        run, _, name = entry.filename.partition("/")
        shown = ascii(entry.filename[:80])
        runs.add(run)
        if len(runs) > 1 or not is_run_id(run):
            raise BundleError(f"{file.name}: is no bundle: it holds {shown}, and a bundle holds one run's folder{ELSE}")
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if entry.is_dir() and name.rstrip("/") in layout.FOLDERS and kind in (0, stat.S_IFDIR):
            continue
        if name not in layout.LIMITS:
            raise BundleError(f"{file.name}: holds {shown}, which no bundle has{ELSE}")
        if kind not in (0, stat.S_IFREG):
            raise BundleError(f"{file.name}: {name} is a link or no plain file")
        if name in found:
            raise BundleError(f"{file.name}: holds {name} twice")
        if entry.flag_bits & 1:
            raise BundleError(f"{file.name}: is locked with a password; send it without one")
        if entry.file_size > layout.LIMITS[name]:
            most = size_in_words(layout.LIMITS[name])
            raise BundleError(f"{file.name}: {name} would be larger than {most}, the most that it may be")
        if entry.file_size > layout.MOST_RATIO * entry.compress_size + layout.FREE_RATIO:
            raise BundleError(f"{file.name}: {name} would unpack to more than {layout.MOST_RATIO} times its size")
        found[name] = entry
    if layout.CONTENTS not in found:
        raise BundleError(
            f"{file.name}: is no bundle: it has no {layout.CONTENTS} (python -m core export run RUN -o FILE makes one)"
        )
    if missing := [name for name in layout.NEEDED if name not in found]:
        raise BundleError(f"{file.name}: is not whole: {missing[0]} is missing")
    if sum(entry.compress_size for entry in found.values()) > size:
        raise BundleError(f"{file.name}: its files overlap each other")
    if sum(entry.file_size for entry in found.values()) > layout.LARGEST:
        raise BundleError(f"{file.name}: would unpack to more than {size_in_words(layout.LARGEST)}")
    return next(iter(runs)), found


def _check_room(folder: Path, size: int) -> None:
    """Raise BundleError where the disk could not hold the files twice, as they come and written anew."""
    free = shutil.disk_usage(folder.parent).free
    if free < 2 * size + 64 * layout.MB:
        needed, there = (f"{n / layout.MB:.0f} MB" for n in (2 * size + 64 * layout.MB, free))
        raise BundleError(f"not enough disk space to open it: {needed} are needed, {there} are free")


def _small(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, file: Path) -> bytes:
    with archive.open(entry) as stream:
        raw = stream.read(layout.LIMITS[layout.CONTENTS] + 1)
    if len(raw) != entry.file_size:
        raise BundleError(f"{file.name}: {layout.CONTENTS} is not of the size that the archive says")
    return raw


def _parsed(raw: bytes, run: str, file: Path) -> tuple[Contents, dict[str, tuple[int, str]]]:
    """What bundle.json says, and the size and hash of each other file. Raises BundleError."""
    try:
        data: dict[str, Any] = json.loads(raw)
        found, lab, packed = data["format"], data["lab"], data["packed"]
        files = {name: (int(size), str(digest)) for name, (size, digest) in data["files"].items()}
        fits = isinstance(lab, str) and isinstance(packed, bool) and data["run"] == run
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise BundleError(f"{file.name}: {layout.CONTENTS} does not say what the bundle holds") from error
    if found != layout.FORMAT:
        raise BundleError(
            f"{file.name}: its format is {ascii(found)[:20]}, this version of the lab reads {layout.FORMAT}"
        )
    if not fits:
        raise BundleError(f"{file.name}: {layout.CONTENTS} does not say what the bundle holds")
    return Contents(run, lab[:40], packed, hashlib.sha256(raw).hexdigest()), files


def _write(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, path: Path, told: tuple[int, str], what: str) -> None:
    """Copy an entry, counted and hashed. Raises BundleError where it is not what was told."""
    size, expected = told
    written, digest = 0, hashlib.sha256()
    with archive.open(entry) as stream, path.open("xb") as out:
        while chunk := stream.read(_CHUNK):
            written += len(chunk)
            if written > min(size, entry.file_size):
                break
            digest.update(chunk)
            out.write(chunk)
    if not written == size == entry.file_size or digest.hexdigest() != expected:
        raise BundleError(f"{what} is damaged: it is not what was sent; have it sent again")
