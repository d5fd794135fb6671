"""One prompt through training: the answers that each policy gave it, coloured on one scale, with play and a slider."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import pandas as pd
import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import presentation, urls, widgets
from app.guard import guarded
from app.history import history
from app.inert import inert_markdown, visible
from app.theme import theme
from app.tokens.steps import SPLITS, nothing_yet
from app.views import probes
from app.views import tokens_training as view
from app.views.tokens_fields import NOT_RECORDED, token_frame
from app.words import NO_PROMPT, count
from core.runs import RunInfo
from core.store import Lab
from core.store.queries import tokens as token_query
from core.store.queries import tokens_run as query

EVERY_S = 1.5
"""Seconds that each step stays while playing."""
STATE = "tokens:playing"

HOW = """
The answers that the policy of each step gave to the same prompt, right ones (**+**) first. Probes are asked at every
evaluation and never trained on; training prompts come back once an epoch. Colours are on **one scale for all steps**,
so that frames compare: the widest 2nd to 98th percentile of any of them. Hover a token for its number; the length on
the right opens that answer token by token.

**Play** walks through the steps to the last one; anything you change pauses it. Begin alike: the same first
12 characters.
"""
HOW_CURVES = """
Right answers are teal with circles, wrong ones vermilion, dashed, with squares; the grey band is the step above. Means
over the answers (length) or their tokens (entropy, advantage). Click a point to choose its step. A gap: that step's
tokens were not kept, or it had no such answer.
"""


@dataclass
class Play:
    """Steps going by. `place` is the step's index; it lives in the session alone, so that steps do not fill the
    browser's history. Each run of the whole page but the one that started it ends it.
    """

    key: str
    steps: list[int]
    place: int
    began: int
    """The step that the address names meanwhile."""
    fresh: bool = True
    drawn: bool = False

    @property
    def step(self) -> int:
        return self.steps[self.place]

    def tick(self) -> bool:
        """On to the next step; False once the last has been shown. The first call shows the step it begins with."""
        if self.drawn and self.place + 1 >= len(self.steps):
            return False
        self.place += int(self.drawn)
        self.drawn = True
        return True


@dataclass(frozen=True)
class Prompt:
    """One prompt of a run and what is known of its visits."""

    info: RunInfo
    lab: Lab
    split: str
    id: str
    visits: pd.DataFrame  # step, group, prompt, answer, n, correct; one row a step
    series: pd.DataFrame
    field: view.Field
    domain: float


def show(info: RunInfo, lab: Lab) -> None:
    """The view of one prompt, chosen by its split and id."""
    found = {split: history(info, lab, query.visits, split) for split in SPLITS}
    there = [split for split in ("probe", "train") if len(found[split])]
    if not there:
        nothing_yet(info)
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        prompt_place = st.container(key=f"{presentation.ROOMY}-visits")
        split_place, colour_place = st.container(width="content"), st.container(width="content")
    wanted = urls.param("prompt")
    home = next((split for split in there if (found[split]["prompt_id"] == wanted).any()), there[0])
    with split_place:
        split = widgets.choice("Prompts", there, param="split", default=home, format_func=SPLITS.__getitem__)
    with prompt_place:
        chosen = _prompt_picker(found[split], wanted)
    with colour_place:
        field = _colour()
    own = found[split][found[split]["prompt_id"] == chosen].drop_duplicates("step", keep="last")
    rollouts = history(info, lab, query.prompt_rollouts, split, chosen)
    tokens = history(info, lab, query.prompt_tokens, split, chosen, field.id)
    prompt = Prompt(info, lab, split, chosen, own, view.series(own, rollouts, tokens), field, view.reach(tokens, field))
    _play_or_step(prompt)


def _colour() -> view.Field:
    labels = {key: field.label for key, field in view.COLOURS.items()}
    wanted = urls.param("color")  # the view of one group has more colours than this one
    now = wanted if wanted in labels else "advantage"
    picked = st.pills(
        "Colour tokens by", list(labels), format_func=labels.__getitem__, required=True, wrap=True,
        **urls.bound("color", now),
    )  # fmt: skip
    return view.COLOURS[picked or now]


def _prompt_picker(found: pd.DataFrame, wanted: str | None) -> str:
    by_id = found.groupby("prompt_id", sort=False).agg(
        prompt=("prompt", "last"), visits=("step", "nunique"), first=("correct", "first"), last=("correct", "last"),
        n=("n", "last"),
    )  # fmt: skip

    def label(key: str) -> str:
        row = by_id.loc[key]
        right = f"right {row['first']} → {row['last']} of {row['n']}"
        return f"{visible((row['prompt'] or NO_PROMPT)[:60])} · {count(int(row['visits']), 'step')} · {right}"

    now = wanted if wanted in by_id.index else by_id.index[0]
    st.selectbox("Prompt", by_id.index.tolist(), format_func=label, **urls.bound("prompt", now))
    return now


def _play_or_step(prompt: Prompt) -> None:
    steps = [int(step) for step in prompt.visits["step"]]
    key = f"{prompt.info.id}/{prompt.split}/{prompt.id}"
    play = _playing(key)
    button_place, step_place = st.columns([1.4, 6], vertical_alignment="bottom")
    if play is not None:
        button_place.button("Pause", icon=":material/pause:", key="tokens:pause", width="stretch")
        bar = step_place.empty()
        st.fragment(lambda: guarded(partial(_tick, prompt, play, bar)), run_every=EVERY_S)()
        return
    with step_place:
        step = widgets.step_picker(steps, total=prompt.info.total, default=_telling_step(prompt.series))
    button_place.button(
        "Play", icon=":material/play_arrow:", key="tokens:play", width="stretch", disabled=len(steps) < 2,
        help="Go through the steps, from the first one if this is the last", on_click=_start, args=(key, steps, step),
    )  # fmt: skip
    _frame(prompt, step)


def _telling_step(series: pd.DataFrame) -> int | None:
    """The newest visit with right and wrong answers, else most advantages are 0; one whose tokens were kept, if any."""
    mixed = series[(series["correct"] > 0) & (series["correct"] < series["n"])]
    kept = mixed[mixed["tokens"].notna()]
    told = kept if len(kept) else mixed
    return int(told["step"].max()) if len(told) else None


def _start(key: str, steps: list[int], step: int) -> None:
    place = 0 if step == steps[-1] else steps.index(step)
    st.session_state[STATE] = Play(key, steps, place, steps[place])
    urls.set_params(step=steps[place])


def _playing(key: str) -> Play | None:
    """What is being played, if this run of the page answers the press that started it; everything else ends it."""
    play: Play | None = st.session_state.get(STATE)
    if play is None or (play.fresh and play.key == key):
        if play is not None:
            play.fresh = False
        return play
    del st.session_state[STATE]
    if play.key == key and not play.fresh and urls.param("step") == str(play.began):
        urls.set_params(step=play.step)
    return None


def _tick(prompt: Prompt, play: Play, bar: DeltaGenerator) -> None:
    """One step of what is being played, with how far it is in `bar`; at the end, the page once more without a timer."""
    if st.session_state.get(STATE) is not play or not play.tick():
        st.rerun()
    bar.progress((play.place + 1) / len(play.steps), text=f"Step {play.step}, {play.place + 1} of {len(play.steps)}")
    _frame(prompt, play.step, playing=True)


def _frame(prompt: Prompt, step: int, playing: bool = False) -> None:
    """The answers of one step, and where it stands among the others."""
    visit = prompt.visits[prompt.visits["step"] == step].iloc[0]
    group = int(visit["group"])
    run = prompt.info.id
    rollouts = token_query.group_rollouts(prompt.lab, run, step, prompt.split, group)
    if rollouts.empty:
        widgets.empty_state(f"Step {step} is being written anew; look again in a moment.")
        return
    stored = token_query.group_tokens(prompt.lab, run, step, prompt.split, group)
    tokens = token_frame(stored, rollouts, [])
    widgets.verdict(view.changes(prompt.series, step))
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.markdown(
                f"**{inert_markdown(visit['prompt'])}** &nbsp; the answer is {inert_markdown(visit['answer'])}",
                width="content",
            )
            widgets.how_to_read(HOW, "Help")
        where = {"run": run, "split": prompt.split, "step": step, "group": group}
        if tokens.empty:
            st.caption("Only the text of these answers is in the store: this step's tokens were not kept.")
        elif not tokens[prompt.field.id].notna().any():
            why = NOT_RECORDED.get(prompt.field.id, "this was not recorded here")
            st.caption(f"{why[0].upper()}{why[1:]}.")
        else:
            st.html(probes.scale(prompt.field, prompt.domain, theme(), "all steps of this prompt"))
        answer = partial(urls.href, "tokens", **where)
        st.html(
            probes.answers(
                rollouts, tokens, prompt.field, prompt.domain, theme(), lambda rollout: answer(rollout=rollout)
            )
        )
        with st.container(horizontal=True, gap="medium"):
            urls.link("tokens", "Open this group, token by token", icon=":material/grid_on:", **where)
            widgets.what_if(**where)
    fig = view.curves(prompt.series, step, theme())

    def click() -> None:
        points = st.session_state["tokens:prompt"].selection.points
        if points:
            urls.set_params(step=round(points[0]["x"]))

    how = {} if playing else {"on_select": click, "selection_mode": "points"}
    widgets.chart(fig, key="tokens:prompt", how=HOW_CURVES, frame=prompt.series, **how)
