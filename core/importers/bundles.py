"""A file that holds a whole run of another lab (`core.exporters.bundle`), told from files of rollouts."""

from __future__ import annotations

import zipfile
from pathlib import Path

from core.importers.formats._look import is_pickle


def is_bundle(path: Path) -> bool:
    """Whether a path is a zip file that may hold a run; torch's own archives are zip files too, and none."""
    try:
        return path.is_file() and zipfile.is_zipfile(path) and not is_pickle(path)
    except (OSError, ValueError):
        return False
