"""The stored rollouts of a run's step, as the What-if page compares methods on them."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from pathlib import Path

import numpy as np
import streamlit as st

from app import data, slots
from app.inert import visible
from app.views.whatif_pairs import telling_group
from app.views.whatif_source import Source
from core.advantage import AdvantageError
from core.config import ConfigError, read_run
from core.counterfactual import Spec, answer, stored
from core.counterfactual.steps import spaced
from core.runs import RunInfo
from core.store import Lab, StoreError, fingerprint
from core.store.queries import whatif as query

HELD_OUT = "held-out answers are kept without their tokens"
LOOKS = 12
"""Steps that are looked at for a first view, evenly spaced, the oldest first."""
MOST_TOKENS = 300_000
"""Once so many tokens were looked at, no further step is: a reader waits."""


def steps(info: RunInfo) -> dict[str, list[int]]:
    """The steps that have tokens, by split, training first."""
    return _steps(data.lab(info), info.id, fingerprint([info.path]))


def telling_step(info: RunInfo, split: str, steps: list[int], lines: Sequence[str]) -> int:
    """Where a first look tells most: of some steps with about as many right as wrong answers to a prompt, the one at
    which the first two methods part most on a prompt; the newest where they never do. `lines`: the address's methods.
    """
    return _telling_step(data.lab(info), info.path, info.id, split, steps, tuple(lines), fingerprint([info.path]))


def source(info: RunInfo, step: int, split: str) -> Source | str:
    """The step's rollouts, or the sentence that says why they cannot be used."""
    return _source(data.lab(info), info.id, info.name, step, split, fingerprint([info.path]))


@st.cache_data(max_entries=32, show_spinner=False)
def _steps(_lab: Lab, run: str, mark: Hashable) -> dict[str, list[int]]:
    return query.steps_by_split(_lab, run)


@st.cache_data(max_entries=32, show_spinner=False)
def _telling_step(
    _lab: Lab, _path: Path, run: str, split: str, steps: list[int], lines: tuple[str, ...], mark: Hashable
) -> int:
    mixed = sorted(set(query.mixed_steps(_lab, run, split)) & set(steps))
    newest = (mixed or steps)[-1]
    try:
        config = read_run(_path / "config.yaml")
        found = slots.read(Spec.of_run(config), at=lines)
        methods = [slot.method for slot in found if slot.method][:2]
        best, tokens = (0.0, newest), 0
        for step in spaced(mixed or steps, LOOKS) if len(methods) == 2 else ():
            batch = stored(_lab, run, step, split).batch
            a, b = (answer(method, batch, config.polarity_by) for method in methods)
            _, (part, *_) = telling_group(a, b, batch)
            best, tokens = max(best, (part, step)), tokens + int(batch.length.sum())
            if tokens > MOST_TOKENS:
                break
    except (StoreError, ConfigError, AdvantageError):
        return newest
    return best[1]


@st.cache_resource(max_entries=16, show_spinner=False)
def _source(_lab: Lab, run: str, name: str, step: int, split: str, mark: Hashable) -> Source | str:
    try:
        found = stored(_lab, run, step, split)
        own = Spec.of_run(found.config)
        own.build()
    except (StoreError, ConfigError, AdvantageError) as error:
        return HELD_OUT if split == "eval" else str(error)
    key = f"{run}/{split}/{step}/{hash(mark)}"
    rollout = np.array([own for _, own in sorted(found.row, key=found.row.__getitem__)])

    def texts(row: int) -> list[str]:
        return _texts(_lab, run, step, split, int(found.batch.group[row]), mark)[int(rollout[row])]

    return Source(
        key=key, title=f"{visible(name)}, step {step}", batch=found.batch, rollout=rollout, texts=texts,
        prompts=query.prompts(_lab, run, step, split), own=own,
        polarity_by=found.config.polarity_by, ratio=found.ratio if np.isfinite(found.ratio).any() else None,
        note="" if split == "train" else "Nothing was trained on these: they are the run's answers to other prompts.",
    )  # fmt: skip


@st.cache_resource(max_entries=64, show_spinner=False)
def _texts(_lab: Lab, run: str, step: int, split: str, group: int, mark: Hashable) -> dict[int, list[str]]:
    return query.token_texts(_lab, run, step, split, group)
