"""The button that gives a whole run as one file for a colleague."""

from __future__ import annotations

import tempfile
from pathlib import Path

import streamlit as st

from app import data
from app.inert import visible
from core.runs import RunInfo, runs_option
from core.store.files import PACKED, SEALED, live_steps

LARGEST = 500 * 2**20
"""Bytes of a run's folder up to which a browser gets it: the server holds the file in memory."""


def button(info: RunInfo, key: str, label: str = "Send to a colleague") -> None:
    """The download of a run that has ended with steps; nothing for any other. The file is made when it is asked for.

    Of a run that is too large for that, the command that writes the file."""
    if not data.ended(info) or not info.step:
        return
    if folder_size(info.path) > LARGEST:
        command = visible(f"python -m core export run {info.id}{runs_option(data.root())} -o {info.id}.zip")
        with st.popover(label, icon=":material/send:", type="tertiary"):
            st.markdown("This run is too large to go through a browser. This command writes the file:")
            st.code(command, language=None)
        return
    st.download_button(
        label, lambda: bundle(info), f"{info.id}.zip", "application/zip", key=f"{key}:{info.id}",
        icon=":material/send:", type="tertiary", on_click="ignore",
        help="The whole run as one file: rollouts, curves, settings and adapter, nothing of this machine. In another "
        "lab, Import opens it, or python -m core open FILE",
    )  # fmt: skip


def bundle(info: RunInfo) -> bytes:
    """The file's contents. Raises BundleError."""
    from core.exporters.bundle import write_bundle

    with tempfile.TemporaryDirectory(prefix="advantage-lab-") as scratch:
        return write_bundle(info.path, Path(scratch) / "run.zip").read_bytes()


def folder_size(path: Path) -> int:
    """Bytes of what a bundle is made of, about: the sealed file, the pack, or the steps by the last of them."""
    places = [path / SEALED, *(path / PACKED).glob("*.parquet"), *(path / "adapter").glob("*.safetensors")]
    size = sum(file.stat().st_size for file in places if file.is_file())
    if (path / SEALED).is_file() or not (steps := live_steps(path)):
        return size
    return size + len(steps) * sum(file.stat().st_size for file in steps[max(steps)].glob("*.parquet"))
