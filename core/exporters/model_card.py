"""The model card of a trained adapter: what it is, how it was made, what came of it, and how it is loaded.

It leaves the machine, so no path of it is named: a local folder goes by its last name.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

import yaml

from core.config import RunConfig
from core.engines.choose import VLLM_RANKS
from core.models.catalog import EMBEDDED, describe
from core.models.packaged import PACKAGED
from core.store import StoreError, open_runs

NO_LORA_IN_VLLM = ("GPT2LMHeadModel",)
RUN_KEYS = ("name", "experiment", "imported", "device", "processes", "threads", "checkpoint")
"""Settings that say nothing about what was trained."""


def model_name(name: str) -> str:
    """A model as others know it: an id or a name of the lab as it is, a local folder by its last name."""
    if name == EMBEDDED or name in PACKAGED:
        return name
    path = Path(name).expanduser()
    local = path.is_absolute() or name.startswith((".", "~")) or "\\" in name or path.is_dir()
    return (_last_name(name) or "a local folder") if local else name


def card(run_dir: Path, config: RunConfig, made_with: Mapping[str, Any], merged: bool = False) -> str:
    """The card in Markdown, for the adapter or for the whole model with it `merged` in."""
    base = model_name(config.model)
    title = f"{config.build_method().label} on {base}"
    evals, done = _stored(run_dir)
    parts = [
        _front_matter(base, merged),
        f"# {_plain(title)}",
        _what(base, merged),
        "## Load it\n\n" + (_load_merged() if merged else _load(config, base)),
        _prompts(config),
        "## Results\n\n" + _results(evals, done, config),
        "## How it was trained\n\n" + _training(done, config, made_with),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def settings(config: RunConfig) -> dict[str, Any]:
    """The run's settings without those of its machine, and without folders: files and models by their last name."""
    data = json.loads(config.model_dump_json(exclude=set(RUN_KEYS)))
    data["model"] = model_name(config.model)
    return _without_folders(data)


def _without_folders(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {
        key: _last_name(item) if key == "path" and isinstance(item, str) else _without_folders(item)
        for key, item in value.items()
    }


def _last_name(path: str) -> str:
    return PurePath(path.replace("\\", "/")).name


def _front_matter(base: str, merged: bool) -> str:
    facts: dict[str, Any] = {"library_name": "transformers" if merged else "peft", "pipeline_tag": "text-generation"}
    if re.fullmatch(r"[\w.-]+/[\w.-]+", base):
        facts["base_model"] = base
    facts["tags"] = ["reinforcement-learning", "rlvr", *(() if merged else ("lora",))]
    return f"---\n{yaml.safe_dump(facts, sort_keys=False)}---"


def _what(base: str, merged: bool) -> str:
    what = (
        f"The model {_code(base)} with a LoRA adapter merged into its weights, in float32."
        if merged
        else f"A LoRA adapter for the model {_code(base)}, in float32."
    )
    where = ""
    if base == EMBEDDED:
        where = " That model ships with Advantage Lab, in its folder core/models/embedded."
    elif base in PACKAGED:
        package = PACKAGED[base]
        where = (
            f" That is the file {_code(package.file)} of the Python package {_code(package.distribution)}, which "
            f"Advantage Lab converts to safetensors, in its cache. The weights of {_code(package.origin)}, from which "
            "that file was rounded, are close to it but not the same: on them the adapter gives other numbers."
        )
    return (
        f"{what}{where} It was trained with Advantage Lab by reinforcement learning on rewards that a program checks. "
        "What is known of it is what this page says: it was looked at on held-out prompts of the one task it was "
        "trained on, and on nothing else."
    )


def _load(config: RunConfig, base: str) -> str:
    rank = next((size for size in VLLM_RANKS if size >= config.lora.r), None)
    peft = (
        "With [PEFT](https://huggingface.co/docs/peft); BASE is the base model's id or folder, FOLDER this folder:\n\n"
        "```python\nfrom peft import PeftModel\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        'base = AutoModelForCausalLM.from_pretrained(BASE, dtype="float32")\n'
        "model = PeftModel.from_pretrained(base, FOLDER)\n"
        "tokenizer = AutoTokenizer.from_pretrained(BASE)\n```\n\n"
    )
    if describe(config.model).architecture in NO_LORA_IN_VLLM or rank is None:
        return peft + "vLLM takes no such adapter; `python -m core export merged` makes a whole model of it for vLLM."
    return (
        f"{peft}With vLLM:\n\n```sh\nvllm serve BASE --enable-lora --max-lora-rank {rank} "
        "--lora-modules policy=FOLDER\n```"
    )


def _load_merged() -> str:
    return (
        "```python\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n\n"
        "model = AutoModelForCausalLM.from_pretrained(FOLDER)\ntokenizer = AutoTokenizer.from_pretrained(FOLDER)\n```"
    )


def _prompts(config: RunConfig) -> str:
    """How prompts and responses looked in training."""
    model = describe(config.model)
    lines = []
    if model.ready:
        lines.append(
            "Prompts went through the base model's chat template, as the user's message."
            if model.chat_template
            else "Prompts were read as they are, without a chat template."
        )
    lines.append(
        f"Responses were drawn at temperature {config.sampling.temperature:g} with at most "
        f"{config.sampling.max_new_tokens} tokens."
    )
    if config.sampling.stop:
        lines.append(f"They ended at: {', '.join(_code(json.dumps(text)) for text in config.sampling.stop)}.")
    if config.system_prompt is not None:
        lines.append(f"The system prompt was:\n\n{_block(config.system_prompt)}")
    return "## Prompts\n\n" + "\n".join(lines)


def _stored(run_dir: Path) -> tuple[list[dict[str, Any]], int]:
    """The evaluations on held-out prompts, as they are stored, and how many steps are."""
    try:
        with open_runs([run_dir]) as lab:
            evals = lab.rows(
                "SELECT step, prompts, rollouts, pass_at_1, k, pass_at_k, greedy, truncated_share FROM evals "
                "ORDER BY step"
            )
            return evals, lab.rows("SELECT count(*) AS steps FROM metrics")[0]["steps"]
    except (StoreError, OSError):
        return [], 0


def _results(evals: list[dict[str, Any]], done: int, config: RunConfig) -> str:
    """The first and the last of them, and whether the adapter as it is, after `done` steps, was evaluated at all."""
    if not evals:
        return "It was never evaluated on held-out prompts."
    shown = evals[:1] + (evals[-1:] if len(evals) > 1 else [])
    rows = [
        f"| {row['step']} | {_number(row['pass_at_1'])} | {_number(row['pass_at_k'])} | {_number(row['greedy'])} | "
        f"{_number(row['truncated_share'])} |"
        for row in shown
    ]
    last = shown[-1]
    later = ""
    if last["step"] < done:
        later = f"\n\nThis adapter is that of {done} steps; it was not evaluated itself, the run ended before."
    head = f"| after steps | pass@1 | pass@{last['k']} | greedy | cut off |\n|--:|--:|--:|--:|--:|"
    return (
        f"On {last['prompts']} held-out prompts of the task, {last['rollouts']} responses each, one training run (seed "
        f"{config.seed}):\n\n" + "\n".join([head, *rows]) + later
    )


def _training(done: int, config: RunConfig, made_with: Mapping[str, Any]) -> str:
    method = config.build_method()
    rollouts = config.prompts_per_step * config.group_size
    targets = config.lora.targets
    layers = "all linear layers" if targets == "all-linear" else _code(json.dumps(targets))
    lines = [
        f"- Task: {_code(config.task.name)}",
        f"- Method: {_plain(method.label)}",
        f"- Steps: {done} of {config.steps}, each with {config.prompts_per_step} prompts × {config.group_size} "
        f"responses ({rollouts * done} in all, refills not counted)",
        f"- LoRA: rank {config.lora.r}, alpha {config.lora.alpha:g}, on {layers}",
        f"- Optimizer: {config.optimizer.name}, learning rate {config.optimizer.lr:g}",
        f"- Base weights in {config.precision}, seed {config.seed}",
        f"- Versions: {_versions(made_with)}",
    ]
    text = yaml.safe_dump(settings(config), sort_keys=False, allow_unicode=True, width=100)
    return "\n".join(lines) + "\n\nAll settings, as the lab's config has them:\n\n" + _block(text, "yaml")


def _versions(made_with: Mapping[str, Any]) -> str:
    names = {"lab": "Advantage Lab", "torch": "torch", "transformers": "transformers", "peft": "PEFT"}
    found = [f"{title} {_plain(str(made_with[key])[:40])}" for key, title in names.items() if key in made_with]
    return ", ".join(found) or "not recorded"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _plain(text: str) -> str:
    """Text of a config on one line of Markdown, its marks escaped."""
    return re.sub(r"([\\`*_\[\]<>#|!$&])", r"\\\1", " ".join(text.split()))


def _code(text: str) -> str:
    """The same as code, in more backticks than it has itself."""
    text = " ".join(text.split())
    fence = "`" * (1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if "`" in text else f"{fence}{text}{fence}"


def _block(text: str, language: str = "text") -> str:
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
