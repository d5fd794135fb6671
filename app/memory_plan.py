"""The Launch page's memory plan: what a run needs at its peak, part by part, against what the machine has."""

from __future__ import annotations

import streamlit as st

from app.inert import inert_markdown
from app.words import share
from core.config import RunConfig
from core.models.catalog import ModelInfo, describe
from core.runs.hardware import Memory
from core.runs.memory import Plan, gigabytes, plan_here
from core.tasks import TaskError, get_task

PHASES = ("sampling", "training")
SMALL = 20_000_000
"""Parameters of a model that any machine has room for: on a CPU, nothing is shown for it."""


def planned(config: RunConfig, model: ModelInfo) -> tuple[Plan, Memory | None] | None:
    """The plan and what the machine has; None where the model or the task cannot be read."""
    try:
        task = get_task(config.task)
    except TaskError:
        return None
    return plan_here(config, model, task) if model.ready else None


def in_one_line(config: RunConfig, model: ModelInfo) -> str:
    """Whether the run fits, as Markdown; "" where nothing can be said."""
    if (plan := planned(config, model)) is None:
        return ""
    needed, has = plan
    if has is None:
        return f"needs up to {_size(needed.total)} of memory"
    word = "fits" if needed.total <= has.total else "**does not fit**"
    where = f"of the {_size(has.total)} that {inert_markdown(has.where)} has"
    return f"{word}: these settings need up to {_size(needed.total)} {where}"


def show(config: RunConfig) -> None:
    """Draw the plan; nothing for a small model on a CPU, and nothing where the model cannot be read."""
    model = describe(config.model)
    if (plan := planned(config, model)) is None:
        return
    needed, has = plan
    if needed.device == "cpu" and model.parameters < SMALL:
        return
    heading = f"**Memory: up to {_size(needed.total)}**"
    if has is None:
        st.markdown(heading)
        st.caption("nvidia-smi does not tell how much this GPU has, so nothing is compared with it.")
    else:
        part = share(needed.total / has.total)
        st.markdown(f"{heading}, {part} of the {_size(has.total)} that {inert_markdown(has.where)} has")
        st.progress(min(1.0, needed.total / has.total))
        if has.free < needed.total <= has.total:
            st.warning(
                f"Only {_size(has.free)} are free right now; other programs hold the rest.",
                icon=":material/memory:",
            )
    st.markdown(table(needed))
    st.caption("Estimated from the model's files, at most. Sampling and training take turns, so the larger one counts.")


def table(needed: Plan) -> str:
    """The parts as a Markdown table with their sums; a part that is always there counts in both columns."""
    sizes: dict[str, dict[str, str]] = {}
    for part in needed.parts:
        for phase in PHASES if part.when == "always" else (part.when,):
            sizes.setdefault(part.name, {})[phase] = _size(part.bytes)
    rows = [f"| {name} | " + " | ".join(of.get(phase, "") for phase in PHASES) + " |" for name, of in sizes.items()]
    sums = " | ".join(f"**{_size(needed.of('always') + needed.of(phase))}**" for phase in PHASES)
    return "\n".join([f"| | {' | '.join(PHASES)} |", "|:--|--:|--:|", *rows, f"| **together** | {sums} |"])


def _size(size: int) -> str:
    return gigabytes(size).replace(" ", "\u00a0")
