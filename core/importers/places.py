"""How far the files of an import were read."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """How far a file was read: what a later import of a growing file goes on from."""

    size: int
    """Bytes that were read, up to a whole line."""
    rows: int
    modified_ns: int


Places = dict[str, Place]
"""By the file's path below what was imported, with `/`."""
