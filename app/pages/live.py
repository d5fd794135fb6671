"""Live: is it learning, and is anything wrong? One run in detail, or up to six on the same axes."""

from __future__ import annotations

import functools

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import actions, adapter_download, bundle_download, data, progress, urls, widgets
from app.guard import guarded
from app.inert import inert_markdown, visible
from app.palette import run_styles
from app.theme import theme
from app.views import live as views
from app.views import samples
from app.views.curves import CURVES, GAP, MORE, Panel, part_panels
from app.views.verdict import Finding, illnesses, verdict
from app.words import number
from core.config import ConfigError, read_run
from core.runs import RunInfo, log_tail
from core.store.queries.live import Follower, newest_rollouts, newest_with_tokens

MOST = 6
SMOOTHING = {"1": "off", "5": "5 steps", "15": "15 steps"}
LOG_LINES = 40
TONES = {
    "good": ":green[:material/trending_up:]", "warning": ":orange[:material/warning:]",
    "bad": ":red[:material/error:]", "neutral": ":gray[:material/info:]",
}  # fmt: skip


WHAT_TO_DO = """**What to do**

- **The gap grows**: give the engine the trainer's precision, and see that it has the newest adapter. If that is so,
  lower optimizer.lr: a policy that is pushed hard grows more sensitive to rounding.
- **The mean ratio leaves 1**: the engine did not draw from what it reports. Look for a temperature, top-k or top-p of
  its own. A very large gap does it too.
- **Many tokens reach the cap**: for them the correction is too small. Close the gap first; a higher tis.cap makes the
  gradient noisier.
"""


def page() -> None:
    widgets.page_header("Is it learning, and is anything wrong?")
    chosen, follows = _choose()
    if not chosen:
        return
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        smooth = int(
            widgets.choice("Smoothing", list(SMOOTHING), param="smooth", default="5", format_func=SMOOTHING.__getitem__)
        )
        more = widgets.switch(
            "More curves", param="more", help="pass@k, greedy, gradients, clipping, KL, silent groups, truncation, time"
        )
    busy = any(info.live for info in progress.family(chosen))
    body = functools.partial(_body, {info.id: info.state for info in chosen}, follows, busy, smooth, more)
    st.fragment(lambda: guarded(body), run_every=progress.EVERY_S if busy else None)()


def _choose() -> tuple[list[RunInfo], str | None]:
    """The runs to draw, and the experiment if the choice follows what runs in it (nobody has picked its runs)."""
    wanted = urls.param("experiment")
    family = progress.of_experiment(wanted)
    if wanted and not family:
        st.warning(f"There is no experiment “{inert_markdown(wanted[:80])}” in this folder.")
        urls.set_params(experiment=None)
    elif not wanted and not urls.param("run") and len(newest := progress.of_experiment(_newest())) > 1:
        wanted, family = newest[0].experiment, newest
        urls.set_params(experiment=wanted)
    if not family:
        return widgets.runs_picker(label="Runs on the same axes (up to six)", most=MOST), None
    ids = [info.id for info in family]
    picked = urls.list_param("run", ids)
    if len(picked) > MOST:
        st.warning(f"{len(picked)} runs are named in the address; the first {MOST} are shown.")
        picked = picked[:MOST]
    shown = picked or [info.id for info in progress.telling(family, MOST)]
    labels = widgets.run_labels(family)
    name = inert_markdown(family[0].experiment_name or wanted)
    chosen = st.multiselect(
        f"Runs of {name} on the same axes (up to six)", ids, format_func=labels.__getitem__, max_selections=MOST,
        placeholder="Pick one or more runs", **urls.bound("run", shown),
    )  # fmt: skip
    with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
        if len(family) > MOST and not picked:
            st.caption(
                f"{len(shown)} of its {len(family)} runs: those that train now, then the newest one of each method. "
                "Pick others above.",
                width="content",
            )
        urls.link("compare", f"Compare all {len(family)}", icon=":material/stacked_line_chart:", experiment=wanted)
    by_id = {info.id: info for info in family}
    return [by_id[key] for key in chosen], None if picked else wanted


def _newest() -> str | None:
    """The experiment of the newest run."""
    return next((info.experiment for info in data.runs()), None)


def _body(states: dict[str, str], follows: str | None, busy: bool, smooth: int, more: bool) -> None:
    """Everything below the choices; `states` are those of the runs when the choices were drawn."""
    actions.show_flash()
    ids = list(states)
    infos = [info for run in ids if (info := data.run(run))]
    if len(infos) < len(ids):
        st.warning("One of these runs has been deleted meanwhile.")
    family = progress.family(infos)
    ended = busy and not any(info.live for info in family)
    moved = follows and [info.id for info in progress.telling(progress.of_experiment(follows), MOST)] != ids
    changed = any(states[info.id] != info.state for info in infos)
    if ended or moved or changed:
        st.rerun()  # once more, without a timer, with the runs that train now, or with the signs of their states
    if busy and len(family) > 1 and family[0].experiment and len({info.experiment for info in family}) == 1:
        progress.show(family)
    colours = run_styles([info.method for info in infos], theme().dark)
    series = [
        views.Series(info.id, info.name, colour, dash, _follower(str(info.path)).read())
        for info, (colour, dash) in zip(infos, colours, strict=True)
    ]
    if len(infos) == 1:
        _one(infos[0], series[0])
    else:
        _several(infos, series)
    if not any(len(run.curves.metrics) or len(run.curves.evals) for run in series):
        widgets.empty_state(
            "No step is done yet. The first point of every curve appears with the first step, within seconds on the "
            "embedded model; larger models take a while to load."
        )
    else:
        if len(series) > 1:
            st.html(views.legend_html(series))
        _curves(series, smooth, [*CURVES, *part_panels(series), *(MORE if more else ())])
        _sampler_against_trainer(series, smooth)
    _details(infos, series)


def _one(info: RunInfo, run: views.Series) -> None:
    """A single run: verdict, progress, illnesses, the numbers now."""
    finding = _verdict(info, run)
    widgets.verdict(finding.sentence, finding.tone)
    _progress(info)
    if info.error:
        st.error(f"**Failed:** {inert_markdown(info.error)}", icon=":material/error:")
    if info.look_for:
        st.caption(f"**What to look for.** {inert_markdown(info.look_for)}")
    found = illnesses(run.curves, info.id, _max_new_tokens(info))
    for illness in found:
        if illness.tone != "neutral":
            with st.container(border=True):
                _illness(illness)
    if len(run.curves.metrics):
        _numbers_now(run)
    for illness in found:
        if illness.tone == "neutral":
            with st.expander("A loss of 0 is no error here", icon=":material/info:"):
                _illness(illness)


def _several(infos: list[RunInfo], series: list[views.Series]) -> None:
    """Several runs: one line each, then what is wrong with any of them."""
    look_for = {info.look_for for info in infos if info.look_for}
    if len(look_for) == 1:
        st.info(f"**What to look for.** {inert_markdown(look_for.pop())}", icon=":material/visibility:")
    for info, run in zip(infos, series, strict=True):
        with st.container(border=True, gap="xsmall"):
            left, right = st.columns([2, 3], gap="medium", vertical_alignment="center")
            with left:
                _progress(info, name=True)
            finding = _verdict(info, run)
            right.markdown(f"{TONES.get(finding.tone, '')} {finding.sentence}")
            if info.error:
                right.markdown(f":red[:material/error: **Failed:** {inert_markdown(info.error)}]")
    serious = [
        (info, illness)
        for info, run in zip(infos, series, strict=True)
        for illness in illnesses(run.curves, info.id, _max_new_tokens(info))
        if illness.tone != "neutral"
    ]
    if serious:
        whose = ", ".join(inert_markdown(info.name) for info in {info.id: info for info, _ in serious}.values())
        with st.expander(f"What looks wrong ({len(serious)}): {whose}", icon=":material/warning:"):
            for info, illness in serious:
                _illness(illness, prefix=f"{inert_markdown(info.name)}: ")


def _verdict(info: RunInfo, run: views.Series) -> Finding:
    if not len(run.curves.metrics) and data.ended(info):
        return Finding("neutral", "It ended before its first step was done.")
    if not len(run.curves.metrics) and info.state == "queued":
        return Finding("neutral", "Waiting for its turn: runs on one device go one after the other.")
    return verdict(run.curves, data.ended(info))


def _illness(illness: Finding, prefix: str = "") -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.markdown(f"{TONES.get(illness.tone, '')} {prefix}{illness.sentence}", width="stretch")
        if illness.page:
            urls.link(illness.page, illness.look, icon=":material/arrow_forward:", **illness.params)


def _progress(info: RunInfo, name: bool = False) -> None:
    """State, steps, pace and what is left; with it what can be done."""
    title = f"**{inert_markdown(info.name)}** · " if name else ""
    with st.container(horizontal=True, wrap=False, vertical_alignment="center", gap="small"):
        st.progress(
            min(1.0, info.step / info.total) if info.total else 0.0, text=title + " · ".join(widgets.state_words(info))
        )
        if info.live:
            st.button(
                "Stop", key=f"stop:{info.id}", icon=":material/stop_circle:", on_click=actions.stop, args=(info,),
                disabled=info.state == "stopping", help="Stops after the current step; it can be resumed",
            )  # fmt: skip
        elif actions.can_resume(info):
            st.button(
                "Resume", key=f"resume:{info.id}", icon=":material/play_circle:", on_click=actions.resume, args=(info,),
                help="Goes on from the last checkpoint as if it had never stopped",
            )  # fmt: skip
        if not info.live:
            adapter_download.button(info, "adapter")
            bundle_download.button(info, "bundle")


def _numbers_now(run: views.Series) -> None:
    """The newest values of one run, with the change since its first step."""
    metrics, evals = run.curves.metrics, run.curves.evals
    tiles = [
        ("held-out pass@1", evals, "pass_at_1", "", "normal"),
        ("training reward", metrics, "reward", "", "normal"),
        ("entropy", metrics, "entropy", "nats", "off"),
        ("response length", metrics, "length", "tokens", "off"),
        ("speed", metrics, "tokens_per_second", "tokens/s", "off"),
    ]
    with st.container(horizontal=True, gap="medium"):
        for label, table, column, unit, colour in tiles:
            values = table[column].dropna() if column in table else []
            if len(values):
                change = float(values.iloc[-1] - values.iloc[0])
                delta = (
                    number(change, signed=True).replace("−", "-")
                    if len(values) > 1 and column != "tokens_per_second"
                    else None
                )
                st.metric(
                    label, number(float(values.iloc[-1]), unit), delta, delta_color=colour, width="content",
                    delta_description=f"since step {int(table['step'].iloc[0])}" if delta else None,
                )  # fmt: skip


def _curves(series: list[views.Series], smooth: int, panels: list[Panel]) -> list[DeltaGenerator]:
    """The panels in two columns, which are returned for what else belongs there."""
    columns = st.columns(2, gap="medium")
    for i, panel in enumerate(panels):
        fig = panel.figure(series, theme(), smooth)
        with columns[i % 2]:
            if views.drawn(fig):
                frame = functools.partial(views.numbers, panel.lines(series, theme()))
                widgets.chart(fig, key=f"live:{panel.key}", how=panel.how, frame=frame)
            else:
                st.markdown(f"**{panel.title}**")
                st.caption(panel.absent)
    return columns


def _sampler_against_trainer(series: list[views.Series], smooth: int) -> None:
    """The gap between them where one was recorded, else why there is none."""
    trained = [run for run in series if len(run.curves.metrics)]
    if not trained:
        return
    if any(views.recorded(run, "gap_mean") for run in trained):
        st.markdown("**Sampler against trainer**")
        st.caption(
            "The engine that samples holds the same weights as the trainer, but computes them with other kernels or in "
            "another precision, so it draws from a slightly different policy. Training corrects for it token by token "
            "(unless tis.cap is empty); the smaller the gap, the less there is to correct."
        )
        _, beside = _curves(trained, smooth, list(GAP))
        beside.markdown(WHAT_TO_DO)
    elif all(views.one_model(run) for run in trained):
        st.caption(
            "**Sampler against trainer**: the sampler and the trainer are the same model here, so their log-probs are "
            "the same numbers and there is nothing to correct."
        )
    else:
        st.caption("**Sampler against trainer**: the gap between them was not recorded.")


def _details(infos: list[RunInfo], series: list[views.Series]) -> None:
    """Newest rollouts and the log, of the run or of one of them."""
    st.divider()
    by_id = {info.id: (info, run) for info, run in zip(infos, series, strict=True)}
    if len(infos) > 1:
        names = {key: visible(info.name) for key, (info, _) in by_id.items()}
        which = widgets.choice(
            "Newest rollouts and log of", list(by_id), param="detail", format_func=names.__getitem__, kind="select"
        )
    elif infos:
        which = infos[0].id
    else:
        return
    info, run = by_id[which]
    step = run.curves.last_step
    if step is not None:
        step = newest_with_tokens(data.lab(info), info.id, step)
        with st.container(horizontal=True, vertical_alignment="center", gap="medium"):
            st.markdown(f"**Newest rollouts** · step {step}", width="content")
            widgets.what_if(run=info.id, step=step, split="train")
        frame = newest_rollouts(data.lab(info), info.id, step)
        if len(frame):

            def address(group: int, rollout: int) -> str:
                return urls.href("tokens", run=info.id, step=step, group=group, rollout=rollout)

            st.html(samples.table(frame, theme(), address))
        else:
            st.caption("The rollouts of this step cannot be read at the moment.")
    with st.expander("Log", icon=":material/terminal:", expanded=info.state == "failed"):
        words = log_tail(info.path / "log.txt", lines=LOG_LINES)
        if words:
            st.code(visible(words), language=None, wrap_lines=True, height=320)
        else:
            st.caption("The log is empty so far.")


@st.cache_data(max_entries=64, show_spinner=False, ttl=60)
def _limit(path: str) -> int | None:
    try:
        return read_run(f"{path}/config.yaml").sampling.max_new_tokens
    except ConfigError:
        return None


def _max_new_tokens(info: RunInfo) -> int | None:
    return _limit(str(info.path))


@st.cache_resource(max_entries=64, show_spinner=False)
def _follower(path: str) -> Follower:
    return Follower(path)


if __name__ == "__main__":
    page()
