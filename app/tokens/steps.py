"""The steps of a run whose tokens can be looked at, and what to say where there are none."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app import data, widgets
from core.runs import RunInfo
from core.store import Lab
from core.store.queries import tokens as query

SPLITS = {"train": "training", "probe": "probes"}
"""Splits that have tokens, training first, and what they are called."""


@st.cache_data(max_entries=64, show_spinner=False)
def steps_by_split(_lab: Lab, _index: pd.DataFrame, run: str, mark: object) -> dict[str, list[int]]:
    """Steps with tokens by split, ascending; splits without any are left out. `_index` is `query.group_index`."""
    there = query.steps_with_tokens(_lab, run)
    found = {split: _index.loc[_index["split"] == split, "step"].unique().tolist() for split in SPLITS}
    found = {split: [step for step in steps if step in there] for split, steps in found.items()}
    return {split: steps for split, steps in found.items() if steps}


def all_steps(index: pd.DataFrame) -> dict[str, list[int]]:
    """The same whether or not a step has tokens, for a run that has none. `index` is `query.group_index`."""
    found = {split: sorted(index.loc[index["split"] == split, "step"].unique().tolist()) for split in SPLITS}
    return {split: steps for split, steps in found.items() if steps}


def nothing_yet(info: RunInfo) -> None:
    """The empty state of a run without any tokens."""
    if info.state in ("queued", "loading", "running", "stopping"):
        sentence = f"This run is {info.state} and has no step yet. Its tokens appear here with its first step."
    elif info.step:
        sentence = "This run's steps hold no tokens: they were left out when it was shared, or never recorded."
    else:
        sentence = (
            f"This run {'failed' if info.state == 'failed' else 'ended'} before its first step: there are no tokens."
        )
    widgets.empty_state(
        sentence, "live", "See what it is doing" if not data.ended(info) else "See its log", run=info.id
    )
