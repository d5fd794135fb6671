"""A run becomes a bundle: its tables packed with every token that it has, its small files cleaned, its adapter."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import zipfile
from pathlib import Path

import duckdb
import pyarrow as pa

import core
from core.config import RunConfig, read_run
from core.exporters.adapter import ADAPTER, EARLIEST, MADE_WITH, SETTINGS, WEIGHTS, has_adapter
from core.exporters.bundle import layout, papers
from core.exporters.bundle.layout import BundleError
from core.runs.folders import is_run_id, run_info
from core.store.errors import StoreError
from core.store.files import PACKED
from core.store.open import Lab
from core.store.pack import write_tables

_CHUNK = layout.MB


def bundle_name(run_id: str) -> str:
    return f"{run_id}.zip"


def write_bundle(run_dir: str | Path, out: str | Path) -> Path:
    """Write a run that has ended into the new file `out`; returns it. The same run gives the same bytes.

    Raises BundleError for a run that is live, has no steps or cannot be read, or where `out` is there already; then
    nothing is left behind.
    """
    run_dir, out = Path(os.path.abspath(run_dir)), Path(out)
    info = run_info(run_dir)
    if info.live and not info.abandoned:
        raise BundleError(f"{info.id} is {info.state}: send it once it has ended, or stop it first")
    if not is_run_id(info.id):
        raise BundleError(f"{info.id!a}: a run's folder is named with letters, digits, and . _ - to be sent")
    if out.exists():
        raise BundleError(f"{out} is already there: name a file that is not")
    if not out.parent.is_dir():
        raise BundleError(f"{out.parent} is no folder: make it first")
    with tempfile.TemporaryDirectory(prefix=f".{out.name[:40]}.", dir=out.parent) as scratch:
        folder, aside = Path(scratch, info.id), Path(scratch, "bundle")
        packed = _collect(run_dir, folder)
        _zip(folder, aside, packed)
        os.replace(aside, out)
    return out


def _collect(run_dir: Path, folder: Path) -> bool:
    """Write what the bundle holds into a new folder; returns whether the run is packed."""
    (folder / PACKED).mkdir(parents=True)
    try:
        run = papers.config(read_run(run_dir / layout.CONFIG).model_dump())
        papers.write_config(folder, run)
        papers.write_schema(run_dir, folder, run)
        papers.write_status(run_dir, folder)
        papers.write_words(run_dir, folder)
        with Lab([run_dir]) as lab:
            lab.limit_memory(layout.MEMORY_MB)
            packed = lab.source(run_dir.name).packed is not None
            write_tables(lab, folder / PACKED, None, layout.LEVEL)
    except (duckdb.Error, pa.ArrowException) as error:
        raise BundleError(f"{run_dir.name}: cannot be read: {str(error).partition(chr(10))[0]}") from error
    except (ValueError, StoreError) as error:  # a config or a store that is damaged, in its own words
        raise BundleError(f"the run {run_dir.name}: {error}") from error
    if has_adapter(run_dir):
        _copy_adapter(run_dir / ADAPTER, folder / ADAPTER, run)
    return packed


def _copy_adapter(source: Path, target: Path, run: RunConfig) -> None:
    target.mkdir()
    settings = papers.adapter_settings(source, run)
    (target / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    (target / MADE_WITH).write_text(json.dumps(papers.made_with(source), indent=2) + "\n", encoding="utf-8")
    shutil.copyfile(source / WEIGHTS, target / WEIGHTS)


def _zip(folder: Path, out: Path, packed: bool) -> None:
    """Put the folder into one archive, uncompressed: what is large in it is compressed already."""
    names = [name for name in layout.LIMITS if (folder / name).is_file()]
    files = {}
    for name in names:
        size = (folder / name).stat().st_size
        if size > layout.LIMITS[name]:
            most = layout.size_in_words(layout.LIMITS[name])
            raise BundleError(f"{folder.name}: {name} is larger than {most}, the most that a bundle may have of it")
        files[name] = [size, _hash(folder / name)]
    if sum(size for size, _ in files.values()) > layout.LARGEST:
        raise BundleError(f"{folder.name}: is larger than {layout.size_in_words(layout.LARGEST)}, the most of a bundle")
    about = {"format": layout.FORMAT, "lab": core.__version__, "run": folder.name, "packed": packed, "files": files}
    (folder / layout.CONTENTS).write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        for name in (layout.CONTENTS, *names):
            entry = zipfile.ZipInfo(f"{folder.name}/{name}", EARLIEST)
            entry.external_attr = 0o644 << 16
            entry.file_size = (folder / name).stat().st_size
            with (folder / name).open("rb") as source, archive.open(entry, "w") as target:
                shutil.copyfileobj(source, target, _CHUNK)


def _hash(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
