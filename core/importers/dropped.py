"""Files that somebody dropped on a page, copied into a folder of their own under names that are safe anywhere.

What recognition reads of a name is kept (`step_3/…`, `eval/…`, a number at the end, the ending), everything else of it
becomes `_`: no name leaves its folder, hides, or means anything to a shell. Files of other kinds stay behind.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from core.importers.base import ImportFailed
from core.importers.formats._look import ENDINGS, PICKLED

MB = 2**20
LARGEST_MB, TOGETHER_MB = 200, 1000
"""Of one file, and of all that are dropped together."""
MOST_FILES = 20_000
DEEPEST = 12
"""Folders of a name that are kept, the innermost."""
LONGEST = 80
"""Characters of a piece of a name."""
MARKS = ("STABLE",)
"""Files without an ending that a format looks for."""
PACKED = ".zip"
_ODD = re.compile(r"[^A-Za-z0-9._=-]+")


@dataclass
class Kept:
    """What became of the files that were dropped."""

    path: Path
    """What to import: the copy's folder, or its only file."""
    name: str
    """What the reader would call it: the folder's name, or that of the first file that was taken. Foreign."""
    files: int = 0
    bytes: int = 0
    left_out: int = 0
    """Files of other kinds."""
    pickles: int = 0
    notes: list[str] = field(default_factory=list)


def keep(files: Iterable[tuple[str, int, Callable[[], bytes]]], folder: Path) -> Kept:
    """Copy files, each a name as its browser gave it, its size and its bytes, into a new `folder`.

    Raises ImportFailed where they are too many or too large, or none of them can hold rollouts; nothing is left then.
    """
    files = list(files)
    if len(files) > MOST_FILES:
        raise ImportFailed(f"{len(files):,} files are too many to drop: {_instead(f'up to {MOST_FILES:,}')}")
    for name, size, _ in files:
        if size > LARGEST_MB * MB:
            raise ImportFailed(f"“{name[-80:]}” is larger than {LARGEST_MB} MB: {_instead('smaller files')}")
    if sum(size for _, size, _ in files) > TOGETHER_MB * MB:
        raise ImportFailed(f"Together they are larger than {TOGETHER_MB} MB: {_instead('fewer files')}")
    kept, taken = Kept(folder, ""), []
    try:
        alone = len(files) == 1
        for name, size, content in files:
            target = _place(name, alone, kept)
            if target is None:
                continue
            path = _free(folder, target)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content())
            kept.files, kept.bytes = kept.files + 1, kept.bytes + size
            kept.path = path if alone else folder
            taken.append(name)
        if not kept.files:
            raise ImportFailed(_nothing(kept))
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    kept.name = _called(taken)
    return kept


def safe(name: str) -> PurePosixPath | None:
    """A name as a relative path of harmless pieces; None where nothing of it is left."""
    pieces = []
    for piece in re.split(r"[/\\]", name):
        clean = _ODD.sub("_", piece).lstrip(".-=")
        if clean.strip("_."):
            pieces.append(clean[-LONGEST:].lstrip(".-="))
    return PurePosixPath(*pieces[-DEEPEST:]) if pieces else None


def _place(name: str, alone: bool, kept: Kept) -> PurePosixPath | None:
    """Where a file goes; None, counted, for one that stays behind. A single file may have any ending."""
    target = safe(name)
    if target is None or any(map(_hidden, re.split(r"[/\\]", name))):
        kept.left_out += 1
        return None
    lower = target.name.lower()
    if lower.endswith(PICKLED):
        kept.pickles += 1
        return None
    if alone or lower.endswith(ENDINGS) or target.name in MARKS:
        return target
    kept.left_out += 1
    return None


def _hidden(piece: str) -> bool:
    return piece.startswith(".") and piece.strip(".") != ""


def _free(folder: Path, target: PurePosixPath) -> Path:
    """A path that no other file has: one of the same name goes into a folder beside it, so that its own name stays."""
    return next(path for path in _paths(folder, target) if not path.exists() and not _blocked(path, folder))


def _paths(folder: Path, target: PurePosixPath) -> Iterator[Path]:
    yield folder / target
    for number in range(2, MOST_FILES + 3):
        yield folder / f"again-{number}x" / target


def _blocked(path: Path, folder: Path) -> bool:
    """Whether a file stands where a folder would have to."""
    return any(parent.is_file() for parent in path.parents if parent.is_relative_to(folder))


def _called(names: list[str]) -> str:
    """The folder that all names begin with, else the first file's own name without its ending."""
    parts = [re.split(r"[/\\]", name) for name in names] or [[""]]
    if all(len(pieces) > 1 and pieces[0] == parts[0][0] for pieces in parts):
        return parts[0][0]
    return parts[0][-1].partition(".")[0] or "dropped"


def _instead(what: str) -> str:
    return f"drop {what}, or name their folder under “On this machine”."


def _nothing(kept: Kept) -> str:
    if kept.pickles:
        return (
            "Pickles (.pt, .pkl) are not opened, since reading one runs code that its maker put there: "
            "save the rollouts as JSONL or Parquet."
        )
    return f"None of these files can hold rollouts: they end in {', '.join(ENDINGS)}."
