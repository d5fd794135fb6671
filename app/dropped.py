"""Files that were dropped on a page, in a scratch folder under names that cannot lead anywhere else."""

from __future__ import annotations

import re
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

PREFIX = "advantage-lab-dropped-"
OLD_S = 24 * 3600.0
"""What a closed browser left behind goes after a day."""
DEEPEST, LONGEST = 8, 100
_ODD = re.compile(r"[^\w.+=@ -]", re.ASCII)


class Dropped(Protocol):
    """An uploaded file: its name, with the folders it lay in where a folder was dropped, and its bytes."""

    name: str

    def getbuffer(self) -> memoryview: ...


def keep(files: Sequence[Dropped]) -> tuple[Path, Path]:
    """Write the files; returns the scratch folder and what in it is to be imported: the file, or the folder of many.

    Formats tell steps by folders' names, so those are kept, cleaned. Raises ValueError where two files get one name.
    """
    clear()
    scratch = Path(tempfile.mkdtemp(prefix=PREFIX))
    try:
        places = [scratch.joinpath(*clean(file.name)) for file in files]
        for file, place in zip(files, places, strict=True):
            if place.exists():
                raise ValueError(f"{file.name} is there twice: drop each file once")
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("xb") as sink:
                _write(sink, file)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    only = next(scratch.iterdir()) if len(list(scratch.iterdir())) == 1 else scratch
    return scratch, places[0] if len(places) == 1 else only


def clean(name: str) -> list[str]:
    """The last few parts of a name, each of letters, digits and a few signs; none of them leads up or is hidden."""
    parts = [_ODD.sub("_", part)[-LONGEST:].strip(" ") for part in re.split(r"[/\\]", name)]
    parts = [f"_{part}" if part.startswith((".", "-")) else part for part in parts if part.strip(". ")]
    return parts[-DEEPEST:] or ["file"]


def clear() -> None:
    """Remove scratch folders of a day ago."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            if time.time() - folder.stat().st_mtime > OLD_S:
                shutil.rmtree(folder, ignore_errors=True)
        except OSError:
            continue


def _write(sink: BinaryIO, file: Dropped) -> None:
    sink.write(file.getbuffer())
