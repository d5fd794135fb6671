"""A run as one file: an archive to send to a colleague, whose lab opens it.

What is in it is a pack (`core.store.pack`) beside the adapter: Parquet, JSON, YAML and safetensors under a fixed list
of names, nothing of the machine. An archive from elsewhere is data, never code: other names, links, bombs and tables of
another shape are refused before anything of it lies among the runs, and what is opened is only ever read.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import stat
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath

from core.config import ConfigError, read_run
from core.exporters.adapter import ADAPTER, EARLIEST, SETTINGS, WEIGHTS, ExportError, has_adapter
from core.exporters.model_card import model_name
from core.importers.manifest import MANIFEST as IMPORTED
from core.importers.manifest import read_manifest
from core.runs.status import read_status
from core.store import Lab, StoreError, pack, schema
from core.store.factors import SCHEMA
from core.store.files import PACKED
from core.store.packed import MANIFEST

TEXTS = ("config.yaml", "status.json", "log.txt", SCHEMA, IMPORTED, f"{PACKED}/{MANIFEST}", f"{ADAPTER}/{SETTINGS}")
LARGE = (*(f"{PACKED}/{table}.parquet" for table in schema.TABLES), f"{ADAPTER}/{WEIGHTS}")
NAMES = frozenset((*TEXTS, *LARGE))
"""All that a bundle may hold, below the one folder that is named like the run."""
NEEDED = ("config.yaml", "status.json", f"{PACKED}/{MANIFEST}")
TEXT_BYTES = 4 * 2**20
BYTES = 4 * 2**30
"""What one text and what a bundle as a whole may hold, unpacked."""
TOKENS = 1_000_000
"""So many tokens are sent along about; of a longer run, those of evenly chosen steps."""
HIDDEN = ".opening-"
_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")
_CHUNK = 2**20


class BundleError(ValueError):
    """A file that is no run to be opened; one sentence that says what of it is wrong."""


def bundle_name(run_dir: Path) -> str:
    """The name of the file that a run becomes."""
    return f"{run_dir.name}.zip"


def write_bundle(run_dir: Path, out: Path) -> None:
    """Write a run that has ended as one file. Raises StoreError where it has not or cannot be read, ExportError where
    `out` is there already.
    """
    if out.exists():
        raise ExportError(f"{out} is already there: name a file that is not")
    with _beside(out.parent, "bundle-") as scratch:
        folder = pack(run_dir, scratch / run_dir.name, _token_steps(run_dir))
        if has_adapter(run_dir):
            (folder / ADAPTER).mkdir()
            shutil.copyfile(run_dir / ADAPTER / WEIGHTS, folder / ADAPTER / WEIGHTS)
            settings = json.loads((run_dir / ADAPTER / SETTINGS).read_text(encoding="utf-8"))
            settings["base_model_name_or_path"] = model_name(read_run(folder / "config.yaml").model)
            (folder / ADAPTER / SETTINGS).write_text(json.dumps(settings, indent=2, sort_keys=True), encoding="utf-8")
        made = scratch / "made.zip"
        with zipfile.ZipFile(made, "w") as archive:
            for name in sorted(NAMES):
                if (folder / name).is_file():
                    entry = zipfile.ZipInfo(f"{run_dir.name}/{name}", EARLIEST)
                    entry.compress_type = zipfile.ZIP_DEFLATED if name in TEXTS else zipfile.ZIP_STORED
                    with (folder / name).open("rb") as source, archive.open(entry, "w", force_zip64=True) as target:
                        shutil.copyfileobj(source, target, _CHUNK)
        os.replace(made, out)


def bundle_bytes(run_dir: Path) -> bytes:
    """The same for a download."""
    with tempfile.TemporaryDirectory(prefix="bundle-") as scratch:
        write_bundle(run_dir, Path(scratch) / "run.zip")
        return (Path(scratch) / "run.zip").read_bytes()


def is_bundle(path: Path) -> bool:
    """Whether a file is an archive that says to hold a run, to be opened rather than imported."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith(f"/{PACKED}/{MANIFEST}") for name in archive.namelist())
    except (OSError, zipfile.BadZipFile, NotImplementedError, ValueError):
        return False


def open_bundle(path: Path, root: Path) -> Path:
    """Unpack a bundle among the runs of `root`; returns the run's folder. Raises BundleError; nothing is left then."""
    try:
        with zipfile.ZipFile(path) as archive:
            run, entries = _entries(archive, path.name)
            if (root / run).exists():
                raise BundleError(f"{path.name}: the run {run} is here already; delete it first to open it again")
            root.mkdir(parents=True, exist_ok=True)
            with _beside(root, HIDDEN) as scratch:
                _unpack(archive, entries, scratch / run, path.name)
                _must_be_a_run(scratch / run, path.name)
                try:
                    os.rename(scratch / run, root / run)
                except OSError as error:
                    raise BundleError(f"{path.name}: the run {run} is here already") from error
    except (zipfile.BadZipFile, zipfile.LargeZipFile, zlib.error, NotImplementedError, EOFError, RuntimeError) as error:
        raise BundleError(f"{path.name}: not an archive that can be read, or damaged ({error})") from error
    except OSError as error:
        raise BundleError(f"{path.name}: cannot be opened ({error.strerror or error})") from error
    return root / run


def _entries(archive: zipfile.ZipFile, file: str) -> tuple[str, dict[str, zipfile.ZipInfo]]:
    """The run's name and the entries by their name below its folder, all of them allowed."""
    run, entries, size = "", {}, 0
    for entry in archive.infolist():
        if entry.is_dir():
            continue
        first, _, name = entry.filename.partition("/")
        if not _RUN.fullmatch(first) or (run and first != run) or name not in NAMES:
            raise BundleError(f"{file}: it holds {entry.filename[:80]!r}, which no run of the lab has")
        if name in entries:
            raise BundleError(f"{file}: it holds {name} twice")
        mode = entry.external_attr >> 16
        if mode and not (stat.S_ISREG(mode) or not stat.S_IFMT(mode)):
            raise BundleError(f"{file}: {name} is a link or a device, not a file")
        size += entry.file_size
        if (name in TEXTS and entry.file_size > TEXT_BYTES) or size > BYTES:
            raise BundleError(f"{file}: unpacked, {name} would be larger than a run may be")
        run, entries[name] = first, entry
    if missing := [name for name in NEEDED if name not in entries]:
        raise BundleError(f"{file}: not a run of the lab: {', '.join(missing)} is missing in it")
    return run, entries


def _unpack(archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo], folder: Path, file: str) -> None:
    """Write the entries: never more bytes than each says of itself."""
    for name, entry in entries.items():
        target = folder / PurePosixPath(name)
        target.parent.mkdir(parents=True, exist_ok=True)
        left = entry.file_size
        with archive.open(entry) as source, target.open("xb") as sink:
            while part := source.read(_CHUNK):
                left -= len(part)
                if left < 0:
                    raise BundleError(f"{file}: {name} is larger than it says")
                sink.write(part)


def _must_be_a_run(folder: Path, file: str) -> None:
    """Refuse what pages could not read: a config, a status or tables of another kind."""
    try:
        read_run(folder / "config.yaml")
        status = read_status(folder)
        if status is None or status.state not in ("finished", "stopped"):
            raise BundleError(f"{file}: its status.json does not say that the run has ended")
        if (folder / IMPORTED).is_file() and read_manifest(folder) is None:
            raise BundleError(f"{file}: its {IMPORTED} is not the manifest of an import")
        with Lab([folder]) as lab:
            for table in schema.TABLES:
                lab.arrays(f"SELECT count(*) AS n FROM {table}")
    except ConfigError as error:
        raise BundleError(f"{file}: its config.yaml is none of a run ({str(error).rpartition(': ')[2]})") from error
    except StoreError as error:
        raise BundleError(f"{file}: its tables cannot be read ({str(error).rpartition('/')[2]})") from error


def _token_steps(run_dir: Path) -> int:
    """Of how many steps the tokens are sent along."""
    with Lab([run_dir]) as lab:
        found = lab.arrays("SELECT count(*) AS n, count(DISTINCT step) AS steps FROM tokens")
    tokens, steps = int(found["n"][0]), int(found["steps"][0])
    return steps if tokens <= TOKENS else max(1, steps * TOKENS // tokens)


@contextmanager
def _beside(folder: Path, prefix: str) -> Iterator[Path]:
    """A hidden scratch folder on the same disk, so that what is whole takes its place in one move."""
    scratch = Path(tempfile.mkdtemp(prefix=prefix if prefix.startswith(".") else f".{prefix}", dir=folder))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
