"""The button that gives a run as one file, for a colleague's lab."""

from __future__ import annotations

import streamlit as st

from core.exporters.bundle import bundle_bytes, bundle_name
from core.runs import RunInfo
from core.store.pack import ENDED


def button(info: RunInfo, key: str) -> None:
    """The download of a run that has ended; nothing for any other. The file is made when it is asked for."""
    if info.state not in ENDED or not info.step:
        return
    st.download_button(
        "Send to a colleague", lambda: bundle_bytes(info.path), bundle_name(info.path), "application/zip",
        key=f"{key}:{info.id}", icon=":material/send:", type="tertiary", on_click="ignore",
        help="The run as one file, with its adapter and up to about a million tokens; their Import page opens it",
    )  # fmt: skip
