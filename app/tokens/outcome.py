"""What did the step do? Every token that it pushed: which way it moved, and which ones moved against their push."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app import downloads, urls, widgets
from app.theme import theme
from app.views import tokens_outcome as view
from app.words import count
from core.runs import RunInfo
from core.store import Lab, fingerprint
from core.store.queries import tokens as query

HOW = """
Only tokens that are in the loss with an advantage other than 0 have a push. The update moved such a token **as pushed**
where its log-probability rose with a positive advantage or fell with a negative one.

- One bar for each class of tokens, by the probability *p* that the token had when it was sampled; *n* counts them.
- Hatched is what moved **the other way**. Grey did not move by a millionth of a nat.
- A change is that of the whole step: all its tokens pushed the same weights at once.
"""


def outcome(lab: Lab, info: RunInfo, step: int, groups: pd.DataFrame) -> None:
    """The section about one training step; `groups` are its groups, as `query.group_list` has them."""
    st.subheader(f"What did step {step} do?", anchor=False)
    moves, changes, contrary = _asked(lab, info.id, step, fingerprint([info.path]))
    if not moves["pushed"].sum():
        widgets.empty_state(f"Step {step} pushed nothing: none of its tokens has an advantage in the loss.")
        return
    if not moves["known"].sum():
        widgets.empty_state(
            "Which way the tokens moved was not recorded here. With **record.after_update** on, a run keeps their "
            "log-probabilities after each update, and this place compares them with the push."
        )
        return
    st.markdown(view.sentence(moves, step))
    st.caption(view.meaning(changes))
    widgets.chart(view.shares(moves, theme(), step), key="tokens-moves", how=HOW, frame=moves)
    if contrary.empty:
        st.markdown("No token moved against its push.")
        return
    shown = f"{len(contrary)} of {count(int(moves['against'].sum()), 'token')}"
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"**Moved furthest against their push** ({shown}). Select one to see it above.", width="stretch")
        downloads.menu("against their push", key="tokens-contrary", frame=contrary)
    prompts = dict(zip(groups["group"].astype(int), groups["prompt"], strict=True))
    key = f"tokens:contrary:{info.id}:{step}"
    st.dataframe(
        view.contrary_table(contrary, prompts), key=key, hide_index=True, width="stretch", height=250,
        column_config={name: st.column_config.NumberColumn(format="%.3g") for name in view.NUMBERS},
        selection_mode="single-row", on_select=lambda: _choose(key, contrary),
    )  # fmt: skip


@st.cache_data(max_entries=32, show_spinner=False)
def _asked(_lab: Lab, run: str, step: int, mark: object) -> list[pd.DataFrame]:
    return [ask(_lab, run, step) for ask in (query.step_moves, query.step_changes, query.contrary_tokens)]


def _choose(key: str, contrary: pd.DataFrame) -> None:
    """The selected row's token goes into the address, so that the view above shows it."""
    rows = st.session_state[key]["selection"]["rows"]
    if rows:
        token = contrary.iloc[rows[0]]
        place = {name: int(token[name]) for name in ("group", "rollout", "position")}
        urls.set_params(**place, prompt=None)
