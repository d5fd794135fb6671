"""The settings of a run and of an experiment. No torch here: pages and the command line read and check configs with it.

Every error is a `ConfigError` with one sentence that names the field, raised before anything is created.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, ValidationError, ValidationInfo, field_validator, model_validator

from core.advantage import AdvantageError, Method, build
from core.advantage.registry import BASES
from core.config_errors import ConfigError, sentence
from core.config_settings import (
    CheckpointSettings,
    DynamicSamplingSettings,
    EvaluateSettings,
    LogSettings,
    LoraSettings,
    LossSettings,
    MethodSettings,
    OptimizerSettings,
    OverlongSettings,
    Positive,
    RecordSettings,
    SamplingSettings,
    Settings,
    TisSettings,
    UpdateSettings,
    VllmSettings,
)
from core.config_tasks import TaskSettings
from core.config_yaml import NOT_A_MAPPING, PLURALS, as_yaml, override, read_yaml

MOST_RUNS = 256
"""Of an experiment: each is a process that waits in its device's line."""
METHODS_APART = "methods apart"
"""The context in which a run's settings are checked without a method, since the experiment names several."""

__all__ = [
    "ConfigError", "ExperimentConfig", "MethodSettings", "RunConfig", "dump", "load", "override", "parse", "parse_run",
    "read_run", "renamed",
]  # fmt: skip


class RunConfig(Settings):
    """One run, complete: the same config gives the same run."""

    name: Annotated[str, Field(max_length=120)] | None = None
    experiment: str | None = None
    """The experiment that this run belongs to, if any."""
    imported: bool = False
    """The run came from elsewhere: it can be looked at, not started from a page."""
    model: Annotated[str, Field(min_length=1)] = "embedded"
    system_prompt: Annotated[str, Field(max_length=20_000)] | None = None
    """What a chat model is told before every prompt; None: nothing but what its own template says, "" not even that."""
    task: TaskSettings = TaskSettings()
    method: MethodSettings = MethodSettings()
    loss: LossSettings = LossSettings()
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    steps: Annotated[int, Field(ge=1, le=1_000_000)] = 100
    schedule_steps: Positive | None = None
    """The N of schedules given as a fraction of the run; None: `steps`. Extending a run keeps the original N."""
    prompts_per_step: Positive = 8
    group_size: Positive = 8
    sampling: SamplingSettings = SamplingSettings()
    overlong: OverlongSettings = OverlongSettings()
    correct_threshold: Annotated[float, Field(ge=0, le=1)] = 0.5
    polarity_by: Literal["correct", "sign"] = "correct"
    lora: LoraSettings = LoraSettings()
    optimizer: OptimizerSettings = OptimizerSettings()
    updates: UpdateSettings = UpdateSettings()
    tis: TisSettings = TisSettings()
    dynamic_sampling: DynamicSamplingSettings = DynamicSamplingSettings()
    evaluate: EvaluateSettings = EvaluateSettings()
    record: RecordSettings = RecordSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    log_to: LogSettings = LogSettings()
    engine: Literal["auto", "transformers", "vllm"] = "auto"
    """What samples; auto: vllm on a GPU where it is installed, but not for the embedded model, else transformers."""
    vllm: VllmSettings = VllmSettings()
    device: Literal["auto", "cpu", "cuda"] = "auto"
    precision: Literal["float32", "bfloat16"] = "float32"
    gradient_checkpointing: bool = False
    """Keep each layer's input alone and compute the rest again in the backward pass: less memory, a third slower, and
    several times where it takes the place of the packed pass (float32 models of the Llama family)."""
    batch_tokens: Annotated[int, Field(ge=64, le=10**7)] | None = None
    """Padded tokens of a training micro-batch at most; None: 16384, fewer where the vocabulary is large. Fewer need
    less memory; the gradient is the same but for rounding."""
    processes: Annotated[int, Field(ge=1, le=64)] = 1
    """Processes that train the run together, each with whole groups of a step: one a GPU, or several on a CPU."""
    threads: Annotated[int, Field(ge=1, le=1024)] | None = None
    """CPU threads of each process; None: one for the embedded model (a second gains little, and one gives the same
    numbers on machines with any number of cores), else all cores, shared out among the processes."""

    @field_validator("method", mode="before")
    @classmethod
    def _method_by_name(cls, value: Any) -> Any:
        return {"name": value} if isinstance(value, str) else value

    @model_validator(mode="after")
    def _possible(self) -> RunConfig:
        if self.prompts_per_step > self.task.pool_size:
            raise ValueError(
                f"prompts_per_step is {self.prompts_per_step}, but task.pool_size is {self.task.pool_size}: "
                "a step cannot hold more prompts than the pool"
            )
        if self.processes > self.prompts_per_step:
            raise ValueError(
                f"processes is {self.processes}, but prompts_per_step is {self.prompts_per_step}: each process needs a "
                "prompt of its own, lower it"
            )
        if self.prompts_per_step % self.updates.minibatches:
            raise ValueError(
                f"prompts_per_step ({self.prompts_per_step}) does not divide into updates.minibatches "
                f"({self.updates.minibatches}): choose a divisor, minibatches take whole groups"
            )
        if self.evaluate.every and self.evaluate.k > self.evaluate.rollouts:
            raise ValueError(
                f"evaluate.k is {self.evaluate.k}, but evaluate.rollouts is {self.evaluate.rollouts}: "
                "pass@k needs at least k rollouts a prompt"
            )
        if self.evaluate.every and self.evaluate.probes > self.evaluate.prompts:
            raise ValueError(
                f"evaluate.probes is {self.evaluate.probes}, but evaluate.prompts is {self.evaluate.prompts}: "
                "probes are the first of the held-out prompts"
            )
        if self.overlong.buffer > self.sampling.max_new_tokens:
            raise ValueError(
                f"overlong.buffer is {self.overlong.buffer}, but sampling.max_new_tokens is "
                f"{self.sampling.max_new_tokens}: the penalty grows over the last tokens of the longest response"
            )
        return self

    @model_validator(mode="after")
    def _trainable(self, info: ValidationInfo) -> RunConfig:
        if info.context == METHODS_APART:
            return self
        try:
            method = self.build_method()
        except AdvantageError as error:
            raise ValueError(f"method: {error}") from error
        own, recorded = self.proxy_min_p, self.record.proxy_min_p
        if recorded is not None and own != recorded:
            raise ValueError(
                f"record.proxy_min_p is {recorded}, but lp_reg.min_p is {own} and decides: leave record.proxy_min_p out"
            )
        base = BASES[method.base.name]
        least = max(2 if base.compares else 1, base.least_group(method.base.params))
        if self.group_size < least:
            raise ValueError(
                f"group_size is {self.group_size}, but {method.label} compares a rollout with its group and needs "
                f"{least} or more: raise group_size" + (", or lower k" if "k" in method.base.params else "")
            )
        return self

    def build_method(self) -> Method:
        """The composition that this run trains with, the loss overrides applied."""
        method = self.method
        loss = self.loss.model_dump(exclude_none=True)
        return build(
            method.name,
            base=method.base,
            also=method.also,
            params=method.set,
            loss=loss,
            dynamic_sampling=self.dynamic_sampling.enabled,
            mass_matched=method.mass_matched,
        )

    @property
    def proxy_min_p(self) -> float | None:
        """The min-p of the filtered policy whose log-probs the run records: Lp-Reg's own, else `record.proxy_min_p`."""
        rules = self.build_method().weights
        return next((rule.params["min_p"] for rule in rules if "min_p" in rule.params), self.record.proxy_min_p)

    @property
    def cpu_threads(self) -> int | None:
        """The threads to set; None leaves torch's own choice."""
        return self.threads or (1 if self.model == "embedded" else None)

    @property
    def checkpoint_every(self) -> int:
        return self.checkpoint.every or (1 if self.model == "embedded" else 10)


class ExperimentConfig(Settings):
    """Methods x seeds over one setting; expands to ordinary runs that queue on the device, interleaved."""

    name: str
    methods: tuple[MethodSettings, ...]
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**31)], ...]
    look_for: str = ""
    """What a reader should watch in the curves; pages show it beside the experiment."""
    run: RunConfig
    """The setting that all its runs share."""

    @field_validator("methods", mode="before")
    @classmethod
    def _methods_by_name(cls, value: Any) -> Any:
        if isinstance(value, str | Mapping):
            value = [value]
        if isinstance(value, Iterable):
            return tuple({"name": item} if isinstance(item, str) else item for item in value)
        return value

    @model_validator(mode="after")
    def _distinct(self) -> ExperimentConfig:
        for field, values in (("methods", [m.model_dump_json() for m in self.methods]), ("seeds", self.seeds)):
            if not values:
                raise ValueError(f"{field} is empty: name at least one")
            if len(set(values)) < len(values):
                raise ValueError(f"{field} names the same one twice")
        if (several := len(self.methods) * len(self.seeds)) > MOST_RUNS:
            raise ValueError(f"methods x seeds are {several} runs: at most {MOST_RUNS} make an experiment")
        return self

    def expand(self, experiment_id: str | None) -> list[RunConfig]:
        """The runs, seeds outermost, so that every method has one finished run before any has two."""
        several = len(self.methods) * len(self.seeds) > 1
        labels = self.labels
        runs = []
        for seed in self.seeds:
            for method, label in zip(self.methods, labels, strict=True):
                if labels.count(label) > 1:
                    label += "".join(f", {key} {value}" for key, value in method.set.items())
                changes = {
                    "method": method.model_dump(),
                    "seed": seed,
                    "experiment": experiment_id if several else None,
                }
                changes["name"] = (f"{label}, seed {seed}" if several else (self.name or label))[:120]
                runs.append(parse_run({**self.run.model_dump(), **changes}))
        return runs

    @property
    def labels(self) -> list[str]:
        """What its methods are called, in order. Raises ConfigError for an impossible one."""
        return [self._label(method) for method in self.methods]

    def name_of(self, changed: ExperimentConfig) -> str:
        """What `changed`, made from this one, is called unless somebody says: a name speaks of its own methods, so
        others go by theirs. Other parameters make no other method.
        """
        return self.name if changed.labels == self.labels else ", ".join(dict.fromkeys(changed.labels))[:120]

    def _label(self, method: MethodSettings) -> str:
        try:
            return self.run.model_copy(update={"method": method}).build_method().label
        except AdvantageError as error:
            raise ConfigError(f"method: {error}") from error


def parse_run(data: Mapping[str, Any]) -> RunConfig:
    """Check one run's settings. Raises ConfigError."""
    return _validate(RunConfig, data)


def parse(data: Mapping[str, Any]) -> ExperimentConfig:
    """Check a preset: run settings, with `methods` and `seeds` in place of `method` and `seed` for an experiment."""
    if not isinstance(data, Mapping):
        raise ConfigError(NOT_A_MAPPING)
    data = copy.deepcopy(dict(data))
    for several, one in PLURALS.items():
        if several in data and one in data:
            raise ConfigError(f"give {one} or {several}, not both")
    shell: dict[str, Any] = {"name": data.pop("name", None) or "", "look_for": data.pop("look_for", None) or ""}
    for key in ("name", "look_for"):
        if not isinstance(shell[key], str):
            raise ConfigError(f"{key}: must be text, but is {shell[key]!r}")
    data["name"] = shell["name"] or None
    lists = {several: data.pop(several) for several in PLURALS if several in data}
    first = _validate(RunConfig, data, METHODS_APART if "methods" in lists else None)
    run = first.model_copy(update={"method": MethodSettings(), "seed": 0, "experiment": None})
    shell = {"methods": [first.method], "seeds": [first.seed], **shell, **lists, "run": run}
    experiment = _validate(ExperimentConfig, shell, METHODS_APART)
    experiment.expand(None)  # every method must be possible before any run exists
    return experiment


def load(path: str | Path, overrides: Iterable[str] = (), name: str | None = None) -> ExperimentConfig:
    """Read a YAML config; apply `a.b=value` overrides (values are YAML) and another name. Raises ConfigError."""
    own, overrides = read_yaml(Path(path)), list(overrides)
    data = override(own, overrides)
    if name is not None:
        data["name"] = name
    elif "name" not in {item.partition("=")[0].strip() for item in overrides}:
        data = renamed(own, data)
    return parse(data)


def renamed(own: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """The config `data`, changed from `own`, by the name that it then has; what is no config keeps its own."""
    try:
        return {**data, "name": parse(own).name_of(parse(data))}
    except ConfigError:
        return dict(data)


def read_run(path: str | Path) -> RunConfig:
    """Read the complete config of one run, as `dump` wrote it. Raises ConfigError."""
    return parse_run(read_yaml(Path(path)))


def dump(config: RunConfig | ExperimentConfig) -> str:
    """The config as YAML that `load` (of a run: `read_run`) reads back to an equal one; tuples become lists."""
    if isinstance(config, ExperimentConfig):
        run = json.loads(config.run.model_dump_json(exclude={"name", "method", "seed", "experiment", "imported"}))
        shell = json.loads(config.model_dump_json(exclude={"run"}))
        data = {**shell, **run}
    else:
        data = json.loads(config.model_dump_json())
    return as_yaml(data)


def _validate(model: type[BaseModel], data: Mapping[str, Any], context: str | None = None) -> Any:
    try:
        return model.model_validate(data, context=context)
    except ValidationError as error:
        raise ConfigError(sentence(error, model)) from error
