"""The What-if page over a whole run: computed step by step under a bar, kept for the session's next look."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import streamlit as st

from app import data, widgets
from app.inert import inert_markdown
from app.slots import Slot
from app.theme import theme
from app.views import whatif_figures as figures
from app.views import whatif_words as words
from app.whatif_links import is_it_real
from app.words import count
from core.counterfactual import Spec, series
from core.runs import RunInfo
from core.store import StoreError, fingerprint

MOST = 60
"""Steps of a run that are computed at most, evenly spaced."""


def whole_run(info: RunInfo, own: Spec | None, good: Sequence[Slot], split: str, pair: tuple[int, int] | None) -> None:
    """Draw the curves of the slots' methods over the run's steps; `own` is the method that trained it."""
    key = (str(info.path), split, fingerprint([info.path]), tuple(slot.spec.text for slot in good if slot.spec))
    try:
        rows = _rows(info, good, split, key)
    except StoreError as error:
        widgets.empty_state(inert_markdown(error))
        return
    labels = [f"{slot.letter} · {slot.method.label}" for slot in good if slot.method]
    skipped = [row["skipped"] for row in rows if row["skipped"]]
    if len(skipped) == len(rows):
        widgets.empty_state(f"No step can be computed under all of these methods: {inert_markdown(skipped[0])}")
        return
    if pair:
        widgets.verdict(
            words.run_verdict(rows, [(slot.letter, slot.label, slot.method) for slot in good if slot.method], pair)
        )
    st.caption(words.not_answered(own))
    is_it_real(info, good)
    frame, names = figures.frame(rows, labels), [slot.spec.name for slot in good if slot.spec]
    columns = st.columns(2, gap="medium")
    drawn = 0
    for which in figures.CURVES:
        fig = figures.curve(rows, which, names, labels, theme())
        if fig is not None:
            with columns[drawn % 2]:
                widgets.chart(fig, key=f"whatif:run:{which.key}", how=which.how, frame=frame)
            drawn += 1
    _notes(rows, skipped)


def _notes(rows: list[dict[str, Any]], skipped: list[str]) -> None:
    said = [f"Computed at {count(len(rows) - len(skipped), 'step')}, evenly spaced over those that kept their tokens."]
    if rows[0]["lacking"]:
        said.append(f"{count(rows[0]['lacking'], 'step')} of the run kept none.")
    if skipped:
        said.append(f"{count(len(skipped), 'step')} could not be computed: {inert_markdown(skipped[0])}")
    st.caption(" ".join(said))


def _rows(info: RunInfo, good: Sequence[Slot], split: str, key: Hashable) -> list[dict[str, Any]]:
    """The rows, from an earlier look or step by step under a bar that says how far it is."""
    kept = _kept()
    if key not in kept:
        methods = [slot.method for slot in good if slot.method]
        bar = st.progress(0.0, text=f"Asking {count(len(methods), 'method')} about the run's steps …")
        rows = []
        try:
            for row in series(data.lab(info), info.id, methods, split, most=MOST):
                rows.append(row)
                bar.progress(
                    row["done"] / row["of"], text=f"Step {row['step']}: {row['done']} of {row['of']} steps asked …"
                )
        finally:
            bar.empty()
        while len(kept) >= KEPT:
            kept.pop(next(iter(kept)))
        kept[key] = rows
    return kept[key]


KEPT = 16
"""Whole runs whose numbers are kept."""


@st.cache_resource(show_spinner=False)
def _kept() -> dict[Hashable, list[dict[str, Any]]]:
    return {}
