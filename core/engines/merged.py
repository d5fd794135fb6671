"""The weights of a Llama-like model as fast float32 arithmetic wants them: joined, transposed, adapters added.

Linear layers that read the same input are one matrix, laid out (in, out): on a CPU a product with a few dozen rows then
runs up to 1.5 times faster than with the library's (out, in). The LoRA adapters are added once for every change of the
policy, not in every product. Float32 only: adding a small change to a low-precision copy would drift.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

import torch
from peft.tuners.lora import Linear as LoraLinear
from transformers import LlamaForCausalLM, MistralForCausalLM, PreTrainedModel, Qwen2ForCausalLM, Qwen3ForCausalLM

from core.limits import BASE_BYTES

FAMILY = (LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM, Qwen3ForCausalLM)
HEAD_COLUMNS = 512
"""Width of the output layer's blocks: one block stays in a core's cache."""


@dataclass(frozen=True)
class Lora:
    """One adapter of one linear layer, whose weight it changes by scale * b @ a."""

    a: torch.Tensor  # (r, in)
    b: torch.Tensor  # (out, r)
    scale: float


@dataclass(frozen=True)
class Part:
    """A linear layer of the model, with or without LoRA, and its columns in the joined matrix."""

    module: torch.nn.Module
    columns: slice

    @property
    def linear(self) -> torch.nn.Linear:
        return getattr(self.module, "base_layer", self.module)

    def adapters(self) -> list[Lora]:
        """The active ones: none while adapters are switched off."""
        module = self.module
        if not isinstance(module, LoraLinear) or module.disable_adapters:
            return []
        return [
            Lora(module.lora_A[name].weight, module.lora_B[name].weight, module.scaling[name])
            for name in module.active_adapters
            if name in module.lora_A
        ]


class Projection:
    """Linear layers that read the same input, as one: (n, in) -> (n, out), their outputs side by side."""

    weight: torch.Tensor  # (in, out), adapters added; refreshed in place
    bias: torch.Tensor | None  # (out,)

    def __init__(self, modules: Sequence[torch.nn.Module], keep_base: bool):
        ends = torch.tensor([getattr(m, "base_layer", m).out_features for m in modules]).cumsum(0).tolist()
        self.parts = [Part(m, slice(a, b)) for m, a, b in zip(modules, [0, *ends], ends, strict=False)]
        linears = [part.linear for part in self.parts]
        self.weight = torch.cat([linear.weight.detach().t() for linear in linears], dim=1).contiguous()
        self.bias = _joined_bias(linears)
        self._weights = [self.weight[:, part.columns] for part in self.parts]
        self._biases = [None if self.bias is None else self.bias[part.columns] for part in self.parts]
        self._base = self.weight.clone() if keep_base and any(isinstance(m, LoraLinear) for m in modules) else None

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.mm(x, self.weight) if self.bias is None else torch.addmm(self.bias, x, self.weight)

    def onto(self, residual: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """residual + self(x), in one operation where there is no bias."""
        return torch.addmm(residual, x, self.weight) if self.bias is None else residual + self(x)

    @property
    def nbytes(self) -> int:
        return self.weight.nbytes + (0 if self._base is None else self._base.nbytes)

    def apart(self, x: torch.Tensor) -> list[torch.Tensor]:
        """The same, each layer's output by itself: (n, in) -> (n, out of the part)."""
        pairs = zip(self._weights, self._biases, strict=True)
        return [x @ weight if bias is None else torch.addmm(bias, x, weight) for weight, bias in pairs]

    def merge(self) -> None:
        """Add the adapters that are active now to the base weights."""
        for weight, part in zip(self._weights, self.parts, strict=True):
            weight.copy_(part.linear.weight.t() if self._base is None else self._base[:, part.columns])
            for lora in part.adapters():
                weight.addmm_(lora.a.t(), lora.b.t(), alpha=lora.scale)


@dataclass(frozen=True)
class Layer:
    """E hidden size, H heads and K key-value heads of size D, F feed-forward size."""

    attention_norm: torch.Tensor  # (E,)
    qkv: Projection  # E -> (H + 2 K) D
    query_norm: torch.Tensor | None  # (D,) of models that normalise each head's queries and keys (Qwen3)
    key_norm: torch.Tensor | None  # (D,)
    out: Projection  # H D -> E
    mlp_norm: torch.Tensor  # (E,)
    gate_up: Projection  # E -> 2 F
    down: Projection  # F -> E

    @property
    def projections(self) -> tuple[Projection, ...]:
        return self.qkv, self.out, self.gate_up, self.down


class MergedLlama:
    """A supported model's weights; call `refresh` before each use. The base weights must not change or move.

    The matrices are a copy of the layers' weights (the joined base is another, up to BASE_BYTES), and the head of the
    output layer's; norms and the embedding are the model's own. `merged` gives the one copy of a model.
    """

    def __init__(self, model: PreTrainedModel):
        config = model.config
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        self.eps: float = config.rms_norm_eps
        linears = [linear for layer in model.model.layers for linear in _linears(layer)]
        weights = [getattr(linear, "base_layer", linear).weight for linear in linears]
        keep_base = sum(weight.nbytes for weight in weights) <= BASE_BYTES
        with torch.inference_mode(False), torch.no_grad():
            self.layers = [_join(layer, keep_base) for layer in model.model.layers]
            self.embedding = model.model.embed_tokens.weight.detach()  # (V, E)
            self.norm = model.model.norm.weight.detach()  # (E,)
            head = model.lm_head.weight.detach()  # (V, E)
            columns = HEAD_COLUMNS if head.device.type == "cpu" else len(head)
            self.head = [block.t().contiguous() for block in head.split(columns)]
        self._scales: list[float] = []  # of the adapters when they were last merged,
        self._values: torch.Tensor | None = None  # and all their numbers
        self.refresh()

    def refresh(self) -> None:
        """Make the weights those of the model as it is now, whether its adapters are on or off.

        The adapters' numbers are compared with those last merged: fused optimizers change them without torch's count
        of a tensor's changes going up.
        """
        projections = [projection for layer in self.layers for projection in layer.projections]
        adapters = [[lora for part in projection.parts for lora in part.adapters()] for projection in projections]
        scales = [lora.scale for some in adapters for lora in some]
        with torch.inference_mode(False), torch.no_grad():
            numbers = [matrix.flatten() for some in adapters for lora in some for matrix in (lora.a, lora.b)]
            values = torch.cat([self.norm.new_empty(0), *numbers])
            if self._values is not None and scales == self._scales and torch.equal(values, self._values):
                return
            self._scales, self._values = scales, values
            for projection in projections:
                projection.merge()


_MERGED: WeakKeyDictionary[PreTrainedModel, MergedLlama] = WeakKeyDictionary()


def merged(model: PreTrainedModel) -> MergedLlama:
    """The weights of a supported model as it is now: one copy, whoever asks, made at the first call."""
    if model not in _MERGED:
        _MERGED[model] = MergedLlama(model)
    else:
        _MERGED[model].refresh()
    return _MERGED[model]


def supports(model: PreTrainedModel) -> bool:
    """Whether `MergedLlama` and the arithmetic around it are this model's: its class, its options and its adapters."""
    if type(model) not in FAMILY or model.dtype != torch.float32:
        return False
    config = model.config
    rope = str(getattr(config, "rope_parameters", None))
    window = getattr(config, "sliding_window", None)
    return (
        config.hidden_act in ("silu", "swish")
        and "dynamic" not in rope  # these two turn with the length of the batch
        and "longrope" not in rope
        and (window is None or window >= config.max_position_embeddings)
        and getattr(model, "quantization_method", None) is None
        and type(model.lm_head) is torch.nn.Linear
        and model.lm_head.bias is None
        and type(model.model.embed_tokens) is torch.nn.Embedding
        and all(_plain(linear) for layer in model.model.layers for linear in _linears(layer))
    )


def _plain(module: torch.nn.Module) -> bool:
    """A linear layer, or one with ordinary LoRA adapters that are not merged into it."""
    if type(module) is not LoraLinear:
        return type(module) is torch.nn.Linear
    adapted = module.lora_variant or module.merged or module.fan_in_fan_out or any(module.lora_bias.values())
    return type(module.base_layer) is torch.nn.Linear and not adapted


def _linears(layer: torch.nn.Module) -> Iterator[torch.nn.Module]:
    attention, mlp = layer.self_attn, layer.mlp
    yield from (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
    yield from (mlp.gate_proj, mlp.up_proj, mlp.down_proj)


def _join(layer: torch.nn.Module, keep_base: bool) -> Layer:
    query, key, value, out, gate, up, down = _linears(layer)
    norms = [getattr(layer.self_attn, name, None) for name in ("q_norm", "k_norm")]
    query_norm, key_norm = (norm and norm.weight.detach() for norm in norms)
    return Layer(
        attention_norm=layer.input_layernorm.weight.detach(),
        qkv=Projection((query, key, value), keep_base),
        query_norm=query_norm,
        key_norm=key_norm,
        out=Projection((out,), keep_base),
        mlp_norm=layer.post_attention_layernorm.weight.detach(),
        gate_up=Projection((gate, up), keep_base),
        down=Projection((down,), keep_base),
    )


def _joined_bias(linears: Sequence[torch.nn.Linear]) -> torch.Tensor | None:
    if all(linear.bias is None for linear in linears):
        return None
    none = linears[0].weight.new_zeros
    return torch.cat([none(x.out_features) if x.bias is None else x.bias.detach() for x in linears])
