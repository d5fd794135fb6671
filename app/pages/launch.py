"""Launch: what will this run do, how long will it take, and what is the command for it?"""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from app import actions, data, forms, memory_plan, method_forms, model_forms, task_forms, urls, widgets
from app.draft import Draft, read_draft
from app.inert import inert_markdown, visible
from app.views.setting import Setting
from app.views.settings import ADVANCED, CURVES, ESSENTIAL, all_settings
from app.words import count, duration, number, size
from core.advantage import Method
from core.advantage.registry import BASES, WEIGHTS
from core.config import ConfigError, ExperimentConfig, RunConfig, dump
from core.runs import RunError, command_for
from core.runs.create import check_machine, check_space, disk_bytes
from core.runs.locks import visible_gpus
from core.runs.sinks import PACKAGES, installed
from core.tasks import FILE, get_task
from core.tasks.base import POOL_SEED
from core.tasks.embedded import is_own_wording

LARGER_LR = 1e-4
"""A learning rate for models larger than the embedded one."""
ASKED = 64
"""Prompts of a file that tell whether the embedded model can read it."""
LABELS = {what.path: what.label for what in all_settings()}
"""What the page calls the settings that a sentence may name."""


def page() -> None:
    actions.follow_start()
    widgets.page_header("What will this run do, how long will it take, and what is the command for it?")
    draft = read_draft()
    form, summary = st.columns([3, 2], gap="large")
    with form:
        _start(draft)
        _what(draft)
        _advanced(draft)
    with summary:
        _summary(draft)


def _start(draft: Draft) -> None:
    """Where the settings come from."""
    presets = {preset.id: preset for preset in data.presets()}
    run_id = urls.param("from")
    if run_id or not presets:
        with st.container(horizontal=True, vertical_alignment="center"):
            st.markdown(f"Starting from **{draft.title}**.", width="stretch")
            if presets:
                urls.link("launch", "Start from a preset", icon=":material/menu_book:")
        return
    now = urls.param("preset")
    now = now if now in presets else next((key for key in ("grpo", *presets) if key in presets), None)
    key = "url:preset"
    st.session_state[key] = now
    st.selectbox(
        "Start from", list(presets), key=key, format_func=lambda name: visible(presets[name].title),
        on_change=lambda: urls.set_params(preset=st.session_state[key], set=None),
        help="A preset fills every setting; what you change below is kept in the address.",
    )  # fmt: skip
    if now:
        st.caption(inert_markdown(presets[now].summary))


def _what(draft: Draft) -> None:
    """Model, task, methods, seeds and the settings that matter."""
    _name(draft)
    model_forms.show(draft)
    task_forms.show(draft)
    method_forms.methods(draft)
    _seeds(draft)
    _settings(draft, ESSENTIAL)


def _settings(draft: Draft, group: Sequence[Setting]) -> None:
    columns = st.columns(2)
    for i, what in enumerate(group):
        with columns[i % 2]:
            forms.setting(draft, what)


def _name(draft: Draft) -> None:
    key = "draft:name"
    st.session_state[key] = draft.name
    st.text_input("Name", key=key, max_chars=120, on_change=lambda: draft.write("name", st.session_state[key]),
                  help="How the runs are found again.")  # fmt: skip


def _seeds(draft: Draft) -> None:
    now = draft.value("seeds")
    chosen = [str(seed) for seed in (now if isinstance(now, list) else [now])]
    key = "draft:seeds"
    st.session_state[key] = chosen

    def write() -> None:
        draft.write(
            "seeds", [int(seed) if seed.isdecimal() else seed for seed in map(str.strip, st.session_state[key])]
        )

    st.multiselect(
        "Seeds", list(dict.fromkeys([*map(str, range(5)), *chosen])), key=key, accept_new_options=True, on_change=write,
        help="Each seed repeats every method. A claim about methods needs three seeds or more.",
    )  # fmt: skip
    with st.container(horizontal=True, gap="small"):
        for several in (3, 5):
            st.button(
                f"{several} seeds", key=f"seeds:{several}", type="tertiary", icon=":material/casino:",
                on_click=draft.write, args=("seeds", list(range(several))),
                help=f"Seeds 0 to {several - 1}: every method is trained {several} times",
            )  # fmt: skip


def _advanced(draft: Draft) -> None:
    with st.expander("Advanced: every other setting", icon=":material/tune:"):
        for title, group in ADVANCED.items():
            st.markdown(f"**{title}**")
            _settings(draft, group)
            if title == CURVES:
                _missing_sinks()


def _missing_sinks() -> None:
    """What would have to be installed first."""
    missing = [command for name, command in PACKAGES.items() if not installed(name)]
    if missing:
        st.caption("Not installed here yet: " + ", ".join(f"`{command}`" for command in missing))


def _summary(draft: Draft) -> None:
    """The verdict on the draft, and the button."""
    experiment, problem = _checked(draft)
    with st.container(border=True):
        if experiment is None or problem:
            st.subheader("Not ready to start", anchor=False)
            st.error(task_forms.to_choose(draft) or _in_labels(problem), icon=":material/error:")
        else:
            _promise(experiment)
            for hint in _hints(experiment):
                st.warning(hint, icon=":material/lightbulb:")
            _offer_rate(draft, experiment)
            _offer_gpus(draft, experiment)
        runs = len(experiment.methods) * len(experiment.seeds) if experiment else 1
        st.button(
            f"Start {count(runs, 'run')}" if runs > 1 else "Start",
            type="primary", icon=":material/play_arrow:", width="stretch", key="start", disabled=bool(problem),
            on_click=actions.start, args=(experiment,),
        )  # fmt: skip
        if draft.changes:
            st.button(
                f"Undo {count(len(draft.changes), 'change')}", key="undo", type="tertiary", icon=":material/undo:",
                on_click=urls.set_params, kwargs={"set": None},
            )  # fmt: skip
    if experiment:
        memory_plan.show(experiment.run)
    if experiment is None or problem:
        return
    st.markdown("**The same from a terminal**")
    st.code(visible(command_for(experiment, data.root())), language="bash", wrap_lines=True)
    text = dump(experiment)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.markdown("**The config**", width="stretch")
        st.download_button("YAML", text.encode("utf-8", "replace"), "experiment.yaml", "application/yaml", key="yaml",
                           type="tertiary", icon=":material/download:", on_click="ignore")  # fmt: skip
    with st.expander("Show the YAML"):
        st.code(visible(text), language="yaml", height=420)


def _in_labels(problem: str) -> str:
    """A sentence about a setting, as Markdown, by the name that the page gives it."""
    for sign in (": ", " is "):
        path, _, rest = problem.partition(sign)
        if path in LABELS:
            return f"**{LABELS[path]}** ({inert_markdown(path)}){sign}{inert_markdown(rest)}"
    return inert_markdown(problem)


def _checked(draft: Draft) -> tuple[ExperimentConfig | None, str]:
    """The experiment if there is one, and what is wrong with it, or with starting it here, in one sentence."""
    experiment = None
    try:
        experiment = draft.experiment()
        check_machine(experiment.run)
        check_space(data.root(), experiment.expand(None))
    except (ConfigError, RunError) as error:
        return experiment, str(error)
    return experiment, ""


def _promise(experiment: ExperimentConfig) -> None:
    """What will happen, in numbers."""
    run, runs = experiment.run, experiment.expand(None)
    seconds = data.seconds_for(experiment)
    several = len(runs) > 1
    st.subheader(f"About {duration(seconds)}" if seconds else "Time: not known yet", anchor=False)
    if not seconds:
        st.caption("Nothing like it has been run here; after the first steps Live shows what is left.")
    rollouts = run.prompts_per_step * run.group_size
    lines = [
        f"{count(len(runs), 'run')}" + (": " if several else " of ")
        + (f"{count(len(experiment.methods), 'method')} × {count(len(experiment.seeds), 'seed')}, one after the other"
           if several else inert_markdown(runs[0].build_method().label)),
        f"{count(run.steps, 'step')} of {run.prompts_per_step} prompts × {run.group_size} rollouts: "
        f"{rollouts * run.steps:,} rollouts".replace(",", "\u202f") + (" a run" if several else ""),
        f"evaluated every {count(run.evaluate.every, 'step')} on {task_forms.held_out(run)} held-out prompts"
        if run.evaluate.every else "never evaluated on held-out prompts",
        *([f"trained by {run.processes} processes together"] if run.processes > 1 else []),
        f"at most {size(sum(map(disk_bytes, runs)))} on disk, checkpoints included",
    ]  # fmt: skip
    st.markdown("\n".join(f"- {line}" for line in lines))
    if len(experiment.methods) > 1:
        _rounds(experiment, seconds)


def _rounds(experiment: ExperimentConfig, seconds: float | None) -> None:
    """When methods can first be compared, and what so many seeds can say."""
    seeds = len(experiment.seeds)
    first = f"after about {duration(seconds / seeds)} " if seconds and seeds > 1 else ""
    when = f"Seed by seed: {first}every method has one finished run, which Compare shows at once. " if seeds > 1 else ""
    few = {1: "One seed cannot tell a better method from luck", 2: "Two seeds give a very wide interval"}.get(seeds)
    st.caption(when + (f"{few}: take three or more to claim a difference." if few else ""))


def _too_fast(run: RunConfig) -> bool:
    """Whether the learning rate is the embedded model's, and the model another."""
    return run.model != "embedded" and run.optimizer.lr > 5e-4


def _offer_rate(draft: Draft, experiment: ExperimentConfig) -> None:
    if _too_fast(experiment.run):
        st.button(
            f"Set the learning rate to {number(LARGER_LR)}", key="lr", type="tertiary", icon=":material/speed:",
            on_click=draft.write, args=("optimizer.lr", LARGER_LR), help="For models larger than the embedded one",
        )  # fmt: skip


def _offer_gpus(draft: Draft, experiment: ExperimentConfig) -> None:
    """Where there are several GPUs and the run takes one: a process on each."""
    run = experiment.run
    processes = min(len(visible_gpus()), run.prompts_per_step)
    if run.device == "cpu" or run.processes > 1 or processes < 2:
        return
    st.button(
        f"Train on {processes} GPUs", key="gpus", type="tertiary", icon=":material/memory:",
        on_click=draft.write, args=("processes", processes),
        help=f"Each of {processes} processes samples and trains on its part of a step's prompts, on a GPU of its own.",
    )  # fmt: skip


def _hints(experiment: ExperimentConfig) -> list[str]:
    """What will work and is probably not meant."""
    run = experiment.run
    methods = [run.model_copy(update={"method": method}).build_method() for method in experiment.methods]
    hints = []
    if run.optimizer.lr > 0.02:
        hints.append(f"A learning rate of {number(run.optimizer.lr)} is unusually large; runs often break above 0.01.")
    if run.group_size < 3 and any(BASES[method.base.name].compares for method in methods):
        hints.append(
            f"With {run.group_size} rollouts a prompt most groups are all right or all wrong and teach nothing."
        )
    if run.model == "embedded" and _foreign(run):
        hints.append(
            "The embedded model has seen sums of the lab's own wording and nothing else: of other prompts it gets "
            "nearly all wrong, so that there is little to learn from. Take smollm2-135m, or a model of yours."
        )
    if _too_fast(run):
        hints.append(
            f"{number(run.optimizer.lr)} suits the tiny embedded model; larger models want a tenth of it or less."
        )
    if run.updates.minibatches * run.updates.epochs == 1:
        hints += [words for method in methods if (words := _idle(method))]
    if not run.evaluate.every:
        hints.append("Without evaluation there is no pass@1: only the noisy training reward says whether it learned.")
    return hints


def _foreign(run: RunConfig) -> bool:
    """Whether the run asks mostly for what the embedded model has never seen; a file may hold the lab's own sums."""
    if run.task.name != FILE:
        return run.task.name != "embedded"
    prompts = get_task(run.task).train_pool(ASKED, POOL_SEED)
    return 2 * sum(is_own_wording(prompt.text) for prompt in prompts) < len(prompts)


def _idle(method: Method) -> str | None:
    """What of a method has nothing to work on with one update a step, since the policy has not moved by then."""
    penalised = any(WEIGHTS[rule.name].penalty == "absolute" for rule in method.weights)
    if not penalised and method.loss.objective not in ("gspo", "cispo"):
        return None
    nothing = "nothing is penalised" if penalised else "nothing can clip"
    return (
        f"{method.label} with one update a step: every ratio is 1 and {nothing}. Choose 2 minibatches a step or more, "
        "under Advanced, Updates."
    )


if __name__ == "__main__":
    page()
