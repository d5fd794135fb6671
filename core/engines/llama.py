"""A `Decoder` for plain Llama models in float32: the LoRA adapter is added into a copy of the weights once a call.

The same arithmetic as the library's model, with the projections of a layer joined into one matrix, a preallocated cache
and no dispatch between the operations: 2 to 3 times faster on a CPU for small models. Tests compare its log-probs with
the model's full forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from transformers import LlamaForCausalLM, PreTrainedModel

from core.engines.cached import move_rows


def supports(model: PreTrainedModel) -> bool:
    """Whether the model is what this decoder implements, in float32 (merging a low-precision copy would drift)."""
    config = model.config
    return (
        type(model) is LlamaForCausalLM
        and model.dtype == torch.float32
        and config.hidden_act in ("silu", "swish")
        and not config.attention_bias
        and not config.mlp_bias
        and "dynamic" not in str(getattr(config, "rope_parameters", None))
        and "longrope" not in str(getattr(config, "rope_parameters", None))
        and getattr(model, "quantization_method", None) is None
        and type(model.lm_head) is torch.nn.Linear
        and type(model.model.embed_tokens) is torch.nn.Embedding
    )


def merged_weight(module: torch.nn.Module) -> torch.Tensor:
    """(out, in) a linear layer's weight with its active LoRA adapters added."""
    base = getattr(module, "base_layer", None)
    if base is None:
        return module.weight
    weight = base.weight
    if not module.disable_adapters:
        for adapter in module.active_adapters:
            if adapter in module.lora_A:
                weight = weight + module.get_delta_weight(adapter)
    return weight


@dataclass
class _Layer:
    attention_norm: torch.Tensor  # (E,)
    qkv: torch.Tensor  # ((H + 2 Hk) D, E)
    out: torch.Tensor  # (E, H D)
    mlp_norm: torch.Tensor  # (E,)
    gate_up: torch.Tensor  # (2 F, E)
    down: torch.Tensor  # (E, F)


class LlamaDecoder:
    """E hidden size, H heads and Hk key-value heads of size D, F feed-forward size; M rows in the cache."""

    def __init__(self, model: LlamaForCausalLM, max_new_tokens: int):
        config = model.config
        self.model = model
        self.max_new_tokens = max_new_tokens
        self.heads, self.kv_heads = config.num_attention_heads, config.num_key_value_heads
        self.size = getattr(config, "head_dim", None) or config.hidden_size // self.heads
        self.eps = config.rms_norm_eps
        self.layers = [_merge(layer) for layer in model.model.layers]

    def prefill(self, input_ids: torch.Tensor, mask: torch.Tensor, repeats: int) -> torch.Tensor:
        prompts, width = input_ids.shape
        capacity = width + self.max_new_tokens
        positions = (mask.long().cumsum(-1) - 1).clamp_(min=0)
        cos, sin = self.model.model.rotary_emb(self.layers[0].out, torch.arange(capacity, device=mask.device)[None])
        self.cos, self.sin = cos[0], sin[0]  # (capacity, D)
        shape = (len(self.layers), 2, prompts * repeats, self.kv_heads, capacity, self.size)
        self.cache = self.layers[0].out.new_empty(shape)
        self.width, self.mask = width, None

        causal = torch.ones((width, width), dtype=torch.bool, device=mask.device).tril()
        allowed = causal & mask[:, None, :] | torch.eye(width, dtype=torch.bool, device=mask.device)
        hidden = self._run(input_ids, positions, allowed[:, None], slice(0, width), repeats)
        self.position = (positions[:, -1] + 1).repeat_interleave(repeats)
        if not bool(mask.all()):
            tail = mask.new_ones((prompts, self.max_new_tokens))
            self.mask = torch.cat([mask, tail], dim=1).repeat_interleave(repeats, dim=0)[:, None, None, :]
        return self._head(hidden[:, -1]).repeat_interleave(repeats, dim=0)

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        slot = slice(self.width, self.width + 1)
        self.width += 1
        allowed = None if self.mask is None else self.mask[..., : self.width]
        hidden = self._run(tokens[:, None], self.position[:, None], allowed, slot)
        self.position += 1
        return self._head(hidden[:, 0])

    def keep(self, rows: torch.Tensor) -> None:
        move_rows(self.cache, rows, self.width)
        self.cache = self.cache[:, :, : len(rows)]
        self.position = self.position[rows]
        if self.mask is not None:
            self.mask = self.mask[rows]

    def _run(
        self,
        tokens: torch.Tensor,
        positions: torch.Tensor,
        allowed: torch.Tensor | None,
        slots: slice,
        repeats: int = 1,
    ) -> torch.Tensor:
        """(M, n, E) the last hidden states of tokens (M, n), whose keys and values go to cache columns `slots`."""
        rows, count = tokens.shape
        x = F.embedding(tokens, self.model.model.embed_tokens.weight)
        cos, sin = self.cos[positions][:, :, None], self.sin[positions][:, :, None]
        rotated = self.heads + self.kv_heads
        for layer, (keys, values) in zip(self.layers, self.cache, strict=True):
            qkv = F.linear(self._norm(x, layer.attention_norm), layer.qkv).view(rows, count, -1, self.size)
            turned = _rotate(qkv[:, :, :rotated], cos, sin)
            q, k = turned[:, :, : self.heads].transpose(1, 2), turned[:, :, self.heads :].transpose(1, 2)
            v = qkv[:, :, rotated:].transpose(1, 2)
            if repeats > 1:
                keys[:, :, slots] = k.repeat_interleave(repeats, dim=0)
                values[:, :, slots] = v.repeat_interleave(repeats, dim=0)
            else:
                keys[:, :, slots], values[:, :, slots] = k, v
            if slots.start:
                k, v = keys[:, :, : slots.stop], values[:, :, : slots.stop]
            attended = F.scaled_dot_product_attention(
                q, k, v, attn_mask=allowed, enable_gqa=self.heads != self.kv_heads
            )
            x = x + F.linear(attended.transpose(1, 2).reshape(rows, count, -1), layer.out)
            gate, up = F.linear(self._norm(x, layer.mlp_norm), layer.gate_up).chunk(2, dim=-1)
            x = x + F.linear(F.silu(gate) * up, layer.down)
        return x

    def _norm(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x, weight.shape, weight, self.eps)

    def _head(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.linear(self._norm(hidden, self.model.model.norm.weight), self.model.lm_head.weight)


def _merge(layer: torch.nn.Module) -> _Layer:
    attention, mlp = layer.self_attn, layer.mlp
    return _Layer(
        attention_norm=layer.input_layernorm.weight,
        qkv=torch.cat([merged_weight(m) for m in (attention.q_proj, attention.k_proj, attention.v_proj)]),
        out=merged_weight(attention.o_proj),
        mlp_norm=layer.post_attention_layernorm.weight,
        gate_up=torch.cat([merged_weight(mlp.gate_proj), merged_weight(mlp.up_proj)]),
        down=merged_weight(mlp.down_proj),
    )


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding of (M, n, heads, D), the halves of a head paired."""
    half = x.shape[-1] // 2
    return x * cos + torch.cat((-x[..., half:], x[..., :half]), dim=-1) * sin
