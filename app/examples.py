"""The recorded examples, as the first page shows them: three questions whose answers are one press away."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from app import data, urls
from app.inert import inert_markdown, visible_token
from app.words import count, number
from core.runs import RunInfo
from core.store import Lab, StoreError, fingerprint
from core.store.queries import landmarks
from core.store.queries.landmarks import Place

STEP = 40
"""About where the question on held-back prompts looks: early enough that much is still wrong, late enough to know."""


@dataclass(frozen=True)
class Question:
    """Something to find out from recorded runs, and the view that answers it. Texts are Markdown."""

    text: str
    hint: str
    label: str
    page: str
    params: dict[str, Any]


def show_questions(examples: Sequence[RunInfo]) -> None:
    """The questions side by side, each with its link."""
    found = questions(examples)
    for place, question in zip(st.columns(max(1, len(found)), gap="large"), found, strict=True):
        with place:
            st.markdown(f"**{question.text}**  \n:small[{question.hint}]")
            urls.link(question.page, question.label, icon=":material/arrow_forward:", **question.params)


def questions(examples: Sequence[RunInfo]) -> list[Question]:
    """What these runs can answer; a run that cannot be read asks nothing."""
    asked = []
    for ask in (_entropy, _held_back, _hardest_push):
        try:
            question = ask(examples)
        except StoreError:
            question = None
        if question is not None:
            asked.append(question)
    return asked


def first_of(examples: Sequence[RunInfo], methods: Sequence[str]) -> RunInfo | None:
    """The example of the first of these methods that there is, its lowest seed."""
    for method in methods:
        if own := [info for info in examples if info.method == method]:
            return min(own, key=lambda info: (info.seed, info.created))
    return None


def _entropy(examples: Sequence[RunInfo]) -> Question | None:
    family = [info for info in examples if info.experiment and info.experiment == examples[-1].experiment]
    if len(family) < 2:
        return None
    methods = len({info.method for info in family})
    return Question(
        "Which method kept entropy?",
        f"{count(methods, 'method')} on the same prompts, {count(len(family), 'run')}: what is left to explore?",
        "Compare them by entropy",
        "compare",
        {"experiment": family[0].experiment, "metric": "entropy"},
    )


def _held_back(examples: Sequence[RunInfo]) -> Question | None:
    info = first_of(examples, ["adora_attenuate"])
    held = _held(data.lab(info), info.id, fingerprint([info.path])) if info else {}
    if not held:
        return None
    step = min(held, key=lambda there: (abs(there - STEP), there))
    return Question(
        f"Which prompts did ADORA hold back at step {step}?",
        f"{held[step][0]} of {sum(held[step])} prompts counted less than the others, and the page says why.",
        "See the step's prompts",
        "favorability",
        {"run": info.id, "step": step},
    )


def _hardest_push(examples: Sequence[RunInfo]) -> Question | None:
    info = first_of(examples, ["a3po"])
    place = _strongest(data.lab(info), info.id, fingerprint([info.path])) if info else None
    if place is None:
        return None
    return Question(
        "Which token did A3PO push hardest, and why?",
        f"“{inert_markdown(visible_token(place.token))}” at step {place.step}, with an advantage of "
        f"{number(place.advantage, signed=True)}: base advantage × factors, each with its reason.",
        "Look at the token",
        "tokens",
        {
            "run": info.id, "split": "train", "step": place.step, "group": place.group, "rollout": place.rollout,
            "position": place.position, "color": "push",
        },
    )  # fmt: skip


@st.cache_data(max_entries=8, show_spinner=False)
def _held(_lab: Lab, run: str, mark: Hashable) -> dict[int, tuple[int, int]]:
    return landmarks.held_back(_lab, run)


@st.cache_data(max_entries=8, show_spinner=False)
def _strongest(_lab: Lab, run: str, mark: Hashable) -> Place | None:
    return landmarks.strongest_push(_lab, run)
