"""pass@1 against pass@k: does training move what the model can do at all, or only how surely it does it?"""

from __future__ import annotations

import streamlit as st

from app import urls, widgets
from app.history import history
from app.polarity.place import Place
from app.theme import theme
from app.views import polarity_boundary as view
from core.store.queries import compare
from core.store.queries import polarity as query

HOW_CURVES = """
**pass@1**: the share of held-out answers that are right, one try a prompt. **pass@k**: the share of prompts solved at
least once in k tries, by the unbiased estimate from all rollouts; it marks the boundary of what the model can reach by
sampling. Both at the run's own temperature. If pass@1 rises and pass@k does not, training makes the model surer of what
it could already do; if pass@k falls, the boundary shrinks. The thin bars are the 95 % interval of pass@k over the
held-out prompts (Wilson); the sentence above compares the same prompts at both ends, which is sharper.
"""
HOW_SPREAD = """
Each prompt of the exam by how many of its rollouts were right, at the first and at the last evaluation. Prompts at 0
lie outside the reach of so many tries. Sharpening moves prompts from the middle to both ends. A prompt that the model
solves one time in ten shows 0 of 8 in 43 % of such exams, so a few prompts come and go by luck alone: how many, the
sentence above says, from all ways to deal a prompt's right rollouts out to the two exams.
"""


def show(place: Place) -> None:
    exams = history(place.info, place.lab, compare.evals)
    if exams.empty:
        widgets.empty_state(
            "This run has no held-out evaluation: evaluate.every is 0, or its first one is still to come. pass@1 and "
            "pass@k appear here with it.",
            "live", "See what it is doing", run=place.run,
        )  # fmt: skip
        return
    first, last = int(exams["step"].iloc[0]), int(exams["step"].iloc[-1])
    k = int(exams["k"].iloc[-1])
    before, after = (compare.exam(place.lab, place.run, step) for step in (first, last))
    moved = view.moved(before, after, k, first, last)
    widgets.verdict(view.verdict(exams, moved), view.tone(moved))
    prompts = history(place.info, place.lab, query.exams)
    seen = view.with_interval(exams, prompts)
    widgets.chart(view.curves(seen, theme()), key="polarity:boundary", how=HOW_CURVES, frame=seen)
    if moved is None:
        return
    fig = view.spread(moved, theme())
    widgets.chart(fig, key="polarity:spread", how=HOW_SPREAD, frame=moved.prompts)
    for words, prompts in (
        (f"Solved at step {last}, never at step {first}", moved.gained),
        (f"Solved at step {first}, never at step {last}", moved.lost),
    ):
        if len(prompts):
            with st.expander(f"{words}: {len(prompts)} of {len(moved.prompts)} prompts"):
                st.html(view.prompt_list(prompts, moved, theme()))
    urls.link("compare", "Compare with other runs", icon=":material/stacked_line_chart:", run=place.run)
