"""How far the files of an import were read."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

ENDING = 1024
"""Bytes that tell a file by."""


@dataclass(frozen=True)
class Place:
    """How far a file was read: what a later import of a growing file goes on from."""

    size: int
    """Bytes that were read, up to a whole line."""
    rows: int
    modified_ns: int
    ending: str = ""
    """A digest of the last `ENDING` bytes of them, in a file of lines that is gone on with: it tells a file that grew
    from another of its name. Empty elsewhere."""


Places = dict[str, Place]
"""By the file's path below what was imported, with `/`."""


def ending_of(raw: bytes) -> str:
    """The digest of the last bytes of what was read."""
    return blake2b(raw[-ENDING:], digest_size=8).hexdigest()
