"""A bundle becomes a run of this lab: unpacked aside, looked at, every file written anew, then moved into place."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from filelock import Timeout

from core.config import RunConfig
from core.exporters.adapter import ADAPTER, MADE_WITH, SETTINGS, WEIGHTS
from core.exporters.bundle import layout, papers
from core.exporters.bundle.layout import BundleError
from core.exporters.bundle.tables import check_tables
from core.exporters.bundle.unpack import Contents, unpack
from core.runs.folders import EXAMPLES, is_run_dir, is_run_id
from core.runs.locks import clear_abandoned, run_lock
from core.runs.status import read_status
from core.store.errors import StoreError
from core.store.files import PACKED, SEALED, flush
from core.store.open import Lab
from core.store.pack import write_tables
from core.store.seal import write_sealed

HIDDEN = ".opening-"
OPENED = "opened.json"
"""Beside an opened run's files: where it came from."""
_LONGEST_ID = 110
_TENSOR = re.compile(r"[A-Za-z0-9_.-]{1,500}")
_FLOATS = ("F32", "F16", "BF16", "F64")


@dataclass(frozen=True)
class Origin:
    """Where an opened run came from."""

    run: str
    """Its id in the lab that made the bundle."""
    lab: str
    """The version of that lab."""
    digest: str
    """Of the bundle's contents."""
    opened: float
    """Seconds since the epoch."""


def origin(run_dir: str | Path) -> Origin | None:
    """Where a run came from; None for one that was not opened from a bundle."""
    path = Path(run_dir) / OPENED
    try:
        if path.stat().st_size > layout.MB:
            return None
        data = json.loads(path.read_text(encoding="utf-8"))
        return Origin(str(data["run"]), str(data["lab"]), str(data["digest"]), float(data["opened"]))
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def open_bundle(zip_path: str | Path, runs_root: str | Path) -> Path:
    """Open a bundle as a run of this folder of runs; returns the run's folder.

    It has the id that it had, or, where another run has that, one with a number behind it. Raises BundleError, and
    leaves nothing behind, for a file that is no bundle, damaged or dishonest, or that is open here already.
    """
    file, root = Path(zip_path), Path(os.path.abspath(runs_root))
    if not file.is_file():
        raise BundleError(f"{file}: no such file")
    root.mkdir(parents=True, exist_ok=True)
    clear_abandoned(root, HIDDEN)
    hidden = root / f"{HIDDEN}{hashlib.sha256(os.fsencode(file.resolve())).hexdigest()[:16]}"
    try:
        with run_lock(hidden).acquire(timeout=0):
            try:
                shutil.rmtree(hidden, ignore_errors=True)
                hidden.mkdir()
                return _open(file, root, hidden)
            finally:
                shutil.rmtree(hidden, ignore_errors=True)
    except Timeout:
        raise BundleError(f"{file.name} is being opened by another process; wait for its end") from None
    except BundleError:
        raise
    except (duckdb.Error, pa.ArrowException, StoreError, ValueError, OverflowError, MemoryError) as error:
        words = re.sub(rf"{re.escape(str(hidden))}/(came/[^/]+/|files/)?", "", str(error)).partition("\n")[0][:400]
        raise BundleError(f"{file.name}: {words}") from error


def _open(file: Path, root: Path, hidden: Path) -> Path:
    contents = unpack(file, hidden / "files")
    came, made = hidden / "came" / contents.run, hidden / "made"
    came.parent.mkdir()
    os.rename(hidden / "files", came)
    _refuse_if_here(root, came, contents)
    made.mkdir()
    try:
        run = papers.config(papers.read_config(came / layout.CONFIG), imported=True)
    except ValueError as error:
        raise BundleError(f"{file.name}: {layout.CONFIG}: {error} (it was made with version {contents.lab})") from error
    papers.write_config(made, run)
    papers.write_schema(came, made, run)
    papers.write_status(came, made, sealed=not contents.packed)
    papers.write_words(came, made)
    _write_tables(came, made, contents.packed)
    if any((came / name).is_file() for name in layout.ADAPTER_FILES):
        _copy_adapter(came / ADAPTER, made / ADAPTER, run)
    about = Origin(contents.run, contents.lab, contents.digest, time.time())
    (made / OPENED).write_text(json.dumps(asdict(about), indent=1) + "\n", encoding="utf-8", errors="replace")
    for written in made.rglob("*"):
        flush(written)
    _refuse_if_here(root, came, contents)  # another copy of the file may have been opened meanwhile
    for run_id in _ids(contents.run):
        path = root / run_id
        if os.path.lexists(path) or (EXAMPLES / run_id).exists():
            continue
        try:
            os.rename(made, path)
        except FileExistsError:
            continue
        except OSError:
            if os.path.lexists(path):
                continue
            raise
        flush(root)
        return path
    raise BundleError(f"{file.name}: there is no free name for {contents.run} here; delete a run of that name")


def _refuse_if_here(root: Path, came: Path, contents: Contents) -> None:
    """Raise BundleError where this bundle is open already, or where it was made of a run that is here."""
    for path in root.iterdir():
        known = origin(path) if is_run_id(path.name) else None
        if known and known.digest == contents.digest:
            raise BundleError(f"{path.name} is this very bundle: it is open already")
    status = read_status(came)
    for path in (root / contents.run, EXAMPLES / contents.run):
        there = read_status(path) if is_run_dir(path) else None
        if there and status and there.created and there.created == status.created and origin(path) is None:
            raise BundleError(f"{path.name} is here already: it is the run that this bundle was made of")


def _ids(run: str) -> Iterator[str]:
    yield run
    yield from (f"{run[:_LONGEST_ID]}-{number}" for number in range(2, 1000))


def _write_tables(came: Path, made: Path, packed: bool) -> None:
    """Seal the run here; one whose tokens are not those of all steps stays packed, since that says which they are."""
    with Lab([came]) as lab:
        lab.limit_memory(layout.MEMORY_MB)
        check_tables(lab, came)
        if packed:
            (made / PACKED).mkdir()
            write_tables(lab, made / PACKED, None, layout.LEVEL)
        else:
            write_sealed(made / SEALED, lab, dict.fromkeys(lab.steps(came.name), 0))


def _copy_adapter(source: Path, target: Path, run: RunConfig) -> None:
    """Settings and versions written anew, weights as they are once every tensor is one of an adapter's."""
    if missing := [name for name in (SETTINGS, WEIGHTS) if not (source / name).is_file()]:
        raise BundleError(f"{ADAPTER}/{missing[0]}: is missing")
    settings: dict[str, Any] = papers.adapter_settings(source, run)
    _check_weights(source / WEIGHTS)
    target.mkdir()
    (target / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    (target / MADE_WITH).write_text(json.dumps(papers.made_with(source), indent=2) + "\n", encoding="utf-8")
    os.replace(source / WEIGHTS, target / WEIGHTS)


def _check_weights(file: Path) -> None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(file, framework="numpy") as tensors:
            names = list(tensors.keys())
            kinds = {tensors.get_slice(name).get_dtype() for name in names}
    except (SafetensorError, OSError, ValueError) as error:
        raise BundleError(f"{ADAPTER}/{file.name}: is not a safetensors file") from error
    if not names or not all(_TENSOR.fullmatch(name) and "lora_" in name for name in names) or kinds - {*_FLOATS}:
        raise BundleError(f"{ADAPTER}/{file.name}: holds more than the weights of a LoRA adapter")
