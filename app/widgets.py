"""What pages share: the first line, pickers that live in the URL, figures with their tools, empty states, verdicts."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from app import actions, data, downloads, navigation, presentation, urls
from app.examples import first_of
from app.inert import inert_markdown, visible
from app.views.enlarge import enlarged
from app.words import duration, number
from core.runs import RunInfo

STATE_ICON = {
    "queued": "…", "loading": "…", "running": "▶", "stopping": "■", "stopped": "■", "finished": "✓", "failed": "×",
}  # fmt: skip
"""A sign beside every state, so that colour never stands alone."""

PLOT_CONFIG = {"displaylogo": False, "displayModeBar": False, "scrollZoom": False}


def page_header(question: str, lede: str = "") -> None:
    """The first line of a page: the question it answers; `lede` is one sentence under it. Both are Markdown."""
    navigation.ensure()
    actions.show_flash()
    with st.container(horizontal=True, wrap=False, vertical_alignment="center", gap="small"):
        st.header(question, anchor=False, width="stretch")
        presentation.button()
    if lede:
        st.caption(lede)


def empty_state(sentence: str, page: str | None = None, label: str | None = None, **params: Any) -> None:
    """What would fill this place, and the link that leads there. The sentence is Markdown."""
    with st.container(border=True):
        st.markdown(sentence)
        if page and label:
            urls.link(page, label, icon=":material/arrow_forward:", **params)


def verdict(sentence: str, tone: str = "neutral") -> None:
    """One line made from the data. Tones: good, neutral, warning, bad. The sentence is Markdown."""
    show, icon = {
        "good": (st.success, ":material/trending_up:"),
        "warning": (st.warning, ":material/warning:"),
        "bad": (st.error, ":material/error:"),
    }.get(tone, (st.info, ":material/info:"))
    show(sentence, icon=icon)


def run_label(info: RunInfo) -> str:
    """A run in one line of plain text: the sign of its state, its name, when it was made or that it is an example."""
    made = "example" if info.example else time.strftime("%d %b %H:%M", time.localtime(info.created)).lstrip("0")
    return f"{STATE_ICON.get(info.state, '?')} {visible(info.name or info.id)} · {made}"


def run_labels(infos: Sequence[RunInfo]) -> dict[str, str]:
    """`run_label` by id, for the options of a picker; where two would read the same, with their ids."""
    labels = {info.id: run_label(info) for info in infos}
    seen = Counter(labels.values())
    return {key: f"{label} · {visible(key)}" if seen[label] > 1 else label for key, label in labels.items()}


def state_words(info: RunInfo) -> list[str]:
    """What a run is doing, in a few pieces of Markdown: state, steps, pace, time left, what it waits for."""
    words = [f"{STATE_ICON.get(info.state, '?')} {info.state}"]
    if info.total:
        words.append(f"step {info.step} of {info.total}")
    if info.live and info.step_s:
        words.append(f"{number(info.step_s, 's')} a step")
    if info.live and info.eta_s is not None:
        words.append(f"about {duration(info.eta_s)} left")
    if info.message and info.live:
        words.append(inert_markdown(info.message))
    elif not info.host_is_here:
        words.append(f"on {inert_markdown(info.host)}")
    return words


def run_picker(
    *, param: str = "run", label: str = "Run", need_steps: bool = True, suits: Sequence[str] = ("grpo",)
) -> RunInfo | None:
    """A run from the URL, this session's last choice, or the newest; draws the picker.

    None where there is no run at all: the empty state has then been drawn. With `need_steps`, a run without a step yet
    is never the default, but can be picked: pages say then what it waits for. Where only examples are left, that of the
    first of the methods in `suits` is the default.
    """
    infos = {info.id: info for info in data.runs()}
    if not infos:
        empty_state(
            "There is no run yet. The **Quick start** trains three methods on the small embedded model in minutes, "
            "and everything here fills with their rollouts.",
            "runs",
            "Go to the Quick start",
        )
        return None
    wanted = urls.param(param)
    if wanted is not None and wanted not in infos:
        st.warning(f"There is no run “{inert_markdown(wanted[:80])}” in this folder; this is the newest instead.")
        wanted = None
    if wanted is None:
        ready = [info.id for info in infos.values() if info.step or not need_steps]
        last = urls.remembered(param)
        newest = infos[next(iter(ready or infos))]
        if newest.example:
            newest = first_of([info for info in infos.values() if info.example], suits) or newest
        wanted = last if last in infos else newest.id
        urls.set_params(**{param: wanted})
    labels = run_labels(list(infos.values()))
    st.selectbox(label, list(infos), format_func=labels.__getitem__, **urls.bound(param, wanted))
    urls.remember(param, wanted)
    return infos[wanted]


def runs_picker(*, param: str = "run", label: str = "Runs", most: int = 6, start: str | None = None) -> list[RunInfo]:
    """One to `most` runs from the URL (repeated parameter), else the run `start`, the newest experiment or run; draws
    the picker.
    """
    infos = {info.id: info for info in data.runs()}
    if not infos:
        empty_state("There is no run yet to show here.", "runs", "Go to the Quick start")
        return []
    chosen = urls.list_param(param, list(infos))
    if len(chosen) > most:
        st.warning(f"{len(chosen)} runs are named in the address; the first {most} are shown.")
        chosen = chosen[:most]
    if not chosen:
        newest = infos.get(start) or next(iter(infos.values()))
        family = [info.id for info in infos.values() if newest.experiment and info.experiment == newest.experiment]
        chosen = [start] if start in infos else family[::-1][:most] or [newest.id]
        urls.set_params(**{param: chosen})
    labels = run_labels(list(infos.values()))
    picked = st.multiselect(
        label,
        list(infos),
        format_func=labels.__getitem__,
        max_selections=most,
        placeholder="Pick one or more runs",
        **urls.bound(param, chosen),
    )
    return [infos[key] for key in picked]


def choice(
    label: str,
    options: Sequence[str],
    *,
    param: str,
    default: str | None = None,
    format_func: Callable[[str], str] = str,
    kind: str = "segmented",
    help: str | None = None,
) -> str:
    """One of a few options, in the URL. `kind` is segmented or select; segmented labels are Markdown."""
    now = urls.choice_param(param, options, default or options[0])
    arguments: dict[str, Any] = {"format_func": format_func, "help": help, **urls.bound(param, now)}
    if kind == "select":
        return st.selectbox(label, options, **arguments) or now
    return st.segmented_control(label, options, required=True, **arguments) or now


def switch(label: str, *, param: str, default: bool = False, help: str | None = None) -> bool:
    """An on/off choice, in the URL."""
    return st.toggle(label, help=help, **urls.bound(param, urls.flag_param(param, default)))


def step_picker(
    steps: Sequence[int],
    *,
    param: str = "step",
    label: str = "Step",
    total: int | None = None,
    default: int | None = None,
) -> int | None:
    """One of the steps that are there (ascending), in the URL: ◀ slider ▶, the arrow keys with Alt.

    `default` is where a reader without a choice starts: a step that has something to show; else the last. None where
    there is no step. A step that is not there gives a sentence and the nearest one.
    """
    if not steps:
        return None
    wanted = urls.int_param(param, default if default in steps else steps[-1])
    now = min(steps, key=lambda step: (abs(step - wanted), step))
    if now != wanted:
        st.warning(f"Step {wanted} is not there; the nearest step is {now}.")
    place = list(steps).index(now)
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        st.button(
            "◀", key=f"{param}:back", disabled=place == 0, help="The step before (Alt+Left)", shortcut="Alt+Left",
            on_click=urls.set_params, kwargs={param: steps[max(place - 1, 0)]},
        )  # fmt: skip
        of = f" {now} of {total}" if total and steps[-1] <= total else f" {now}"  # an import's steps may begin anywhere
        if len(steps) > 1:
            gaps = steps[-1] - steps[0] >= len(steps)
            few = f"{len(steps)} steps can be shown here, from {steps[0]} to {steps[-1]}; the rest has no data for it."
            st.select_slider(label + of, list(steps), help=few if gaps else None, **urls.bound(param, now))
        else:
            st.markdown(f"{label}{of}, the only one", width="stretch")
        st.button(
            "▶", key=f"{param}:next", disabled=place == len(steps) - 1, help="The next step (Alt+Right)",
            shortcut="Alt+Right", on_click=urls.set_params, kwargs={param: steps[min(place + 1, len(steps) - 1)]},
        )  # fmt: skip
    return now


def window_picker(steps: Sequence[int], default: tuple[int, int], *, param: str = "steps") -> tuple[int, int]:
    """A window of steps from the address (`steps=30&steps=39`), else `default`; draws its slider. `steps` ascending."""
    named = urls.int_params(param)
    first, last = (min(named), max(named)) if named else default
    first = max((step for step in steps if step <= first), default=steps[0])
    last = min((step for step in steps if step >= last), default=steps[-1])
    if len(steps) == 1:
        st.caption(f"The run has one step so far: {steps[0]}.")
        return first, last
    key = f"window:{param}:{first}:{last}"  # a range needs its own default, so the key holds the address's value

    def move() -> None:
        urls.set_params(**{param: list(st.session_state[key])})

    st.select_slider("Window of steps", list(steps), value=(min(first, last), last), key=key, on_change=move)
    return min(first, last), last


def what_if(**place: Any) -> None:
    """The link to the What-if page with these rollouts: `run`, and as far as they are known step, split and group."""
    urls.link(
        "whatif", "What if…", icon=":material/alt_route:",
        help="What would another method have done with these very rollouts?", **place,
    )  # fmt: skip


def how_to_read(text: str, label: str = "How to read this") -> None:
    """A small popover with the page's own Markdown."""
    with st.popover(label, type="tertiary", icon=":material/help:"):
        st.markdown(text)


def chart(
    fig: go.Figure,
    *,
    key: str,
    how: str,
    frame: downloads.Frame | None = None,
    alt: str | None = None,
    **plotly: Any,
) -> Any:
    """A figure of `app.views` with its title, "how to read this" and its downloads in one row above it.

    `frame` holds or gives the numbers that are drawn, `alt` says in words what can be seen (the title, if left out);
    further arguments go to st.plotly_chart, whose result comes back (selections).
    """
    title = fig.layout.title.text or ""
    with st.container(horizontal=True, wrap=False, vertical_alignment="center", gap="small"):
        st.markdown(f"**{title}**", width="stretch")
        with st.container(horizontal=True, wrap=False, gap="small", width="content"):
            with st.popover("", type="tertiary", icon=":material/help:", help="How to read this"):
                st.markdown(how)
            downloads.menu(key, key=key, frame=frame, fig=fig)
    fig = enlarged(fig, presentation.scale())
    fig.layout.title.text = ""  # for as long as it is drawn; a figure as a dict would be checked all over again
    try:
        return st.plotly_chart(fig, key=key, config=PLOT_CONFIG, alt=alt or title, **plotly)
    finally:
        fig.layout.title.text = title
