"""What a page can do to runs: stop, resume, extend, delete. What came of it is said on the next drawing."""

from __future__ import annotations

import functools
from collections.abc import Callable

import streamlit as st

from app import data, urls
from app.inert import inert_markdown
from core import runs
from core.config import ConfigError, ExperimentConfig
from core.runs import RunError, RunInfo

_FLASH, _STARTED = "flash", "started"


def attempt(act: Callable[[], object], done: str) -> bool:
    """Do something to runs; keep the sentence of what came of it for `show_flash`. `done` is Markdown."""
    try:
        act()
    except (RunError, ConfigError, OSError) as error:
        flash(inert_markdown(error), "bad")
        return False
    finally:
        data.refresh()
    flash(done, "good")
    return True


def flash(sentence: str, tone: str) -> None:
    """Keep a sentence for the next drawing of a page."""
    st.session_state.setdefault(_FLASH, []).append((sentence, tone))


def show_flash() -> None:
    """Draw what was kept, once."""
    for sentence, tone in st.session_state.pop(_FLASH, []):
        if tone == "bad":
            st.error(sentence, icon=":material/error:")
        else:
            st.toast(sentence, icon=":material/check:")


def can_resume(info: RunInfo) -> bool:
    """Whether a page may go on with the run: not one that came from elsewhere, nor one that is packed."""
    return info.state in ("stopped", "failed") and not _read_only(info)


def can_extend(info: RunInfo) -> bool:
    """Whether a page may give the run more steps."""
    return info.state == "finished" and not _read_only(info)


def _read_only(info: RunInfo) -> bool:
    return info.imported or info.packed or info.example


def start(experiment: ExperimentConfig) -> None:
    """Callback: create and launch an experiment's runs; `follow_start` then leads to their curves."""
    try:
        paths = runs.start(data.root(), experiment)
    except (RunError, ConfigError, OSError) as error:
        flash(inert_markdown(error), "bad")
    else:
        st.session_state[_STARTED] = [path.name for path in paths]
    data.refresh()


def follow_start() -> None:
    """Go to the curves of what `start` has just started, if anything: of the whole experiment, or of its only run."""
    if started := st.session_state.pop(_STARTED, None):
        info = data.run(started[0])
        urls.go("live", **({"experiment": info.experiment} if info and info.experiment else {"run": started[:1]}))


def stop_all(infos: list[RunInfo]) -> None:
    """Callback: stop several runs, the last in the queue first, so that none starts meanwhile."""
    for info in sorted(infos, key=lambda info: info.created, reverse=True):
        stop(info)


def stop(info: RunInfo) -> None:
    """Callback: ask a run to stop at its next step."""
    attempt(
        lambda: runs.stop(info.path),
        f"{inert_markdown(info.name)} stops after its current step; it can be resumed.",
    )


def resume(info: RunInfo) -> None:
    """Callback: go on with a stopped or failed run."""
    attempt(lambda: runs.resume(info.path), f"{inert_markdown(info.name)} goes on from its last checkpoint.")


def extend(info: RunInfo, key: str) -> None:
    """Callback: go on with a finished run up to the number of steps in the widget `key`."""
    steps = int(st.session_state[key])
    attempt(lambda: runs.resume(info.path, extend_to=steps), f"{inert_markdown(info.name)} goes on to {steps} steps.")


@st.dialog("Delete for good?")
def confirm_delete(infos: list[RunInfo]) -> None:
    """Ask before run folders go: rollouts, curves and adapters go with them."""
    names = ", ".join(inert_markdown(info.name) for info in infos[:6]) + (" …" if len(infos) > 6 else "")
    what = f"the run **{names}**" if len(infos) == 1 else f"**{len(infos)} runs** ({names})"
    st.markdown(f"This deletes {what}: every rollout, curve, checkpoint and adapter. It cannot be undone.")
    with st.container(horizontal=True):
        yes = st.button(
            "Delete", type="primary", icon=":material/delete:", key="delete:yes", on_click=_delete, args=(infos,)
        )  # fmt: skip
        if yes or st.button("Keep", key="delete:no"):
            st.rerun()


def _delete(infos: list[RunInfo]) -> None:
    for info in infos:
        attempt(functools.partial(runs.delete, info.path), f"{inert_markdown(info.name)} is deleted.")
