"""Making run folders: every check first, then each folder appears whole, in one move."""

from __future__ import annotations

import secrets
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from core.config import ConfigError, ExperimentConfig, RunConfig, dump
from core.engines.choose import check_engine
from core.runs import machine
from core.runs.folders import RunError, new_id, slug
from core.runs.locks import DeviceQueues, device_key, device_keys, has_cuda
from core.runs.memory import FLOAT, adapter_parameters, check_fits, moments
from core.runs.sinks import check_sinks
from core.runs.status import Status, write_status
from core.runs.team import check_gpus
from core.tasks.base import POOL_SEED, TaskError

if TYPE_CHECKING:
    from core.models.catalog import ModelInfo
    from core.tasks.base import Task

BYTES_PER_TOKEN = 140
"""Of a stored token: about 65 in the live steps and 4 more with a correction between sampler and trainer, as much again
while a run is sealed (measured on embedded runs)."""

BYTES_PER_RUN, BYTES_PER_STEP = 3 * 2**20, 45 * 2**10
"""Of an almost empty store, and of the files of a step beside its tokens (measured)."""

SPARE_BYTES = 100 * 2**20
"""For what is not counted: logs, the machine's own needs."""

LOOKED_AT = 1024
"""Prompts whose lengths are looked at before a run; the longest in characters are counted in tokens. Of a file, all; of
a task that makes them, the first `FEW`, since some take a while."""
FEW = 256

OUTSIDE_LAYERS = ("lm_head", "embed_tokens", "embed_out", "wte", "wpe")
"""What an adapter may be put on besides the linear layers that a catalog entry lists."""


def create_runs(root: Path, experiment: ExperimentConfig, *, code: bool = False) -> list[Path]:
    """Make the folders of all runs of an experiment, queued but not started, in the order they should run.

    Raises ConfigError or RunError, before any folder is made, if one of them could not run here. `code`: it may name
    Python of the user's own, as only the command line allows.
    """
    experiment = _located(experiment)
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    configs = experiment.expand(f"{stamp}-{slug(experiment.name)}-{secrets.token_hex(2)}")
    check_machine(experiment.run, code=code)
    check_locks(experiment.run)
    check_space(root, configs)
    try:
        root.mkdir(parents=True, exist_ok=True)
        return [_create(root, config, experiment) for config in configs]
    except OSError as error:
        raise RunError(f"{root}: cannot make a run folder there ({error.strerror or error})") from error


def check_machine(config: RunConfig, *, code: bool = False) -> None:
    """Model, task and device must be there. Raises ConfigError with the field that names what is missing.

    Unless `code`, a config that names Python of the user's own is refused, and nothing of it is imported.
    """
    if config.imported:
        raise ConfigError("imported: this config came from elsewhere; read it, then set imported to false to train it")
    from core.models.catalog import require
    from core.tasks import get_task

    try:
        model = require(config.model)
    except (ValueError, OSError) as error:
        raise ConfigError(_naming("model", error)) from error
    try:
        task = get_task(config.task, trusted=code)
        _check_prompts(config, task)
    except (ValueError, OSError) as error:
        raise ConfigError(_naming("task", error)) from error
    _check_fit(config, model)
    _check_room(config, model, task)
    if config.device == "cuda" and not has_cuda():
        raise ConfigError("device is cuda, but this machine shows no NVIDIA GPU (or torch is built without): use auto")
    try:
        check_gpus(config)
    except RunError as error:
        raise ConfigError(str(error)) from error
    check_sinks(config)
    check_engine(config, "cpu" if device_key(config.device) == "cpu" else "cuda")
    check_fits(config, model, task)


def _check_prompts(config: RunConfig, task: Task) -> None:
    """There must be enough prompts for a step, and one to evaluate on. Raises TaskError, ConfigError."""
    there = len({prompt.id for prompt in task.train_pool(config.prompts_per_step, POOL_SEED)})
    if there < config.prompts_per_step:
        raise ConfigError(
            f"prompts_per_step is {config.prompts_per_step}, but the task {task.name!r} has only {there} distinct "
            "training prompts: lower it"
        )
    if config.evaluate.every and not task.held_out(1):
        raise ConfigError(
            f"evaluate.every is {config.evaluate.every}, but the task {task.name!r} has no held-out prompt: raise "
            "task.file.held_out, or set evaluate.every to 0"
        )


def _located(experiment: ExperimentConfig) -> ExperimentConfig:
    """The same with the whole path of its dataset file: its process starts in another folder."""
    task = experiment.run.task
    if not task.file.path:
        return experiment
    from core.tasks.file import resolved

    try:
        there = task.file.model_copy(update={"path": str(resolved(task.file.path))})
    except TaskError as error:
        raise ConfigError(str(error)) from error
    run = experiment.run.model_copy(update={"task": task.model_copy(update={"file": there})})
    return experiment.model_copy(update={"run": run})


def _check_fit(config: RunConfig, model: ModelInfo) -> None:
    """Settings that the model's own files rule out. Raises ConfigError."""
    if 0 < model.context <= config.sampling.max_new_tokens:
        raise ConfigError(
            f"sampling.max_new_tokens is {config.sampling.max_new_tokens}, but the model {config.model} reads at most "
            f"{model.context} tokens, the prompt among them: lower it"
        )
    if config.system_prompt is not None and not model.chat_template:
        raise ConfigError(
            f"system_prompt: the model {config.model} has no chat template, so there is no place for one: leave it "
            "out, or write it into the prompts"
        )
    if isinstance(config.lora.targets, tuple) and model.lora_targets:
        for target in config.lora.targets:
            if target.rpartition(".")[2] not in (*model.lora_targets, *OUTSIDE_LAYERS):
                raise ConfigError(
                    f"lora.targets: the model {config.model} has no linear layer {target!r}; choose among "
                    f"{', '.join(model.lora_targets)}, or write all-linear"
                )


def _check_room(config: RunConfig, model: ModelInfo, task: Task) -> None:
    """Raise ConfigError for a prompt that leaves the response no room, as far as can be told at once.

    Of a large pool only so many prompts are looked at, and what a chat template adds is not counted; the engine does.
    """
    if not model.context or model.path is None or model.tokenizer != "fast":
        return
    from tokenizers import Tokenizer

    path = model.path / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # tokenizers has no narrower one
        words = " ".join(str(error).split())[:200]
        raise ConfigError(f"model: {path} is not a tokenizer, or damaged: {words}") from error
    from core.tasks import FILE, generators

    name, most = config.task.name, LOOKED_AT
    most = FEW if name in generators.KINDS else config.task.pool_size if name == FILE else most
    prompts = [*task.train_pool(min(config.task.pool_size, most), POOL_SEED)]
    if config.evaluate.every:
        prompts += task.held_out(min(config.evaluate.prompts, most))
    texts = sorted((prompt.text for prompt in prompts), key=len)[-64:]
    lengths = [len(encoding.ids) for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]
    used, text = max(zip(lengths, texts, strict=True))
    if used + config.sampling.max_new_tokens > model.context:
        advice = f"lower it to {model.context - used}" if used < model.context else "take a model that reads more"
        raise ConfigError(
            f"sampling.max_new_tokens is {config.sampling.max_new_tokens}, but the model {config.model} reads at most "
            f"{model.context} tokens and the prompt {text[:60]!r} takes {used}: {advice}"
        )


def check_locks(config: RunConfig) -> None:
    """Raise RunError if runs could not queue for the device, since their locks have no place to lie."""
    try:
        DeviceQueues(device_keys(config.device, config.processes))
    except OSError as error:
        what = f"{error.filename or 'the folder of locks'}: {error.strerror or error}"
        raise RunError(f"{what}; set ADVANTAGE_LAB_LOCKS to a folder of yours that can be written") from error


def check_space(root: Path, configs: list[RunConfig]) -> None:
    """Raise RunError if the disk could not hold the runs' tokens at their full length, and their checkpoints."""
    needed = SPARE_BYTES + sum(map(disk_bytes, configs))
    there = next(path for path in (root, *root.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if free < needed:
        runs = "the run needs" if len(configs) == 1 else f"{len(configs)} such runs need"
        raise RunError(
            f"not enough disk space in {root}: {runs} up to {_megabytes(needed)}, "
            f"{_megabytes(free)} are free; free some, or choose another folder of runs"
        )


def disk_bytes(config: RunConfig) -> int:
    """What a run's folder takes at most, while it runs and after."""
    return BYTES_PER_RUN + config.steps * BYTES_PER_STEP + bytes_needed(config) + weight_bytes(config)


def bytes_needed(config: RunConfig) -> int:
    """An upper bound on what a run's tokens take on disk."""
    per_group = config.group_size * config.sampling.max_new_tokens
    rounds = 1 + config.dynamic_sampling.max_refills if config.build_method().dynamic_sampling else 1
    per_step = min(config.prompts_per_step * rounds, config.task.pool_size) * per_group
    probes = config.evaluate.probes * per_group
    evaluations = config.steps // config.evaluate.every + 1 if config.evaluate.every else 0
    return BYTES_PER_TOKEN * (config.steps * per_step + evaluations * probes)


def weight_bytes(config: RunConfig) -> int:
    """What a run's adapter and its checkpoints take at most: one more than are kept, while one is written or after a
    stop. 0 where the model cannot be looked at."""
    from core.models.catalog import describe

    model = describe(config.model)
    if not model.ready:
        return 0
    adapter = FLOAT * adapter_parameters(config, model)
    written = -(-config.steps // config.checkpoint_every)
    return adapter + (min(config.checkpoint.keep, written) + 1) * adapter * (1 + moments(config))


def _create(root: Path, config: RunConfig, experiment: ExperimentConfig) -> Path:
    while True:
        path = root / new_id(config.method.name, config.seed)
        beside = root / f".new-{path.name}"
        try:
            beside.mkdir()
            if path.exists():
                beside.rmdir()
                continue
            break
        except FileExistsError:
            continue
    now = time.time()
    (beside / "config.yaml").write_text(dump(config), encoding="utf-8")
    status = Status(
        total=config.steps,
        created=now,
        heartbeat=now,
        host=machine.host(),
        boot_id=machine.boot_id(),
        label=config.build_method().label,
        experiment_name=experiment.name if config.experiment else "",
        look_for=experiment.look_for,
    )
    write_status(beside, status)
    beside.rename(path)
    return path


def _naming(field: str, error: Exception) -> str:
    """The error's sentence, with the field in front unless it names one already."""
    text = " ".join(str(error).split())
    return text if text.startswith(field) or isinstance(error, ConfigError) else f"{field}: {text}"


def _megabytes(size: int) -> str:
    return f"{size / 2**20:.0f} MB" if size < 10 * 2**30 else f"{size / 2**30:.1f} GB"
