"""Links to a step whose tokens a shared recording did not keep: the same prompt, where its tokens were kept."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import urls
from app.history import history
from core.runs import RunInfo
from core.store import Lab
from core.store.queries import tokens as query


def same_prompt(info: RunInfo, lab: Lab, split: str, steps: Sequence[int]) -> None:
    """Call it before the step is picked, with the `steps` that have tokens.

    Of an address whose step has none, the step and group become those of the nearest visit of its prompt that has, else
    the step alone becomes the nearest; a sentence says so.
    """
    step, group = urls.int_param("step"), urls.int_param("group")
    if not info.packed or step is None or step in steps:
        return
    index = history(info, lab, query.group_index)
    index = index[index["split"] == split]
    there = index[index["step"] == step]
    if there.empty:
        return
    wanted = there.loc[there["group"] == group, "prompt_id"]
    visits = index[index["prompt_id"].isin(wanted) & index["step"].isin(steps)]
    place = {"step": min(steps, key=lambda kept: (abs(kept - step), kept)), "group": None}
    what = "this is the nearest that is kept,"
    if len(visits):
        near = visits.loc[(visits["step"] - step).abs().idxmin()]
        place = {"step": int(near["step"]), "group": int(near["group"])}
        what = "this is the same prompt at"
    st.info(
        f"This recording keeps the tokens of some steps, and step {step} is none of them: {what} step {place['step']}."
    )
    urls.set_params(**place, prompt=None, rollout=None, position=None)
