"""Runs, the page that the lab opens on: what can be done in five minutes, what is running, and every run there is.

Recorded examples stand apart from the reader's own runs, open as long as there are none of those.
"""

from __future__ import annotations

from collections import Counter
from itertools import groupby

import streamlit as st

from app import actions, adapter_download, bundle_download, data, examples, urls, widgets
from app.guard import guarded
from app.importing.told import lacking, told
from app.inert import inert_markdown, visible
from app.words import age, count, duration, number
from core.runs import RunInfo, runs_option

QUICKSTART = "quickstart"
EVERY_S = 3.0
PAGE = 15  # experiments and single runs listed before "Show more"
FIND_FROM = 6  # with so many runs the list gets a filter
_DELETE = "delete"


def page() -> None:
    actions.follow_start()
    widgets.page_header("What can I do here in five minutes, and what is running?")
    infos = data.runs()
    _first_line(infos)
    _quick_start(infos)
    _look_first(infos)
    _presets()
    if wanted := st.session_state.pop(_DELETE, None):
        actions.confirm_delete([info for info in infos if info.id in wanted])
    find = _filter(infos)
    busy = any(info.live for info in infos)
    st.fragment(lambda: guarded(lambda: _list(find, busy)), run_every=EVERY_S if busy else None)()


def _first_line(infos: list[RunInfo]) -> None:
    """What is running, in one sentence."""
    live = [info for info in infos if info.live]
    working = [info for info in live if info.state != "queued"]
    if not live:
        st.markdown(
            "Train three methods for real, then see token by token what each of them taught. Nothing is running now."
        )
        return
    pieces = [f"**{inert_markdown(info.name)}** ({', '.join(widgets.state_words(info)[1:])})" for info in working[:3]]
    waiting = len(live) - len(working)
    if waiting:
        pieces.append(f"{count(waiting, 'run')} in the queue")
    st.markdown("Running now: " + "; ".join(pieces) + ".")


def _quick_start(infos: list[RunInfo]) -> None:
    """The panel that leads from nothing to three curves side by side."""
    preset = next((preset for preset in data.presets() if preset.id == QUICKSTART), None)
    if preset is None:
        return
    experiment = preset.config
    mine = [info for info in infos if info.experiment and info.experiment_name == experiment.name and not info.example]
    newest = [info for info in mine if info.experiment == mine[0].experiment]
    watching = any(info.live for info in newest)
    with st.container(border=True):
        left, right = st.columns([5, 2], gap="large", vertical_alignment="center")
        with left:
            st.subheader(preset.title, anchor=False)
            st.markdown(inert_markdown(preset.summary))
            if experiment.look_for:
                st.markdown(f"**What to look for.** {inert_markdown(experiment.look_for)}")
        with right:
            seconds = data.seconds_for(experiment)
            takes = f"About {duration(seconds)} on this machine" if seconds else "A few minutes"
            if watching:
                urls.link("live", "**Watch it live**", icon=":material/monitor_heart:", experiment=newest[0].experiment)
            st.button(
                "Start another" if watching else "Start the Quick start",
                type="secondary" if watching else "primary",
                icon=":material/play_arrow:",
                key="quickstart",
                width="stretch",
                on_click=actions.start,
                args=(experiment,),
            )
            runs_ = count(len(experiment.methods) * len(experiment.seeds), "run")
            st.caption(f"{takes}: {runs_} of {experiment.run.steps} steps, one after the other, no network.")
            urls.link("launch", "Change its settings", icon=":material/tune:", preset=QUICKSTART)


def _look_first(infos: list[RunInfo]) -> None:
    """What recorded runs can tell at once; out of the way of a reader who has runs of their own."""
    shipped = [info for info in infos if info.example]
    if not shipped:
        return
    if any(not info.example for info in infos):
        place = st.expander("Three questions to recorded runs", icon=":material/travel_explore:")
    else:
        place = st.container(border=True)
        place.subheader("Or look at recorded runs first", anchor=False)
    with place:
        examples.show_questions(shipped)


def _presets() -> None:
    """The other configs to start from."""
    others = [preset for preset in data.presets() if preset.id != QUICKSTART]
    if not others:
        return
    with st.expander(f"{count(len(others), 'other preset')} to start from", icon=":material/menu_book:"):
        for preset in others:
            with st.container(horizontal=True, gap="small", vertical_alignment="center"):
                st.markdown(f"**{inert_markdown(preset.title)}.** {inert_markdown(preset.summary)}", width="stretch")
                urls.link("launch", "Open in Launch", icon=":material/tune:", preset=preset.id)


def _filter(infos: list[RunInfo]) -> str:
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        st.subheader("Runs", anchor=False, width="content")
        if sum(not info.example for info in infos) < FIND_FROM and not urls.param("find"):
            return ""
        return st.text_input(
            "Find", placeholder="Find by name, method, model, state or id", label_visibility="collapsed",
            **urls.bound("find", urls.param("find", "")),
        )  # fmt: skip


def _list(find: str, busy: bool) -> None:
    actions.show_flash()
    infos = data.runs()
    if busy and not any(info.live for info in infos):
        st.rerun()
    own, shipped = ([info for info in infos if info.example == example] for example in (False, True))
    if not own:
        widgets.empty_state(
            "No run yet. The Quick start above fills this list with three of them; **Launch** makes any other, and "
            "**Import** opens what another trainer wrote.",
            "launch",
            "Open Launch",
        )
    words = find.lower().split()
    found, recorded = (
        [info for info in some if all(word in _haystack(info) for word in words)] for some in (own, shipped)
    )
    if infos and not found and not recorded:
        st.markdown(f"None of the {count(len(infos), 'run')} matches “{inert_markdown(find)}”.")
        return
    families = _families(found)
    shown = urls.int_param("show", PAGE, low=1) or PAGE
    _cards(families[:shown], own)
    if len(families) > shown:
        st.button(
            f"Show {min(PAGE, len(families) - shown)} more of {len(families)}",
            key="more", on_click=urls.set_params, kwargs={"show": shown + PAGE},
        )  # fmt: skip
    if recorded:
        title = f"{count(len(recorded), 'recorded example')}: real runs, to look at and to compare with"
        with st.expander(title, icon=":material/inventory_2:", expanded=bool(words) or not own):
            _cards(_families(recorded), shipped)


def _families(infos: list[RunInfo]) -> list[list[RunInfo]]:
    """The runs of each experiment, and each lone run by itself."""
    return [list(family) for _, family in groupby(_together(infos), key=lambda info: info.experiment or info.id)]


def _cards(families: list[list[RunInfo]], everyone: list[RunInfo]) -> None:
    """A card for each family; `everyone` are the runs that the filter chose from."""
    sizes = Counter(info.experiment for info in everyone)
    for family in families:
        with st.container(border=True, gap="small"):
            if family[0].experiment:
                _experiment(family, sizes[family[0].experiment])
            for info in family:
                _row(info)


def _together(infos: list[RunInfo]) -> list[RunInfo]:
    """Runs of an experiment next to each other and in the order they run, experiments by their newest run."""
    place: dict[str, int] = {}
    for i, info in enumerate(infos):
        place.setdefault(info.experiment or info.id, i)
    return sorted(infos, key=lambda info: (place[info.experiment or info.id], info.created, info.id))


def _haystack(info: RunInfo) -> str:
    return " ".join(
        (
            info.id,
            info.name,
            info.method,
            info.label,
            info.model,
            info.state,
            info.experiment_name,
            info.experiment or "",
            "imported" if info.imported else "",
        )
    ).lower()


def _experiment(family: list[RunInfo], size: int) -> None:
    """The head of an experiment: its name, where its curves are, what can be done to all of it.

    `size` is how many runs it has, those that the filter hides included.
    """
    first = family[0]
    live = [info for info in family if info.live]
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(
            f"**{inert_markdown(first.experiment_name or first.experiment)}** · {count(len(family), 'run')}"
            + ("" if first.example else f" · {age(min(info.created for info in family))}"),
            width="stretch",
        )
        whole = (
            {"experiment": first.experiment} if size > 1 else {"run": first.id}
        )  # Compare lists no experiment of one
        urls.link("live", "All curves", icon=":material/monitor_heart:", experiment=first.experiment)
        urls.link("compare", "Compare", icon=":material/stacked_line_chart:", **whole)
        if first.example:
            return
        with st.popover("", icon=":material/more_vert:", type="tertiary", help="Stop or delete all of them"):
            key = first.experiment
            if live:
                st.button(
                    f"Stop {count(len(live), 'run')}", key=f"stop-all:{key}", icon=":material/stop_circle:",
                    on_click=actions.stop_all, args=(live,), type="tertiary",
                )  # fmt: skip
            else:
                _delete_button(family, f"Delete {count(len(family), 'run')} …", f"delete-all:{key}")
            st.caption(inert_markdown(first.experiment or ""))


def _row(info: RunInfo) -> None:
    """One run: who, how far, how well, and where to look at it."""
    name, progress, numbers, links = st.columns([4, 4, 2, 4], gap="small", vertical_alignment="center")
    badges = "".join(f" :gray-badge[{word}]" for word, there in _badges(info) if there)
    about = f"{inert_markdown(info.label)} · {inert_markdown(info.model)}"
    about += "" if info.example else f" · {age(info.created)}"
    name.markdown(f"**{inert_markdown(info.name)}**{badges}  \n:small[:gray[{about}]]")
    progress.progress(
        min(1.0, info.step / info.total) if info.total else 0.0, text=" · ".join(widgets.state_words(info))
    )
    numbers.markdown(
        f":small[reward **{number(info.reward)}**]  \n:small[pass@1 **{number(info.pass_at_1)}**]"
        if info.step
        else ":small[:gray[no step yet]]"
    )
    with links.container(horizontal=True, gap="small", vertical_alignment="center"):
        urls.link("live", "Live", run=info.id)
        urls.link("tokens", "Tokens", run=info.id)
        urls.link("whatif", "What if…", run=info.id)
        with st.popover("", icon=":material/more_vert:", type="tertiary", help="What can be done with it"):
            _menu(info)
    if info.imported:
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            lacks = lacking(info)
            st.caption(told(info), help=f"Not in its files: {lacks}" if lacks else None)
            urls.link("imports", "What was taken", run=info.id)
    if info.error:
        st.markdown(f":red[:material/error: {inert_markdown(info.error)}]")


def _badges(info: RunInfo) -> list[tuple[str, bool]]:
    return [("example", info.example), ("imported", info.imported), ("sealed", info.sealed)]


def _menu(info: RunInfo) -> None:
    if info.live:
        st.button(
            "Stop", key=f"stop:{info.id}", icon=":material/stop_circle:", type="tertiary", on_click=actions.stop,
            args=(info,), disabled=info.state == "stopping", help="After the current step; it can be resumed",
        )  # fmt: skip
    if actions.can_resume(info):
        st.button(
            "Resume", key=f"resume:{info.id}", icon=":material/play_circle:", type="tertiary", on_click=actions.resume,
            args=(info,), help="From its last checkpoint, as if it had never stopped",
        )  # fmt: skip
    if actions.can_extend(info):
        key = f"extend-to:{info.id}"
        st.number_input(
            "Extend to (steps)", min_value=info.total + 1, max_value=1_000_000, value=info.total + 100, step=10,
            key=key, help="Schedules given as a part of the run keep their original length",
        )  # fmt: skip
        st.button("Extend", key=f"extend:{info.id}", icon=":material/fast_forward:", on_click=actions.extend,
                  args=(info, key), type="tertiary")  # fmt: skip
    adapter_download.button(info, "adapter")
    bundle_download.button(info, "bundle")
    if not info.imported:
        urls.link("launch", "Use its settings in Launch", icon=":material/tune:", **{"from": info.id})
    if not info.live and not info.example:
        _delete_button([info], "Delete …", f"delete:{info.id}")
    st.code(visible(f"python -m core show {info.id}{runs_option(data.root())}"), language=None)
    st.caption(inert_markdown(info.path))


def _delete_button(infos: list[RunInfo], label: str, key: str) -> None:
    ids = [info.id for info in infos]
    st.button(label, key=key, icon=":material/delete:", type="tertiary", on_click=_ask_to_delete, args=(ids,))
    if _DELETE in st.session_state:
        st.rerun()  # the whole page, which asks: the list redraws itself and would take the question with it


def _ask_to_delete(ids: list[str]) -> None:
    st.session_state[_DELETE] = ids


if __name__ == "__main__":
    page()
