"""One group of a run without tokens, as many trainers write it: its prompt and its answers, each with its advantage."""

from __future__ import annotations

from typing import Any

import streamlit as st

from app import downloads, urls, widgets
from app.inert import inert_html
from app.theme import theme
from app.views import answers as view
from app.views.samples import MONO
from app.words import said
from core.runs import RunInfo
from core.store import Lab
from core.store.queries import tokens as query

WHOLE = "Answers are shown whole; what needs tokens (the matrix, push, entropy, other methods) has nothing to show."
WHY = {
    True: f"These rollouts came without tokens. {WHOLE}",
    False: f"This run's tokens were never recorded, or left out when it was shared. {WHOLE}",
}
"""By whether the run was imported."""


def show(lab: Lab, info: RunInfo, step: int, split: str, group: dict[str, Any]) -> None:
    """The group's prompt and answers. `group` is a row of `query.group_list`."""
    number = int(group["group"])
    rollouts = query.group_rollouts(lab, info.id, step, split, number)
    if rollouts.empty:
        widgets.empty_state(f"The answers of step {step} cannot be read at the moment; look again shortly.")
        return
    dropped = split == "train" and not said(group["kept"])
    sentence = view.verdict(rollouts, info.imported) + (" The group was not trained on." if dropped else "")
    widgets.verdict(sentence, "warning" if dropped else "neutral")
    st.caption(WHY[info.imported])
    _prompt(group)
    st.html(view.table(rollouts, theme(), urls.int_param("rollout", -1)))
    downloads.menu(
        f"answers_{info.id}_{split}_step{step}_group{number}", key="tokens:answers", frame=rollouts,
        label="All answers of this group",
    )  # fmt: skip


def _prompt(group: dict[str, Any]) -> None:
    """The prompt and, where it is known, the right answer."""
    for name, text in (("Prompt", group["prompt"]), ("Right answer", group["answer"])):
        if text:
            style = f"{MONO};white-space:pre-wrap;font-size:.88rem;color:{theme().text}"
            words = inert_html(text[: view.MOST])
            st.html(f'<div style="{style}"><span style="color:{theme().muted}">{name}: </span><bdi>{words}</bdi></div>')
