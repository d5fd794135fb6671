"""What differs in the settings: a table of the differences, and two configs as one diff."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import downloads, widgets
from app.inert import inert_markdown
from app.theme import theme
from app.views import families_diff
from app.views.families import Family
from app.words import count


def show(shown: Sequence[Family], base: Family) -> None:
    """Every setting in which the families differ, then the diff of any two of their runs."""
    st.subheader("What differs in their settings", anchor=False)
    frame = families_diff.differences(shown)
    if frame.empty:
        st.markdown("Nothing but the seed, as far as their configs can be read.")
    else:
        st.html(families_diff.table(frame, base.label, theme()))
        st.caption(
            f"{families_diff.CHANGED} and the tint mark what is not {inert_markdown(base.label)}'s. “(the recipe's)”: "
            "the config leaves it to the method."
        )
        downloads.menu("compare settings", key="compare-settings", frame=frame, label="These differences")
        beyond = [key for key in frame["setting"] if not key.startswith(families_diff.CAN_BE_METHOD)]
        if beyond:
            st.caption(
                "Not only the method differs, so a difference above can also come from "
                f"{', '.join(f'`{key}`' for key in beyond[:6])}{' and more' if len(beyond) > 6 else ''}."
            )
    _diff(shown, base)


def _diff(shown: Sequence[Family], base: Family) -> None:
    """Two runs' whole configs, line by line."""
    members = {member.id: member for family in shown for member in family.members if member.config}
    if len(members) < 2:
        return
    other = next(family for family in shown if family is not base) if len(shown) > 1 else base
    firsts = [next((one.id for one in family.members if one.id in members), None) for family in (base, other)]
    labels = widgets.run_labels([member.info for member in members.values()])
    with st.expander("Two configs as a diff", icon=":material/difference:"):
        left, right = st.columns(2)
        with left:
            a = widgets.choice(
                "From", list(members), param="diff_from", default=firsts[0], kind="select",
                format_func=labels.__getitem__,
            )  # fmt: skip
        with right:
            b = widgets.choice(
                "To", list(members), param="diff_to", default=firsts[1], kind="select", format_func=labels.__getitem__
            )
        text = families_diff.unified(members[a], members[b])
        if not text:
            st.markdown("The two configs are the same.")
            return
        changed = sum(line.startswith(("+", "-")) for line in text.splitlines()[2:])
        st.caption(f"{count(changed, 'line')} differ: − is the first run's, + the second's.")
        st.code(text, language="diff", wrap_lines=True)
        st.download_button(
            "Diff", text.encode("utf-8", "replace"), "configs.diff", "text/x-diff", key="compare-diff",
            type="tertiary", icon=":material/download:", on_click="ignore",
        )  # fmt: skip
