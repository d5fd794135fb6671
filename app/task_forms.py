"""The task of a run on the Launch page: its prompts, its verifier with a line to try it, and the reward's weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd
import streamlit as st
from pydantic import ValidationError

from app import forms, urls
from app.draft import Draft
from app.inert import inert_markdown, visible
from app.views.setting import Setting
from app.views.task_settings import COLUMNS, FILE, GENERATORS, OF_VERIFIER, REWARD, SPLIT, TASK, VERIFIER
from app.words import count, number
from core.config import RunConfig
from core.config_tasks import TaskSettings
from core.quoted import quoted
from core.tasks import FilePrompts, Task, TaskError, file_prompts, get_task, names_code, task_names
from core.tasks.base import POOL_SEED, Prompt
from core.tasks.columns import likely
from core.tasks.file import MOST_ROWS, resolved
from core.tasks.own_function import ONLY_THERE
from core.tasks.rows import Row, cell, look, text_of

SHOWN = 5
"""Prompts of a preview."""
WIDEST = 300
"""Characters of a cell of a preview."""
CASES = {
    "answered": "gave an answer",
    "timed_out": "took too long",
    "failed": "broke the library",
    "formed": "right form",
    "people_right": "people right",
    "numbers_right": "right numbers used",
}
"""Traits in words."""
OWN_VERIFIER = {True: "the same text as the answer (exact)", False: "the task’s own"}
"""What `auto` is, by whether the task is a file."""


def show(draft: Draft) -> None:
    """The task, what belongs to it, and under a fold the verifier and the reward."""
    _columns(draft, TASK)
    settings = _settings(draft)
    if str(draft.value("task.name")) == "file":
        _file(draft, settings)
    else:
        _generator(draft, settings)
    _reward(draft, settings)


def held_out(run: RunConfig) -> int:
    """On how many prompts a run is evaluated: fewer than it asks for where its task has no more."""
    task = _task(run.task)
    try:
        return len(task.held_out(run.evaluate.prompts)) if task else run.evaluate.prompts
    except TaskError:
        return run.evaluate.prompts


def _settings(draft: Draft) -> TaskSettings | None:
    """The draft's task; None where it is not possible yet, which the page's verdict says."""
    try:
        return TaskSettings.model_validate(draft.value("task"))
    except ValidationError:
        return None


def _columns(draft: Draft, group: Sequence[Setting]) -> None:
    columns = st.columns(2)
    for i, what in enumerate(group):
        with columns[i % 2]:
            forms.setting(draft, what, task_names() if what.path == "task.name" else None)


def _file(draft: Draft, settings: TaskSettings | None) -> None:
    """The dataset file: its columns, its first rows, how it is split, and what of it is left out."""
    with st.container(border=True):
        forms.setting(draft, FILE)
        seen = _look(settings.file.path) if settings and settings.file.path else None
        if seen is None:
            st.caption(
                "A row for each prompt, in JSON lines, Parquet or CSV; its columns can be chosen once it is there."
            )
            return
        names, rows = seen
        _propose(draft, names)
        _columns(draft, [replace(what, kind="choice", choices=tuple(names), ask="Choose one") for what in COLUMNS])
        _columns(draft, SPLIT)
        _preview(rows, names, settings.file.prompt, settings.file.answer)
        try:
            found = file_prompts(settings)
        except TaskError:  # which the page's verdict says
            return
        _counts(found, settings)


def _propose(draft: Draft, names: Sequence[str]) -> None:
    """Choose the columns that the file most likely means, where those of the draft are not in it."""
    for what, name in zip(COLUMNS, likely(names), strict=True):
        if name is not None and draft.value(what.path) not in names:
            draft.write(what.path, name)
            if urls.list_param("set") != list(draft.changes):  # else it would be proposed for ever
                st.rerun()
    guessed = [what.label.lower() for what, name in zip(COLUMNS, likely(names), strict=True)
               if name is not None and draft.value(what.path) == name]  # fmt: skip
    if len(guessed) == len(COLUMNS):
        st.caption("The columns were chosen by their names; choose others where these are not meant.")
    elif guessed:
        st.caption(f"The {guessed[0]} was chosen by its name; choose another where it is not meant.")


def to_choose(draft: Draft) -> str:
    """Which columns of the file still have to be chosen, as a sentence in Markdown; "" if none."""
    path = draft.value("task.file.path")
    seen = _look(path) if str(draft.value("task.name")) == "file" and isinstance(path, str) and path else None
    names = seen[0] if seen else []
    missing = [what for what in COLUMNS if draft.value(what.path) not in names]
    if not names or not missing or any(draft.value(what.path) != draft.original(what.path) for what in missing):
        return ""
    labels = " and the ".join(f"**{what.label}**" for what in missing)
    return f"Choose the {labels}: no name in the file says so; its columns are {inert_markdown(quoted(names))}."


def _look(path: str) -> tuple[list[str], list[Row]] | None:
    """The columns and the first rows; None where the file cannot be read, which the page's verdict says."""
    try:
        there = resolved(path)
        stat = there.stat()
        return _looked(str(there), stat.st_mtime_ns, stat.st_size)
    except (TaskError, OSError, ValueError):
        return None


@st.cache_data(max_entries=8, show_spinner=False)
def _looked(path: str, modified: int, size: int) -> tuple[list[str], list[Row]]:
    """`modified` and `size` only tell one reading from the next."""
    return look(Path(path), SHOWN)


def _preview(rows: Sequence[Row], names: Sequence[str], *first: str) -> None:
    """The first rows, the chosen columns in front."""
    order = [*dict.fromkeys(name for name in (*first, *names) if name in names)]
    table = [{visible(name): _short(cell(row, name)) for name in order} for _, row in rows if not isinstance(row, str)]
    if table:
        st.dataframe(pd.DataFrame(table), hide_index=True, height="content")


def _short(value: object) -> str:
    text = text_of(value)
    text = ("" if value is None else str(value)) if text is None else text
    return visible(text if len(text) <= WIDEST else text[: WIDEST - 1] + "…")


def _counts(found: FilePrompts, settings: TaskSettings) -> None:
    """Both sides of the split, and the rows that are left out."""
    train, held, out = len(found.train), len(found.held), sum(found.refused.values())
    more = f" (the pool takes {settings.pool_size:,} of them)".replace(",", "\u202f")
    st.markdown(
        f"**{count(train, 'prompt')}** to train on{more if train > settings.pool_size else ''}, "
        f"**{count(held, 'prompt')}** held out, **{count(out, 'row')} left out**."
    )
    if found.unread:
        st.warning(f"Only the first {count(MOST_ROWS, 'row')} are read; the file goes on after them.")
    if out:
        lines = [
            f"| {inert_markdown(reason)} | {rows:,} | {inert_markdown(found.first[reason])} |"
            for reason, rows in found.refused.most_common()
        ]
        with st.expander(f"{count(out, 'row')} left out, and why", icon=":material/rule:"):
            st.markdown("\n".join(["| reason | rows | first |", "|:--|--:|:--|", *lines]))


def _generator(draft: Draft, settings: TaskSettings | None) -> None:
    """How difficult a generated task is, and what that looks like."""
    group = GENERATORS.get(str(draft.value("task.name")))
    if not group:
        return
    with st.container(border=True):
        _columns(draft, group)
        if settings and (task := _task(settings)):
            try:
                with st.spinner("Making problems (once for each difficulty)…"):
                    prompts = task.train_pool(SHOWN, POOL_SEED)
            except TaskError:
                return
            shown = [{"prompt": _short(prompt.text), "an answer": _short(prompt.answer)} for prompt in prompts]
            st.dataframe(pd.DataFrame(shown), hide_index=True, height="content")


def _task(settings: TaskSettings) -> Task | None:
    """The task; None where it cannot be had, which the page's verdict says."""
    try:
        return get_task(settings)
    except TaskError:
        return None


def _reward(draft: Draft, settings: TaskSettings | None) -> None:
    """Verifier, weights, and a line to try them."""
    kind = str(draft.value("task.verify.kind"))
    new = str(draft.value("task.name")) == "file" or bool(urls.param("try"))
    with st.expander(f"**Verifier and reward:** {_told(draft, kind)}", expanded=new, key="draft:reward"):
        if settings and names_code(settings):
            st.caption(inert_markdown(f"{settings.verify.function}. {ONLY_THERE}."))
        else:
            own = ("exact",) if kind == "auto" and draft.value("task.name") == "file" else (kind,)
            _columns(draft, VERIFIER if own != ("auto",) else VERIFIER[:1])
            _columns(draft, OF_VERIFIER.get(own[0], ()))
        st.markdown("**What the parts of the reward weigh**")
        _columns(draft, REWARD)
        st.caption("A penalty on responses near the length limit is under Advanced, Labels and rewards.")
        if settings and not names_code(settings):
            _try(settings)


def _told(draft: Draft, kind: str) -> str:
    """The verifier and the reward in a few words."""
    of_file = str(draft.value("task.name")) == "file"
    weights = {name: draft.value(f"task.reward.{name}") for name in ("correct", "format", "length")}
    terms = [
        f"{'− ' if name == 'length' else '+ ' if i else ''}{number(weight)} × {name}"
        for i, (name, weight) in enumerate(weights.items())
        if isinstance(weight, int | float) and weight
    ]
    return f"{OWN_VERIFIER.get(of_file) if kind == 'auto' else inert_markdown(kind)}; reward = {' '.join(terms) or '0'}"


def _try(settings: TaskSettings) -> None:
    """Paste a response: what the verifier makes of it."""
    task = _task(settings)
    if task is None:
        return
    st.markdown("**Try it**")
    try:
        prompts = list(task.train_pool(SHOWN, POOL_SEED))
    except TaskError:
        return
    if not prompts:
        return
    now = urls.int_param("asked", 0, 0, len(prompts) - 1)
    st.selectbox(
        "Prompt", range(len(prompts)), format_func=lambda i: _short(prompts[i].text), **urls.bound("asked", now)
    )
    prompt = prompts[now]
    st.caption(f"The answer: {inert_markdown(_short(prompt.answer))}")
    response = urls.param("try") or ""
    st.text_area("A response, as a model might write it", max_chars=2000, **urls.bound("try", response))
    if response:
        _tried(task, prompt, response, settings)


def _tried(task: Task, prompt: Prompt, response: str, settings: TaskSettings) -> None:
    try:
        verdict = task.verify(prompt, response)
    except TaskError as error:
        st.caption(inert_markdown(error))
        return
    right = f"{'✓ right' if verdict.correctness >= 0.5 else '× wrong'}, correctness {number(verdict.correctness)}"
    parts = " + ".join(f"{inert_markdown(name)} {number(value)}" for name, value in verdict.parts.items())
    traits = [f"{CASES.get(name, inert_markdown(name))} {number(value)}" for name, value in verdict.traits.items()]
    less = ", less what its tokens cost" if settings.reward.length else ""
    st.markdown(f"**{right}**; reward {number(verdict.reward)} = {parts}{less}")
    if traits:
        st.caption(" · ".join(traits))
