"""What an imported run says of its origin, for lists of runs."""

from __future__ import annotations

import streamlit as st

from app.inert import inert_markdown
from core.importers.manifest import Manifest, read_manifest
from core.runs import RunInfo


def manifest_of(info: RunInfo) -> Manifest | None:
    """What the run says of its import; read again once it has changed."""
    try:
        stat = (info.path / "import.json").stat()
    except OSError:
        return None
    return _read(str(info.path), stat.st_mtime_ns, stat.st_size)


@st.cache_resource(max_entries=128, show_spinner=False)
def _read(path: str, _modified: int, _size: int) -> Manifest | None:
    return read_manifest(path)


def told(info: RunInfo) -> str:
    """Where an imported run came from and what it lacks, one line of Markdown; "" for any other."""
    manifest = manifest_of(info) if info.imported else None
    if manifest is None:
        return "from elsewhere" if info.imported else ""
    lacks = manifest.lacking()
    words = inert_markdown("; ".join(lacks))
    return f"from {inert_markdown(manifest.label)}" + (f" · not in its files: {words}" if lacks else "")
