"""Polarity: what do the right and the wrong answers each teach?"""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from app import data, urls, widgets
from app.history import history
from app.polarity import answers, boundary, distributions, entropy, step, strings
from app.polarity.place import Place
from core.runs import RunInfo
from core.store.queries import polarity as query

SPLITS = {"train": "training", "probe": "probes"}
PARTS: dict[str, tuple[str, Callable[[Place], None]]] = {
    "answers": ("Right and wrong", answers.show),
    "strings": ("Strings", strings.show),
    "entropy": ("What moves entropy", entropy.show),
    "distributions": ("Distributions", distributions.show),
    "step": ("One step", step.show),
    "boundary": ("pass@1 and pass@k", boundary.show),
}
"""Parts by their name in the address: what they are called, and what draws them."""


def page() -> None:
    widgets.page_header("What do the right and the wrong answers each teach?")
    pick, place = st.columns([2, 1], vertical_alignment="bottom")
    with pick:
        info = widgets.run_picker()
    if info is None:
        return
    lab = data.lab(info)
    with place:
        split = widgets.choice("Rollouts", list(SPLITS), param="split", format_func=SPLITS.__getitem__)
    rows = history(info, lab, query.answers_by_step, split)
    if rows.empty:
        _nothing_yet(info, split)
        return
    default = "step" if urls.param("step") else "distributions" if urls.param("field") else "answers"
    part = widgets.choice("Show", list(PARTS), param="part", default=default, format_func=lambda name: PARTS[name][0])
    PARTS[part][1](Place(info, lab, split, rows))


def _nothing_yet(info: RunInfo, split: str) -> None:
    if info.step and split == "probe":
        widgets.empty_state("This run recorded no probes (evaluate.probes), or has not reached its first evaluation.")
    elif data.ended(info):
        how = "failed" if info.state == "failed" else "ended"
        words = f"This run {how} before its first step: there are no answers to compare."
        widgets.empty_state(words, "live", "See its log", run=info.id)
    else:
        words = f"This run is {info.state} and has no step yet. Its answers appear here with its first step."
        widgets.empty_state(words, "live", "See what it is doing", run=info.id)


if __name__ == "__main__":
    page()
