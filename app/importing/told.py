"""What an imported run says of its origin, for lists of runs."""

from __future__ import annotations

import streamlit as st

from app.inert import inert_markdown
from core.exporters.bundle import Origin, origin
from core.exporters.bundle.open import OPENED
from core.importers.manifest import MANIFEST, Manifest, read_manifest
from core.runs import RunInfo


def manifest_of(info: RunInfo) -> Manifest | None:
    """What the run says of its import; read again once it has changed."""
    return _read_manifest(*mark) if (mark := _mark(info, MANIFEST)) else None


def origin_of(info: RunInfo) -> Origin | None:
    """Where a run that was opened from a file came from."""
    return _read_origin(*mark) if (mark := _mark(info, OPENED)) else None


def lacking(info: RunInfo) -> str:
    """What an imported run's files did not have, in words. Markdown, "" for nothing."""
    manifest = manifest_of(info)
    return inert_markdown("; ".join(manifest.lacking())) if manifest else ""


def told(info: RunInfo) -> str:
    """Where an imported run came from, a few words of Markdown; "" for any other."""
    if not info.imported:
        return ""
    said, manifest, sent = [], manifest_of(info), origin_of(info)
    if manifest:
        said.append(f"from {inert_markdown(manifest.label)}")
    if sent:
        there = f", where it is {inert_markdown(sent.run)}" if sent.run != info.id else ""
        said.append(f"sent by another lab{there}")
    return " · ".join(said) or "from elsewhere"


def _mark(info: RunInfo, name: str) -> tuple[str, int, int] | None:
    """The run's folder, and what of a file in it changes when the file does."""
    try:
        stat = (info.path / name).stat()
    except OSError:
        return None
    return str(info.path), stat.st_mtime_ns, stat.st_size


@st.cache_resource(max_entries=128, show_spinner=False)
def _read_manifest(path: str, modified: int, size: int) -> Manifest | None:
    """`modified` and `size` only tell one reading from the next."""
    return read_manifest(path)


@st.cache_resource(max_entries=128, show_spinner=False)
def _read_origin(path: str, modified: int, size: int) -> Origin | None:
    return origin(path)
