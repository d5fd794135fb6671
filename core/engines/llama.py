"""A `Decoder` for Llama-like models in float32, on weights that have the LoRA adapters merged in.

The same arithmetic as the library's model, with the projections of a layer joined into one matrix, a preallocated cache
and no dispatch between the operations: several times faster on a CPU for small models. Tests compare its log-probs with
the model's full forward pass.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from core.engines.merged import Layer, merged
from core.limits import CACHE_GROWTH


class LlamaDecoder:
    """E hidden size, H heads and K key-value heads of size D; U rows are in use, each with room for C tokens.

    A layer's cache is keys (rows, K, D, C) and values (rows, K, C, D), as the products with one query a row like to
    read them. The numbers of a head of queries or keys are in pairs (see `_turned`), and queries are scaled by
    1 / sqrt(D).
    """

    def __init__(self, model: PreTrainedModel, max_new_tokens: int):
        self.weights = merged(model)
        self.rotary = model.model.rotary_emb
        self.max_new_tokens = max_new_tokens
        self.heads, self.kv_heads, self.size = self.weights.heads, self.weights.kv_heads, self.weights.size
        self.mean = self.weights.norm.new_full((len(self.weights.norm), 1), 1 / len(self.weights.norm))
        self.eps = self.weights.norm.new_tensor([self.weights.eps])

    def prefill(self, input_ids: torch.Tensor, mask: torch.Tensor, room: int) -> torch.Tensor:
        self.width = input_ids.shape[1]
        self.rows = len(input_ids)
        self.turns = self._turns(self.width + self.max_new_tokens)
        positions = (mask.long().cumsum(-1) - 1).clamp_(min=0)
        self.position = positions.new_zeros(room)
        self.position[: self.rows] = positions[:, -1] + 1
        self.bias = None
        if not bool(mask.all()):
            padding = F.pad(~mask, (0, self.max_new_tokens, 0, room - self.rows))
            bias = torch.zeros(padding.shape, device=mask.device).masked_fill_(padding, float("-inf"))
            self.bias = bias[:, None].repeat(1, self.kv_heads, 1)
        return self._head(self._read(input_ids, positions, mask, room))

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        slot, self.width = self.width, self.width + 1
        if slot == self.cache[0][0].shape[3]:
            self._grow()
        position = self.position[: self.rows]
        turns = self.turns.index_select(0, position)
        position += 1
        bias = None if self.bias is None else self.bias[: self.rows].flatten(0, 1)[:, None, : self.width]
        x = self.weights.embedding.index_select(0, tokens)
        for layer, cache in zip(self.weights.layers, self.cache, strict=True):
            keys, values = (part[: self.rows] for part in cache)
            query, keys[..., slot], values[:, :, slot] = self._heads(layer, x, turns)
            x = layer.out.onto(x, self._attend(query, keys, values, bias))
            x = self._mlp(layer, x)
        return self._head(x)

    def _grow(self) -> None:
        """Room for more tokens, in one layer after another: never two of the whole cache."""
        for index, (keys, values) in enumerate(self.cache):
            rows, heads, _, before = keys.shape
            columns = before + CACHE_GROWTH
            longer_keys = keys.new_empty((rows, heads, self.size, columns))
            longer_values = values.new_empty((rows, heads, columns, self.size))
            longer_keys[: self.rows, ..., :before] = keys[: self.rows]
            longer_values[: self.rows, :, :before] = values[: self.rows]
            self.cache[index] = longer_keys, longer_values

    def arrange(self, count: int, to: torch.Tensor, source: torch.Tensor) -> None:
        if len(to):
            each = [self.position, *(part for layer in self.cache for part in layer)]
            for part in each if self.bias is None else [*each, self.bias]:
                part.index_copy_(0, to, part.index_select(0, source))
        self.rows = count

    def _read(self, input_ids: torch.Tensor, positions: torch.Tensor, mask: torch.Tensor, room: int) -> torch.Tensor:
        """(P, E) the last states of prompts (P, L), whose keys and values begin the cache."""
        prompts, width = input_ids.shape
        causal = torch.ones((width, width), dtype=torch.bool, device=mask.device).tril()
        allowed = causal & mask[:, None, :] | torch.eye(width, dtype=torch.bool, device=mask.device)
        turns = self.turns[positions.flatten()]
        x = self.weights.embedding[input_ids.flatten()]
        self.cache = []
        for layer in self.weights.layers:
            query, key, value = (
                part.view(prompts, width, -1, self.size).transpose(1, 2) for part in self._heads(layer, x, turns)
            )
            rows, columns = (room, self.kv_heads), width + CACHE_GROWTH
            keys, values = x.new_empty((*rows, self.size, columns)), x.new_empty((*rows, columns, self.size))
            keys[:prompts, ..., :width], values[:prompts, :, :width] = key.mT, value
            self.cache.append((keys, values))
            attended = F.scaled_dot_product_attention(
                query, key, value, attn_mask=allowed[:, None], scale=1.0, enable_gqa=self.heads != self.kv_heads
            )
            x = layer.out.onto(x, attended.transpose(1, 2).reshape(len(x), -1))
            x = self._mlp(layer, x)
        return x.view(prompts, width, -1)[:, -1]

    def _heads(
        self, layer: Layer, x: torch.Tensor, turns: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries (n, H, D), keys and values (n, K, D) of the states (n, E), turned by (n, H + K, D / 2)."""
        heads = layer.qkv(self._normed(x, layer.attention_norm)).view(len(x), -1, self.size)
        turned, value = heads[:, : -self.kv_heads], heads[:, -self.kv_heads :]
        if layer.query_norm is not None:
            query, key = turned.split([self.heads, self.kv_heads], dim=1)
            query = F.rms_norm(query, (self.size,), layer.query_norm, self.weights.eps)
            turned = torch.cat([query, F.rms_norm(key, (self.size,), layer.key_norm, self.weights.eps)], dim=1)
        turned = _turned(turned, turns)
        return turned[:, : self.heads], turned[:, self.heads :], value

    def _attend(
        self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """(U, H D) what queries (U, H, D) make of the keys and values so far.

        bias (U K, 1, so far), if any, is -inf on padding."""
        query = query.reshape(len(query) * self.kv_heads, -1, self.size)
        keys, values = keys.flatten(0, 1)[..., : self.width], values.flatten(0, 1)[:, : self.width]
        scores = torch.bmm(query, keys) if bias is None else torch.baddbmm(bias, query, keys)
        return torch.bmm(scores.softmax(-1), values).view(-1, self.heads * self.size)

    def _mlp(self, layer: Layer, x: torch.Tensor) -> torch.Tensor:
        gate, up = layer.gate_up(self._normed(x, layer.mlp_norm)).chunk(2, dim=-1)
        return layer.down.onto(x, F.silu(gate).mul_(up))

    def _normed(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        """RMS norm of (n, E); the mean as a product takes fewer passes than the library's function."""
        return torch.addmm(self.eps, x * x, self.mean).rsqrt_().mul(x).mul_(weight)

    def _head(self, x: torch.Tensor) -> torch.Tensor:
        """(n, V) logits of the last states (n, E)."""
        x = self._normed(x, self.weights.norm)
        blocks = self.weights.head
        logits = x.new_empty(len(x), sum(block.shape[1] for block in blocks))
        for block, part in zip(blocks, logits.split(blocks[0].shape[1], dim=-1), strict=True):
            torch.mm(x, block, out=part)
        return logits

    def _turns(self, count: int) -> torch.Tensor:
        """(count, H + K, D / 2) complex: what turns the heads at each position, the scale of the queries included."""
        positions = torch.arange(count, device=self.weights.norm.device)[None]
        cos, sin = (part[0, :, None, : self.size // 2] for part in self.rotary(self.weights.norm, positions))
        scale = cos.new_ones((self.heads + self.kv_heads, 1))
        scale[: self.heads] = self.size**-0.5
        return torch.complex(cos * scale, sin * scale)


def _turned(heads: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding of heads (n, h, D): the halves of a head become the two parts of D / 2 complex
    numbers, multiplied by turns (n, h, D / 2), and stay in that order, which no product of queries and keys sees."""
    first, second = heads.chunk(2, dim=-1)
    return torch.view_as_real(torch.complex(first, second).mul_(turns)).flatten(-2)
