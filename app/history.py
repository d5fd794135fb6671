"""Whole-run queries for pages, kept up to date while a run grows instead of being asked anew."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pandas as pd
import streamlit as st

from core.runs import RunInfo
from core.store import Lab, fingerprint
from core.store.queries.by_step import ByStep
from core.store.queries.tokens import steps_with_tokens


def history(info: RunInfo, lab: Lab, query: Callable[..., pd.DataFrame], *args: Any) -> pd.DataFrame:
    """The rows of `query(lab, run, *args)`, whose rows belong to steps. Read-only: copy before changing it."""
    return _follower(str(info.path), f"{query.__module__}.{query.__qualname__}", args, query).read(lab, info.id)


def token_steps(info: RunInfo, lab: Lab) -> set[int]:
    """The steps whose tokens are in the store, looked for once as long as the run stays as it is."""
    return _token_steps(lab, info.id, fingerprint([info.path]))


@st.cache_data(max_entries=32, show_spinner=False)
def _token_steps(_lab: Lab, run: str, mark: object) -> set[int]:
    return steps_with_tokens(_lab, run)


@st.cache_resource(max_entries=128, show_spinner=False)
def _follower(path: str, name: str, args: tuple[Any, ...], _query: Callable[..., pd.DataFrame]) -> ByStep:
    return ByStep(lambda lab, run: _query(lab, run, *args))
