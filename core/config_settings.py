"""The parts of a run's settings, each a mapping of its own in YAML; `core.config` puts them together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from core.advantage import flat_params
from core.config_yaml import numbers

Positive = Annotated[int, Field(ge=1, le=10**9)]
Natural = Annotated[int, Field(ge=0, le=10**9)]


class Settings(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _true_is_no_number(cls, data: Any) -> Any:
        for name, value in data.items() if isinstance(data, dict) else ():
            annotation = cls.model_fields[name].annotation if name in cls.model_fields else None
            if isinstance(value, bool) and {int, float} & {annotation, *get_args(annotation)}:
                raise ValueError(f"{name} must be a number, but is {str(value).lower()}")
        return data


class MethodSettings(Settings):
    """A recipe of `core.advantage`, with what the user changed about it."""

    name: str = "grpo"
    base: str | None = None
    """Another base rule under the recipe's weights: `dapo` under ADORA, say. None keeps the recipe's own."""
    also: tuple[str, ...] = ()
    """Recipes whose weights multiply in too: `a3po` with `also: [adora_amplify]`."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Parameters of the recipe; `weight.parameter` where two weights share a parameter's name."""
    mass_matched: bool = False
    """Scale each step's advantages so that their sum, as the loss weighs it, is the base rule's: the control for "is it
    only a larger learning rate?"."""

    @field_validator("set", mode="before")
    @classmethod
    def _numbers(cls, value: Any) -> Any:
        return flat_params(numbers(value)) if isinstance(value, Mapping) else value


class LossSettings(Settings):
    """What to change about the recipe's loss; None keeps the recipe's value."""

    objective: Literal["clip", "ratio", "gspo", "cispo", "reinforce"] | None = None
    aggregation: Literal["token_mean", "sequence_mean", "fixed_length"] | None = None
    clip_low: Annotated[float, Field(ge=0, le=1)] | None = None
    clip_high: Annotated[float, Field(ge=0, le=1e6)] | None = None
    dual_clip: Annotated[float, Field(ge=1, le=1e6)] | None = None
    kl: Annotated[float, Field(ge=0, le=1e6)] | None = None


StopString = Annotated[str, Field(min_length=1, max_length=200)]


class SamplingSettings(Settings):
    temperature: Annotated[float, Field(gt=0, le=5)] = 1.0
    max_new_tokens: Annotated[int, Field(ge=1, le=1_048_576)] = 72
    stop: Annotated[tuple[StopString, ...], Field(max_length=16)] = ()
    """Strings that end a response, with the token that completes one. That token is part of the response's tokens and
    text, so verifiers read it, and the response is not cut off (`truncated` is false). Special tokens are no text, but
    one whose name is given here ends a response too."""

    @field_validator("stop", mode="before")
    @classmethod
    def _one_is_a_list(cls, value: Any) -> Any:
        return (value,) if isinstance(value, str) else value


class OverlongSettings(Settings):
    """DAPO's soft penalty on responses that come near the length limit (`core.tasks.overlong`).

    It is part of the reward: answers that are all right or all wrong are told apart where one of them runs too long.
    """

    buffer: Natural = 0
    """Tokens before `sampling.max_new_tokens` over which the penalty grows from 0 to `factor`; 0: no penalty."""
    factor: Annotated[float, Field(gt=0, le=1000)] = 1.0
    """What a response at the limit loses of its reward."""


class LoraSettings(Settings):
    r: Annotated[int, Field(ge=1, le=1024)] = 16
    alpha: Annotated[float, Field(gt=0)] = 32
    dropout: Annotated[float, Field(ge=0, lt=1)] = 0.0
    targets: str | tuple[str, ...] = "all-linear"

    @field_validator("targets")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if not value or not all(value):
            raise ValueError("name at least one linear layer, or write all-linear")
        return (value,) if isinstance(value, str) and value.isidentifier() else value


class OptimizerSettings(Settings):
    name: Literal["adamw", "sgd"] = "adamw"
    lr: Annotated[float, Field(gt=0, le=1)] = 1e-3
    warmup_steps: Natural = 0
    """Optimizer steps over which the learning rate rises linearly from 0."""
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    weight_decay: Annotated[float, Field(ge=0)] = 0.0
    max_grad_norm: Annotated[float, Field(gt=0)] | None = 1.0
    """Gradients are scaled down to this norm; None leaves them."""


class UpdateSettings(Settings):
    minibatches: Positive = 1
    """Optimizer steps a pass over the step's rollouts; each takes whole groups."""
    epochs: Positive = 1


class TisSettings(Settings):
    """Truncated importance sampling, where the engine that sampled and the trainer give other log-probs."""

    cap: Annotated[float, Field(ge=1, le=1e6)] | None = 2.0
    """A token's policy term is multiplied by exp(trainer - sampler), but at most by this; None: no correction."""
    gap: Annotated[float, Field(gt=0, le=100)] = 0.1
    """Nats between the two log-probs beyond which a token counts as far apart, in the metrics alone."""


class DynamicSamplingSettings(Settings):
    enabled: bool | None = None
    """None keeps the recipe's choice (on for DAPO and what builds on it)."""
    max_refills: Annotated[int, Field(ge=0, le=64)] = 4
    """Rounds of fresh prompts for dropped groups; then the step trains on what there is."""


class EvaluateSettings(Settings):
    every: Natural = 10
    """Steps between evaluations on held-out prompts; 0 turns them off. The last policy is always evaluated then."""
    prompts: Annotated[int, Field(ge=1, le=10_000)] = 64
    rollouts: Annotated[int, Field(ge=1, le=1024)] = 8
    k: Positive = 8
    greedy: bool = True
    probes: Natural = 4
    """Fixed held-out prompts whose rollouts and tokens are stored at every evaluation."""


class RecordSettings(Settings):
    after_update: Literal["all", "probe", "off"] = "all"
    """Log-probs of the same tokens after the update: what the step did to each token."""
    reference: bool = False
    """Log-probs under the base model; always recorded with a KL coefficient above 0."""
    proxy_min_p: Annotated[float, Field(gt=0, le=1)] | None = None
    """Log-probs under the policy without its tokens below this share of the likeliest one's probability, so that Lp-Reg
    can be asked of the stored rollouts; None: not recorded. A run that trains with Lp-Reg records its own."""

    @field_validator("after_update", mode="before")
    @classmethod
    def _off(cls, value: Any) -> Any:
        return "off" if value is False else value  # YAML reads a bare off as false


class LogSettings(Settings):
    """Live curves elsewhere, by tools that have to be installed; the lab's own store does not need them."""

    tensorboard: bool = False
    wandb: bool = False
    trackio: bool = False
    project: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")] = "advantage-lab"
    """The project that Weights & Biases and trackio file the run under."""


class CheckpointSettings(Settings):
    every: Positive | None = None
    """Steps between checkpoints; None: every step for the embedded model, every 10 elsewhere."""
    keep: Positive = 2
    exact: bool = True
    """Refuse to resume on another machine, thread count, torch or engine, where rounding differs; false goes on."""


class VllmSettings(Settings):
    """What the vLLM engine may take of the machine, where it samples."""

    gpu_share: Annotated[float, Field(gt=0, lt=1)] = 0.4
    """Of the GPU's memory, for vLLM's weights and cache; the trainer needs the rest."""
    kv_cache_gb: Annotated[float, Field(gt=0, le=4096)] = 2.0
    """Of the key-value cache in the machine's memory, on a CPU."""
    eager: bool | None = None
    """Without compilation and CUDA graphs: starts faster, samples slower. None: so on a CPU alone."""
