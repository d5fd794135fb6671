"""Classes over the run: their shares, and what they weigh beside the step's mean."""

from __future__ import annotations

import numpy as np
import streamlit as st

from app import widgets
from app.favorability.view import View
from app.history import history
from app.theme import theme
from app.views import favorability_time as views
from app.words import number
from core.store.queries import favorability as queries

WEIGHTS_HOW = """
AdamW cancels a factor that all prompts share, so what a weight does is what it does *next to the others*: 1 means
no effect in this step, whatever the weight's own number.
"""


def shares(view: View) -> None:
    """Share of each class at every step."""
    frame = history(view.info, view.lab, queries.shares)
    how = f"Share of the step's groups in each class, a running mean over {view.window} steps; refilled groups count."
    widgets.chart(
        views.shares_over_time(frame, theme(), view.window, view.step), key="favorability-shares", how=how, frame=frame
    )


def weights(view: View) -> None:
    """What the classes weigh; where all weigh the same, what would change that."""
    visits = view.visits
    if np.ptp(visits["weight"].to_numpy(dtype=float)) == 0:
        st.markdown("**Weight next to the step's mean weight**")
        widgets.empty_state(
            f"Every prompt weighs {number(float(visits['weight'].iloc[0]))} in this run. "
            "An ADORA run turns classes into weights.", "launch", "Launch one", preset="adora_amplify",
        )  # fmt: skip
        return
    relative = views.relative_weights(visits)
    widgets.chart(
        views.weights_over_time(relative, theme(), view.step),
        key="favorability-weights",
        how=WEIGHTS_HOW,
        frame=relative,
    )
