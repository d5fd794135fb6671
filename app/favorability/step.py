"""Which prompts did ADORA hold back at this step? The sentence, the step's prompts, and the evidence of one of them."""

from __future__ import annotations

import streamlit as st

from app import downloads, urls, widgets
from app.favorability.view import View, sure_of
from app.inert import visible
from app.theme import theme
from app.views import favorability_step as views
from app.words import count

HOW = """
**Held back** is a prompt whose weight is below 1, or below that of others in its step. *× mean* is the weight over the
mean weight of the step's trained prompts: AdamW cancels a factor that all share, so this is what a weight does.

- The criterion compares the **longest right** answer with the **mean of the wrong** ones, without those cut off:
  longer is a length advantage.
- **P(favorable)** is what a fresh group of this prompt would be called, by simulation; near one half the label is luck.
- **Share of mass**: how much of the step's update the prompt got, and would have got before weighting.
"""


def verdict(view: View) -> None:
    """The page's first answer."""
    widgets.verdict(views.held_sentence(view.now, view.rule, view.info.label))
    st.caption(views.over_the_run(view.visits))


def show(view: View) -> None:
    """The table of the step's prompts, and the chosen one's evidence with the ways to its rollouts."""
    now, place = view.now, {"run": view.info.id, "step": view.step}
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        order = "those held back first" if now["held"].any() else "as ADORA's criteria class them"
        st.markdown(f"**Prompts of step {view.step}**, {order}", width="stretch")
        with st.container(horizontal=True, wrap=False, gap="small", width="content"):
            widgets.how_to_read(HOW)
            columns = [name for name in now if name != "answer"]
            downloads.menu("favorability prompts", key="favorability-step", frame=now[columns])
    sure = sure_of(view, tuple(now.index.tolist()))
    st.html(
        views.step_table(
            now, view.rule, theme(), view.group, lambda group: urls.href("tokens", **place, group=group),
            sure.probability[:, 0],
        )
    )  # fmt: skip
    if len(now) > views.SHOWN:
        st.caption(f"{views.SHOWN} of {count(len(now), 'prompt')}; the others can be chosen below.")
    _chosen(view)


def _chosen(view: View) -> None:
    """The evidence of one prompt of the step: the grid's twin for the keyboard."""
    now = view.now
    prompts = {str(row.group): visible(row.prompt)[:80] for row in now.itertuples()}
    urls.set_params(group=view.group)
    with st.container(border=True):
        picked = widgets.choice(
            "Prompt of this step", list(prompts), param="group", kind="select", format_func=prompts.__getitem__
        )
        row = now[now["group"] == int(picked)].iloc[0]
        st.markdown(" · ".join(f"{name} **{value}**" for name, value in views.cell_words(row)))
        place = {"run": view.info.id, "step": view.step, "group": int(picked)}
        with st.container(horizontal=True, gap="medium"):
            urls.link("tokens", "Read its rollouts, token by token", icon=":material/grid_on:", **place)
            widgets.what_if(split="train", **place)
