"""The What-if page's tables under the pictures, each with its file."""

from __future__ import annotations

import re
from collections.abc import Callable

import pandas as pd
import streamlit as st

from app import downloads, urls
from app.theme import theme
from app.views import whatif as view
from app.views import whatif_tables as tables
from app.views.whatif_source import Shown, Source, View
from app.words import count
from core.counterfactual import Pair, Summary

HOW_MASS = """
The sum of loss weight × |advantage| over the tokens in view, as each method's own loss weighs them; the mark is the
mass before the method's factors. By quarters of the tokens' probability in the policy that sampled them.
"""
HOW_PAIRS = """
Over tokens that either method keeps. **Rank correlation** compares the order of the tokens' advantages: near 1, only
their sizes differ. **Mass elsewhere** ignores the sizes of the two updates and says how much of one lies on other
tokens than the other's. The last column is the ratio of the masses: over a whole step, how much larger it is.
"""


def numbers(
    source: Source, seen: View, shown: list[Shown], pair: view.Chosen | None, compared: Pair | None, group: int | None
) -> None:
    """The tokens in view as a table and as a file."""
    where = "step" if group is None else "prompt"
    name = re.sub(r"\W+", "_", f"whatif {source.title} {where} {'' if group is None else group}").strip("_")
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        wanted = st.toggle("Numbers as a table", **urls.bound("table", urls.flag_param("table")))
        downloads.menu(
            name, key=f"whatif:{name}", label=f"All tokens of this {where}",
            frame=lambda: tables.token_frame(source, seen, shown, pair, compared, group),
        )  # fmt: skip
    if wanted:
        frame = tables.token_frame(source, seen, shown, pair, compared, group)
        st.dataframe(frame, hide_index=True, width="stretch", height=min(460, 40 + 35 * len(frame)), key="whatif:table")


def alike(shown: list[Shown], summaries: list[Summary], pairs: dict[view.Chosen, Pair], *, whole: bool) -> None:
    """Every pair of methods, and advantage mass by polarity and by probability. `whole`: of the whole step."""
    if pairs:
        frame = tables.pair_frame(shown, pairs, summaries)
        _heading("How alike the methods are here", HOW_PAIRS, lambda: frame, "whatif_pairs")
        st.html(tables.pair_table(frame, theme(), whole=whole))
    _heading("Where the advantage mass lies", HOW_MASS, lambda: tables.mass_frame(shown, summaries), "whatif_mass")
    st.html(tables.mass_table(shown, summaries, theme()))
    quarters = tables.quartile_table(shown, summaries, theme())
    if quarters:
        with st.expander("By the tokens' probability"):
            st.html(quarters)
    else:
        st.caption("The sampler's log-probs were not recorded, so tokens cannot be sorted by probability.")


def prompts(source: Source, shown: list[Shown], summaries: list[Summary]) -> None:
    """What each method makes of every prompt of the step."""
    read, plain = tables.prompt_frame(source, shown, summaries)
    how = "Each prompt's class, weight and share of the step's whole advantage mass under every method."
    _heading(f"What becomes of the {count(len(read), 'prompt')}", how, lambda: plain, "whatif_prompts")
    st.caption(
        "Class × weight · share of the mass. **[In brackets]**: a class that is only observed, the method weighs all "
        "prompts alike.".replace("[", r"\[").replace("]", r"\]")
    )
    st.html(tables.prompt_table(read, theme()))


def _heading(title: str, how: str, frame: Callable[[], pd.DataFrame], name: str) -> None:
    with st.container(horizontal=True, wrap=False, vertical_alignment="center", gap="small"):
        st.markdown(f"**{title}**", width="stretch")
        with st.container(horizontal=True, wrap=False, gap="small", width="content"):
            with st.popover("", type="tertiary", icon=":material/help:", help="How to read this"):
                st.markdown(how)
            downloads.menu(name, key=f"whatif:{name}", frame=frame)
