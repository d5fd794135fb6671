"""Favorability: which prompts count right now, and how sure is that?"""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app import urls, widgets
from app.favorability import criteria, grid, mass, over_time, step, sure, view
from app.guard import guarded
from app.inert import inert_markdown

STYLE = """<style>
@media (max-width: 1000px) {
  .st-key-favorability [data-testid="stHorizontalBlock"]:has(> [data-testid="stColumn"]) { flex-wrap: wrap; }
  .st-key-favorability [data-testid="stColumn"] { flex: 1 1 100%; }
}
</style>"""
"""On a narrow page the right column lies under the left one."""


def page() -> None:
    widgets.page_header("Which prompts count right now, and how sure is that?")
    info = widgets.run_picker(suits=("adora_attenuate",))
    if info is None:
        return
    seen = view.read(info)
    if seen.visits.empty:
        widgets.empty_state(
            f"**{inert_markdown(info.name)}** has no step yet: prompts appear here with their first rollouts.",
            "live", "Watch it on the Live page", run=info.id,
        )  # fmt: skip
        return
    if view.rollouts(seen)["length"].isna().any():
        widgets.empty_state(
            f"**{inert_markdown(info.name)}** was imported without response lengths. ADORA's classes compare how long "
            "right and wrong answers are, so no prompt has one here.", "polarity", "What right and wrong teach",
            run=info.id,
        )  # fmt: skip
        return
    if seen.visits["correct"].isna().all():
        widgets.empty_state(
            f"**{inert_markdown(info.name)}** was imported without rewards or verdicts. ADORA's classes compare right "
            "answers with wrong ones, so none can be told here; the tokens can be looked at.",
            "tokens", "Open Tokens", run=info.id,
        )  # fmt: skip
        return
    st.html(STYLE)
    now = int(
        widgets.step_picker(
            sorted(seen.visits["step"].unique().tolist()), total=info.total, default=_telling_step(seen.visits)
        )
    )
    seen = seen.at(now, _chosen_group(seen.visits[seen.visits["step"] == now]))
    urls.set_params(step=now)
    with st.container(key="favorability"):
        _show(seen)


def _telling_step(visits: pd.DataFrame) -> int | None:
    """The newest step at which the criteria are defined."""
    defined = visits.loc[visits["length_advantage"].notna(), "step"]
    return int(defined.max()) if len(defined) else None


def _chosen_group(now: pd.DataFrame) -> int:
    """The group in the URL, else the first that was held back and had something to teach."""
    groups = now["group"].astype(int).tolist()
    telling = now.loc[now["held"] & ~now["equal"], "group"].astype(int).tolist()
    first = (telling or groups)[0]
    wanted = urls.int_param("group", first)
    return wanted if wanted in groups else first


def _show(seen: view.View) -> None:
    step.verdict(seen)
    step.show(seen)
    left, right = st.columns(2, gap="medium")
    with left:
        st.subheader("When did each prompt count?", anchor=False)
        rows = grid.show(seen)
    with right:
        st.subheader("What if the thresholds lay elsewhere?", anchor=False)
        st.fragment(lambda: guarded(lambda: criteria.show(seen)))()
    st.subheader("How sure is a label?", anchor=False)
    sure.show(seen, rows)
    st.subheader("Which prompts got the mass?", anchor=False)
    st.fragment(lambda: guarded(lambda: mass.show(seen)))()
    st.subheader("How did it change over the run?", anchor=False)
    left, middle, right = st.columns(3, gap="medium")
    with left:
        over_time.shares(seen)
    with middle:
        grid.transitions(seen)
    with right:
        over_time.weights(seen)
    sure.trust(seen)


if __name__ == "__main__":
    page()
