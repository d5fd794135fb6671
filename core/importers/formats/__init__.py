"""The formats of rollout files: each module here whose `FORMAT` says how it is recognised and read.

To add one, write a module with a `FORMAT` (`core.importers.base.Format`): `_look.recognise` finds files by what is in
them, `_rows.read_lines` reads JSONL, one function that turns a row into rollouts is left to write. `tinker.py` is the
shortest to start from.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from core.importers.base import Format, Found, ImportFailed
from core.importers.formats._instead import instead
from core.importers.formats._look import PICKLED, is_pickle, one_look

LAST = ("prime-rl-tokens",)
"""Formats that are taken only where no other is there: they know no rewards."""


@cache
def all_formats() -> dict[str, Format]:
    """The formats by name. Raises ValueError where two modules have one name."""
    found: dict[str, Format] = {}
    for module in sorted(info.name for info in iter_modules(__path__) if not info.name.startswith("_")):
        form = import_module(f"{__name__}.{module}").FORMAT
        if found.setdefault(form.name, form) is not form:
            raise ValueError(f"{module} has the format {form.name!r}, and so has another module")
    return found


def find(path: Path) -> Found:
    """The format of a file or folder, by what is in it; of several in a folder, the one with the most files.

    Raises ImportFailed where it is none of them.
    """
    if not path.exists():
        raise ImportFailed(f"{path} is not there; name a file of rollouts or a folder that has some.")
    if path.is_file() and is_pickle(path):
        raise ImportFailed(_pickle(path))
    with one_look():
        found = [found for form in all_formats().values() if (found := form.sniff(path))]
        there = "" if found else instead(path)
    if found:
        return max(found, key=lambda found: (found.format not in LAST, len(found.files)))
    if path.is_dir() and (pickled := next((file for file in path.rglob("*") if file.suffix in PICKLED), None)):
        raise ImportFailed(_pickle(pickled))
    known = ", ".join(form.label for form in all_formats().values())
    raise ImportFailed(
        f"{path} has no rollouts of a known format: {there}. Known are {known}; "
        "`python -m core import --formats` and the Import page say how each of them looks."
    )


def _pickle(path: Path) -> str:
    return (
        f"{path} is a pickle, and reading a pickle runs code that its maker put there: "
        "it is not opened; save the rollouts as JSONL or Parquet instead."
    )
