"""The same probe prompt answered by several runs at the same step, side by side as coloured text."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from app import urls, widgets
from app.history import history
from app.inert import inert_markdown, visible
from app.theme import theme
from app.views import probes
from app.views.families import Family, Member
from core.store import Lab
from core.store.queries import compare as queries

MOST = 4
"""Runs next to each other at most."""
FIRST = 2
"""Runs that a reader without a choice sees."""
NARROWEST = 340
"""Pixels of a panel; where they do not fit beside each other, the next one goes below."""


def show(lab: Lab, shown: Sequence[Family], base: Family | None) -> None:
    """Pick the runs, the prompt, the step and the colour; then a panel a run."""
    st.subheader("The same prompt, side by side", anchor=False)
    members = {member.id: (family, member) for family in shown for member in family.members}
    asked = {run: history(member.info, lab, queries.probes) for run, (_, member) in members.items()}
    asked = {run: frame for run, frame in asked.items() if len(frame)}
    if not asked:
        widgets.empty_state(
            "These runs recorded no probe prompts yet: they come with the evaluations "
            "(`evaluate.every`, `evaluate.probes`)."
        )
        return
    chosen = _runs({run: members[run] for run in asked}, base)
    if not chosen:
        widgets.empty_state("Choose two runs above to see their answers to one prompt beside each other.")
        return
    found = pd.concat([asked[run] for run in chosen], ignore_index=True)
    by_prompt = found.groupby("prompt_id", sort=False).agg(prompt=("prompt", "first"), runs=("run", "nunique"))
    by_prompt = by_prompt.sort_values("runs", ascending=False, kind="stable")
    labels = {
        key: visible(row.prompt)[:80] + ("" if row.runs == len(chosen) else f" · {row.runs} of {len(chosen)} runs")
        for key, row in by_prompt.iterrows()
    }
    left, right = st.columns([3, 2], vertical_alignment="bottom")
    with left:
        prompt = widgets.choice(
            "Probe prompt", list(labels), param="probe", kind="select", format_func=labels.__getitem__
        )
    with right:
        colour = widgets.choice(
            "Colour of tokens", list(probes.COLOURS), param="colour",
            format_func=lambda key: probes.COLOURS[key].label,
        )  # fmt: skip
    here = found[found["prompt_id"] == prompt]
    step = widgets.step_picker(_steps(here))
    _panels(lab, [members[run] for run in chosen], here[here["step"] == step].set_index("run"), int(step), colour)


def _runs(members: dict[str, tuple[Family, Member]], base: Family | None) -> list[str]:
    """The runs beside each other: the base's first and the next method's first, unless the reader says."""
    chosen = urls.list_param("side", list(members))[:MOST]
    if not chosen:
        ordered = sorted(members, key=lambda run: members[run][0] is not base)
        firsts = list({members[run][0].key: run for run in reversed(ordered)}.values())[::-1]
        chosen = (firsts if len(firsts) > 1 else ordered)[:FIRST]
    labels = {run: f"{family.label}, seed {member.info.seed}" for run, (family, member) in members.items()}
    return st.multiselect(
        "Runs side by side", list(members), format_func=labels.__getitem__, max_selections=MOST,
        placeholder="Two to four runs", wrap=True, **urls.bound("side", chosen),
    )  # fmt: skip


def _steps(here: pd.DataFrame) -> list[int]:
    """The steps at which all of the runs answered the prompt; at which any did, where there is no such step."""
    by_step = here.groupby("step")["run"].nunique()
    common = by_step[by_step == here["run"].nunique()]
    return sorted((common if len(common) else by_step).index.astype(int).tolist())


def _panels(
    lab: Lab, members: Sequence[tuple[Family, Member]], here: pd.DataFrame, step: int, colour: str
) -> None:  # fmt: skip
    groups = {member.id: int(here.loc[member.id, "group"]) for _, member in members if member.id in here.index}
    rollouts = {run: queries.probe_rollouts(lab, run, step, group) for run, group in groups.items()}
    tokens = {run: queries.probe_tokens(lab, run, step, group) for run, group in groups.items()}
    field = probes.COLOURS[colour]
    domain = probes.reach(list(tokens.values()), field)
    would = " that each run's method would give (probes are not trained)" if colour == "advantage" else ""
    st.caption(
        f"The answer is {inert_markdown(here['answer'].iloc[0])}. Right answers (+) come first. Colour: "
        f"{field.label}{would}; hover a token for its number."
    )
    st.html(probes.scale(field, domain, theme()))
    with st.container(horizontal=True, gap="medium"):
        for family, member in members:
            with st.container(border=True, width=NARROWEST if len(members) > 2 else "stretch"):
                st.markdown(f"**{inert_markdown(family.label)}**, seed {member.info.seed}")
                if member.id not in groups:
                    st.caption(f"It did not answer this prompt at step {step}.")
                    continue
                st.caption(probes.summary(rollouts[member.id]))
                share = probes.MOST_TOKENS // len(members)
                st.html(probes.answers(rollouts[member.id], tokens[member.id], field, domain, theme(), most=share))
                place = {"run": member.id, "split": "probe", "step": step, "group": groups[member.id]}
                with st.container(horizontal=True, gap="medium"):
                    urls.link("tokens", "Open on the Tokens page", icon=":material/grid_on:", **place)
                    widgets.what_if(**place)
