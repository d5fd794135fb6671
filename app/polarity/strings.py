"""The token strings that right and wrong answers push up and down over a window of steps."""

from __future__ import annotations

import pandas as pd
import streamlit as st

from app import widgets
from app.polarity.place import EARLIER, Place
from app.theme import theme
from app.views import polarity as numbers
from app.views import polarity_strings as view
from core.store import Lab, fingerprint
from core.store.queries import polarity as query
from core.store.schema import STRINGS_KEPT

HOW_LISTS = """
**Push** of a token is advantage × (1 − p): what reaches the logit of the token that was sampled, so near-certain tokens
count for little. Summed over all tokens with the same text in the window; **mean** is per trained token, **n** how many
were trained. **Δ log p** is how the log-prob really moved, on average. A string leads to the places where it stands.
"""
HOW_BOTH = """
Strings that right answers reinforce **and** wrong answers suppress (or the reverse), those with the most at stake
first. The two pulls cancel in part; **net** is what is left. All bars share one scale.
"""


def show(place: Place) -> None:
    first, last = place.window()
    frame = _strings(place.lab, place.run, fingerprint([place.info.path]), first, last, place.split)
    where = numbers.steps_words(first, last)
    if frame.empty:
        some = place.steps.loc[place.steps["step"].between(first, last), "tokens"].sum() > 0
        nothing = "no token had an advantage" if some else "there are no tokens"
        widgets.empty_state(
            f"Nothing was pushed in {where}: {nothing}."
            if query.has_strings(place.lab, place.run)
            else f"{EARLIER}, which did not add up what each token string got. A new run records it."
        )
        return
    widgets.verdict(view.verdict(frame, where, place.trained))
    link = {"run": place.run, "split": place.split, "steps": [first, last]}
    title = f"**What each pushes most** · {where}"
    place.table(title, view.lists(frame, theme(), link), how=HOW_LISTS, key="polarity:strings", frame=frame)
    both = view.contested(frame)
    if len(both):
        title = f"**Where they pull against each other** · {where}"
        html = view.contested_table(both, theme(), link)
        place.table(title, html, how=HOW_BOTH, key="polarity:contested", frame=both)
    if frame["kept"].max() >= STRINGS_KEPT:
        st.caption(
            f"Each step keeps the {STRINGS_KEPT:,} strings of a polarity with the most push; in steps where a string "
            "was not among them, what it got is missing from its sum.".replace(",", "\u202f")
        )


@st.cache_data(max_entries=64, show_spinner=False)
def _strings(_lab: Lab, run: str, mark: object, first: int, last: int, split: str) -> pd.DataFrame:
    """`query.strings`, kept until `mark` says that the run has grown."""
    return query.strings(_lab, run, first, last, split)
