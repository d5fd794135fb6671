"""How much memory a run needs at its peak, from its config and its model's files alone: no torch, nothing is loaded.

Sampling and training follow one another in one process and use the same memory, so the peak is what is always there
plus the larger of the two. Every part is what the plain way takes at most (prompts not shared, no response that ends
early); faster ways need less.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

from core.config import ConfigError, RunConfig, VllmSettings
from core.engines.choose import engine_name
from core.limits import (
    BASE_BYTES,
    CACHE_BYTES,
    CACHE_GROWTH,
    CHUNK_LOGITS,
    PACKED_BYTES,
    PACKED_LONGEST,
    micro_batch_tokens,
)
from core.models.catalog import ModelInfo
from core.runs.hardware import Memory, gpu_memory, host_memory
from core.runs.locks import device_key
from core.tasks.base import Task

FLOAT = 4
"""Bytes of a float32: adapters, their optimizer and every log-prob are kept so in each precision."""
WIDTH = {"float32": 4, "bfloat16": 2}
"""Bytes of a base weight, and of a cached key or value."""

LIBRARIES_BYTES = 450 * 2**20
"""Python, torch and the tables of a run (measured: 400 MB resident with the embedded model loaded)."""
FAMILY = ("LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM")
"""What `core.engines.merged` knows."""

VLLM_LIBRARIES_BYTES = 1536 * 2**20
"""vLLM's process on a CPU before weights and cache. An allowance."""
CONTEXT_BYTES = 700 * 2**20
"""What CUDA takes before the first tensor: its context, the libraries' kernels and work space. An allowance."""

LOGIT_COPIES = 3
"""The logits as they come, in float32, and their softmax."""
SAMPLING_BYTES_PER_LOGIT = 12
"""A row's logits as they come, in float32, and once more in float32; what is drawn from them goes through in blocks."""

SHORT = 64
"""Characters of a prompt that may be a token each, as in a sum; prose has two or more a token."""
TEMPLATE_TOKENS = 64
"""For what a chat template puts around a prompt."""

When = Literal["always", "sampling", "training"]


@dataclass(frozen=True)
class Part:
    name: str  # in words
    bytes: int
    when: When = "always"


@dataclass(frozen=True)
class Plan:
    """What a run needs, part by part."""

    device: str  # cpu or cuda
    parts: tuple[Part, ...]

    @property
    def peak(self) -> When:
        """The phase that needs most beside what is always there."""
        return "training" if self.of("training") >= self.of("sampling") else "sampling"

    @property
    def total(self) -> int:
        """Bytes at the peak."""
        return self.of("always") + self.of(self.peak)

    @property
    def at_peak(self) -> tuple[Part, ...]:
        return tuple(part for part in self.parts if part.when in ("always", self.peak))

    def of(self, when: When) -> int:
        return sum(part.bytes for part in self.parts if part.when == when)


def plan(
    config: RunConfig, model: ModelInfo, prompt_tokens: int, device: str = "cpu", vllm_bytes: int | None = None
) -> Plan:
    """The parts of a run's memory on one device. `prompt_tokens` is the longest prompt's length.

    `vllm_bytes` are what a vLLM process keeps there all the time; None: the trainer's own model samples. Of several
    processes each has a GPU of its own, but on a CPU they share the machine.
    """
    adapter = adapter_parameters(config, model)
    copies = config.processes if device == "cpu" else 1
    merged = merged_bytes(config, model)
    parts = [
        Part("CUDA itself", CONTEXT_BYTES) if device == "cuda" else Part("Python and torch", LIBRARIES_BYTES),
        Part("model", model.parameters * WIDTH[config.precision]),
        Part("merged weights", merged),
        Part("adapter and gradient", 2 * FLOAT * adapter),
        Part("optimizer", moments(config) * FLOAT * adapter),
    ]
    if vllm_bytes is None:
        rows = sampled_rows(config, model, prompt_tokens)
        parts += [
            Part("key-value cache", rows * row_bytes(config, model, prompt_tokens), "sampling"),
            Part("logits", SAMPLING_BYTES_PER_LOGIT * model.vocab * rows, "sampling"),
        ]
    else:
        parts.append(Part("vLLM", vllm_bytes))
    parts += [
        Part("activations", activation_bytes(config, model, prompt_tokens), "training"),
        Part("logits", logit_bytes(config, model, prompt_tokens), "training"),
        Part("adapter copies", 2 * FLOAT * adapter, "training"),
    ]
    return Plan(device, tuple(replace(part, bytes=copies * part.bytes) for part in parts if part.bytes))


def vllm_bytes(config: RunConfig, model: ModelInfo, device: str, room: int) -> int:
    """What vLLM keeps: its share of a GPU with `room` bytes; on a CPU its cache, its float32 weights and itself."""
    if device == "cuda":
        return int(config.vllm.gpu_share * room)
    return int(config.vllm.kv_cache_gb * 2**30) + FLOAT * model.parameters + VLLM_LIBRARIES_BYTES


def moments(config: RunConfig) -> int:
    """Numbers that the optimizer keeps for each weight of the adapter."""
    return 2 if config.optimizer.name == "adamw" else 0


def adapter_parameters(config: RunConfig, model: ModelInfo) -> int:
    """LoRA's A (r, in) and B (out, r) on every targeted linear layer: r (in + out) each.

    Targets outside the layers (the head, embeddings) are those of a matrix (vocab, hidden).
    """
    targets = config.lora.targets
    if isinstance(targets, str):
        return config.lora.r * sum(sum(shape.sides) * shape.count for shape in model.linears)
    names = {target.rpartition(".")[2] for target in targets}
    inside = sum(sum(shape.sides) * shape.count for shape in model.linears if shape.name in names)
    outside = len(names - {shape.name for shape in model.linears}) * (model.vocab + model.hidden)
    return config.lora.r * (inside + outside)


def merged_bytes(config: RunConfig, model: ModelInfo) -> int:
    """The copies of the layers' weights with the adapter merged in, without it (up to `BASE_BYTES`), and of the head,
    that a float32 model of the Llama family samples and trains with."""
    if model.architecture not in FAMILY or config.precision != "float32":
        return 0
    layers = FLOAT * sum(shape.sides[0] * shape.sides[1] * shape.count for shape in model.linears)
    return layers * (2 if layers <= BASE_BYTES else 1) + FLOAT * model.vocab * model.hidden


def sampled_rows(config: RunConfig, model: ModelInfo, prompt_tokens: int) -> int:
    """Rollouts of the largest batch that the trainer's model samples: whole groups, as many as `CACHE_BYTES` holds and
    one at least, of a step's or of an evaluation's."""
    draws = [(_share(config, config.prompts_per_step), config.group_size)]
    if config.evaluate.every:
        draws.append((_share(config, config.evaluate.prompts), config.evaluate.rollouts))
    row = max(1, row_bytes(config, model, prompt_tokens))
    return max(size * min(groups, max(1, CACHE_BYTES // (row * size))) for groups, size in draws)


def row_bytes(config: RunConfig, model: ModelInfo, prompt_tokens: int) -> int:
    """The key-value cache of one rollout: 2 x layers x key-value heads x head size for each of its places.

    The places of a response grow by `CACHE_GROWTH`.
    """
    place = 2 * model.layers * model.kv_heads * model.head_size * WIDTH[config.precision]
    response = -(-config.sampling.max_new_tokens // CACHE_GROWTH) * CACHE_GROWTH
    return place * (prompt_tokens + response)


def activation_bytes(config: RunConfig, model: ModelInfo, prompt_tokens: int) -> int:
    """What a micro-batch's forward pass keeps for its backward pass, in float32.

    A token leaves about the inputs and outputs of all linear layers: an adapted layer's input is needed for the
    gradient of A, its output by the product, the activation or the attention that comes next. (PEFT keeps the inputs in
    float32 beside a bfloat16 model.) With gradient checkpointing it leaves each layer's input, and one layer's own.
    Measured on Llama and Qwen; GPT-2's older attention and activation keep twice as much. The packed pass of a float32
    model of the Llama family keeps less of a token, but the weights of its attention too, and ends its micro-batches at
    `PACKED_BYTES`.
    """
    token = sum(sum(shape.sides) * shape.count for shape in model.linears)
    if config.gradient_checkpointing:
        token = token // max(1, model.layers) + model.hidden * model.layers
    tokens = batch_tokens(config, model, prompt_tokens)
    row = prompt_tokens + config.sampling.max_new_tokens
    packs = merged_bytes(config, model) and not config.gradient_checkpointing and not config.lora.dropout
    if not packs or row > PACKED_LONGEST:
        return FLOAT * token * tokens
    queries = sum(shape.sides[0] * shape.count for shape in model.linears if shape.name == "q_proj")
    token += queries // max(1, model.head_size) * row
    return min(FLOAT * token * tokens, max(PACKED_BYTES, FLOAT * token * row))


def logit_bytes(config: RunConfig, model: ModelInfo, prompt_tokens: int) -> int:
    """The logits of a chunk of response tokens, in float32 and `LOGIT_COPIES` times, and each token's gradient."""
    response = config.sampling.max_new_tokens
    tokens = batch_tokens(config, model, prompt_tokens) * response // (prompt_tokens + response)
    return FLOAT * (LOGIT_COPIES * min(model.vocab * tokens, CHUNK_LOGITS) + model.hidden * tokens)


def batch_tokens(config: RunConfig, model: ModelInfo, prompt_tokens: int) -> int:
    """Tokens of the largest micro-batch: no more than the step has, and never less than one rollout."""
    row = prompt_tokens + config.sampling.max_new_tokens
    limit = max(row, micro_batch_tokens(model.vocab, config.batch_tokens))
    return min(limit, _share(config, config.prompts_per_step) * config.group_size * row)


def longest_prompt(config: RunConfig, model: ModelInfo, task: Task) -> int:
    """About how many tokens the task's longest prompts have, a chat template and a system prompt included; read off
    their characters."""
    prompts = [*task.train_pool(min(config.task.pool_size, 256), 0), *task.held_out(min(config.evaluate.prompts, 64))]
    characters = max((len(prompt.text) for prompt in prompts), default=0) + len(config.system_prompt or "")
    tokens = min(characters, SHORT + (characters - SHORT) // 2)
    return tokens + (TEMPLATE_TOKENS if model.chat_template else 0)


def plan_here(config: RunConfig, model: ModelInfo, task: Task) -> tuple[Plan, Memory | None]:
    """The run's plan on the device that it would take, and that device's memory; None where a card does not tell."""
    device = "cpu" if device_key(config.device) == "cpu" else "cuda"
    has = host_memory() if device == "cpu" else gpu_memory()
    vllm = None
    if engine_name(config, device) == "vllm":
        vllm = vllm_bytes(config, model, device, has.total if has else 0)
    return plan(config, model, longest_prompt(config, model, task), device, vllm), has


def check_fits(config: RunConfig, model: ModelInfo, task: Task) -> None:
    """Raises ConfigError, with the numbers and what would help, if the run cannot fit into the memory there is."""
    needed, has = plan_here(config, model, task)
    if small := _vllm_too_small(config, model, task, needed.device, has):
        raise ConfigError(small)
    if has is None or needed.total <= has.total:
        return

    def fits(changed: RunConfig) -> bool:
        total = plan_here(changed, model, task)[0].total
        return total <= has.total and not _vllm_too_small(changed, model, task, needed.device, has)

    largest = sorted(needed.at_peak, key=lambda part: -part.bytes)[:2]
    raise ConfigError(
        f"memory: the run needs about {gigabytes(needed.total)} ("
        + ", ".join(f"{part.name} {gigabytes(part.bytes)}" for part in largest)
        + f"), but {has.where} has {gigabytes(has.total)}: {_advice(config, needed, fits)}"
    )


def _vllm_too_small(config: RunConfig, model: ModelInfo, task: Task, device: str, has: Memory | None) -> str:
    """A sentence where what vLLM may take does not hold a rollout (on a GPU: and its weights), else ""."""
    if engine_name(config, device) != "vllm":
        return ""
    row = row_bytes(config, model, longest_prompt(config, model, task))
    if device == "cpu":
        row = row * FLOAT // WIDTH[config.precision]
        if row <= config.vllm.kv_cache_gb * 2**30:
            return ""
        return (
            f"vllm.kv_cache_gb is {config.vllm.kv_cache_gb:g}, but one rollout's keys and values may take "
            f"{row / 2**30:.2g}: raise it, or lower sampling.max_new_tokens"
        )
    least = model.parameters * WIDTH[config.precision] + row
    if has is None or least <= config.vllm.gpu_share * has.total:
        return ""
    return (
        f"vllm.gpu_share is {config.vllm.gpu_share:g}, {gigabytes(int(config.vllm.gpu_share * has.total))} of "
        f"{has.where}, but vLLM's weights and one rollout's cache take {gigabytes(least)}: raise it, or set "
        "precision: bfloat16 or engine: transformers"
    )


def gigabytes(size: int) -> str:
    """`812 MB`, `3.4 GB`: of 2^20 and 2^30 bytes, as nvidia-smi and the system's tools count."""
    return f"{size / 2**20:.0f} MB" if size < 0.95 * 2**30 else f"{size / 2**30:.1f} GB"


def _advice(config: RunConfig, needed: Plan, fits: Callable[[RunConfig], bool]) -> str:
    """The changes that would make it fit, each alone; or all together; or that none does."""
    shorter, fewer = max(1, config.sampling.max_new_tokens // 2), max(1, config.group_size // 2)
    crowded = max(needed.at_peak, key=lambda part: part.bytes).name == "key-value cache"
    vllm = engine_name(config, needed.device) == "vllm"
    share = "kv_cache_gb" if needed.device == "cpu" else "gpu_share"
    usual = VllmSettings.model_fields[share].default
    changes: dict[str, dict[str, Any]] = {
        "gradient_checkpointing to true": {"gradient_checkpointing": True},
        "batch_tokens to 2048": {"batch_tokens": min(config.batch_tokens or 2048, 2048)},
        "precision to bfloat16": {"precision": "bfloat16"},
        f"sampling.max_new_tokens to {shorter}": {
            "sampling": config.sampling.model_copy(update={"max_new_tokens": shorter})
        },
        f"group_size to {fewer}": {"group_size": fewer} if crowded else {},
        f"vllm.{share} to {usual:g}": (
            {"vllm": config.vllm.model_copy(update={share: usual})}
            if vllm and getattr(config.vllm, share) > usual
            else {}
        ),
        "engine to transformers": {"engine": "transformers"} if vllm else {},
    }
    changes = {
        words: change
        for words, change in changes.items()
        if any(getattr(config, name) != value for name, value in change.items())
    }
    helps = [words for words, change in changes.items() if fits(config.model_copy(update=change))]
    if helps:
        return f"set {', or '.join(helps)}"
    if fits(config.model_copy(update={key: value for change in changes.values() for key, value in change.items()})):
        *most, last = changes
        return f"set {', '.join(most)} and {last}, all of them"
    return "lower group_size and evaluate.rollouts" if crowded else "take a smaller model"


def _share(config: RunConfig, groups: int) -> int:
    """The groups of one of the run's processes."""
    return -(-groups // config.processes)
