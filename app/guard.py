"""The edge of a page: an unexpected error becomes one calm sentence, its traceback goes to the server's log."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable

import streamlit as st

from app.inert import inert_markdown
from core.config import ConfigError
from core.runs import RunError
from core.store import StoreError

logger = logging.getLogger("advantage_lab")


def guarded(draw: Callable[[], None]) -> None:
    """Draw a page or a fragment. Errors meant for people are shown as they are; any other one is said in one sentence,
    with an id to find it under in the server's log."""
    try:
        draw()
    except (ConfigError, RunError, StoreError) as error:
        st.error(inert_markdown(error), icon=":material/error:")
    except Exception:
        mark = secrets.token_hex(3)
        logger.exception("page error %s", mark)
        st.error(
            "Something went wrong while drawing this part of the page. The other pages still work; the details are in "
            f"the server's log under **{mark}** (the terminal where the lab was started).",
            icon=":material/error:",
        )
