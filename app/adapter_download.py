"""The button that gives a run's trained adapter as one file, with its model card."""

from __future__ import annotations

import streamlit as st

from app import data
from core.exporters.adapter import adapter_zip, archive_name, has_adapter
from core.runs import RunInfo


def button(info: RunInfo, key: str) -> None:
    """The download of a run that has ended with an adapter; nothing for any other. The file is made when it is asked
    for."""
    if not data.ended(info) or not has_adapter(info.path):
        return
    st.download_button(
        "Download adapter", lambda: adapter_zip(info.path), f"{archive_name(info.path)}.zip", "application/zip",
        key=f"{key}:{info.id}", icon=":material/download:", type="tertiary", on_click="ignore",
        help="The LoRA weights as PEFT and vLLM read them, with a model card that says how they were trained",
    )  # fmt: skip
