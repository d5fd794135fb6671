"""What a bundle may hold: the fixed list of names, and how large each file may be."""

from __future__ import annotations

from core.exporters.adapter import ADAPTER, MADE_WITH, SETTINGS, WEIGHTS
from core.importers.manifest import MANIFEST as IMPORT
from core.store.factors import SCHEMA
from core.store.files import PACKED
from core.store.packed import MANIFEST as PACK
from core.store.schema import TABLES

FORMAT = 1
"""The version of a bundle's layout."""
CONTENTS = "bundle.json"
CONFIG, STATUS, LOG = "config.yaml", "status.json", "log.txt"
TABLE_LIST = f"{PACKED}/{PACK}"
ADAPTER_FILES = tuple(f"{ADAPTER}/{name}" for name in (SETTINGS, WEIGHTS, MADE_WITH))

MB, GB = 2**20, 2**30
LEVEL = 6
"""Of zstd: a few per cent larger than a pack's, and ten times as fast."""
MEMORY_MB = 1024
"""What DuckDB may take on either way."""
LARGEST = 16 * GB
"""Bytes of all files together."""
LIMITS = {
    CONTENTS: MB, CONFIG: MB // 4, SCHEMA: MB, STATUS: MB // 4, LOG: 4 * MB, IMPORT: 4 * MB, TABLE_LIST: 32 * MB,
    **{f"{PACKED}/{table}.parquet": 8 * GB for table in TABLES},
    **dict(zip(ADAPTER_FILES, (MB, 4 * GB, MB // 4), strict=True)),
}  # fmt: skip
"""Every name that a bundle may have below its one folder, with the most bytes of it."""
FOLDERS = ("", PACKED, ADAPTER)
"""Folders that an archive may list beside their files, as other programs do."""
NEEDED = (CONTENTS, CONFIG, SCHEMA, STATUS, TABLE_LIST)
MOST_RATIO, FREE_RATIO = 100, MB
"""A file may unpack to so many times its size in the archive, a small one (bytes) to more."""
MOST_ENTRIES = len(LIMITS) + len(FOLDERS)


class BundleError(ValueError):
    """A file that is no bundle, or not a whole or an honest one; one sentence that says what is wrong with it."""


def size_in_words(size: int) -> str:
    return f"{size / GB:.0f} GB" if size >= GB else f"{size / MB:g} MB"
