"""The hidden states of a Llama-like model and their gradient in the LoRA adapter, written out for packed rollouts.

The same arithmetic as the library's model under autograd, in float32, but with the adapter added into a copy of the
weights (one product a projection, both ways), the projections of a layer joined, no padding, prompts shared within a
group, and nothing computed for the frozen weights. Tests hold both the states and the gradients to the library's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from transformers import PreTrainedModel

from core.engines.merged import Layer, Projection, merged, supports
from core.train.packing import Block, Heads, Packed, Sequences, pack


@dataclass
class _Saved:
    """What the way back needs of a layer. `x1` and `x2` are the inputs of attention and MLP, normed but unscaled."""

    x1: torch.Tensor  # (S, E)
    norm1: torch.Tensor  # (S, 1): what the norm multiplied by
    head_norms: list[tuple[torch.Tensor, torch.Tensor]]  # the same of queries and keys, where they have norms
    attention: list[tuple[torch.Tensor, ...]]  # q, k, v and the attention weights of each block
    attended: torch.Tensor  # (S, H D)
    x2: torch.Tensor
    norm2: torch.Tensor
    gate: torch.Tensor  # (S, F)
    up: torch.Tensor


def trains(model: PreTrainedModel) -> bool:
    """Whether `PackedLlama` does what the model itself does: a kind it knows, with LoRA in its layers, no dropout."""
    return supports(model) and not any(
        dropout.p for dropout in model.modules() if isinstance(dropout, torch.nn.Dropout)
    )


class PackedLlama:
    """E hidden size, H query heads and K key heads of size D, F feed-forward size, S tokens in a stream."""

    def __init__(self, model: PreTrainedModel):
        self.model = model
        self.merged = merged(model)
        self.heads = Heads(self.merged.heads, self.merged.kv_heads)
        self.size = self.merged.size
        config = model.config
        self.token_floats = 3 * config.hidden_size + 2 * config.intermediate_size + 2 * self.heads.all * self.size

    def kept_bytes(self, tokens: int, before: int = 0) -> int:
        """About what training keeps of a prompt, or of a response to `before` tokens: states, and attention weights."""
        attention = self.heads.queries * tokens * (before + tokens)
        return 4 * len(self.merged.layers) * (tokens * self.token_floats + attention)

    def hidden(self, sequences: Sequences) -> torch.Tensor:
        """(m, E) the states from which the response tokens are predicted, row by row, with gradient where enabled."""
        merged(self.model)  # refreshes what it gave before
        matrices = [matrix for layer in self.merged.layers for each in layer.projections for matrix in _matrices(each)]
        packed = pack(sequences, self.heads, self.model.device)
        return _Hidden.apply(self, packed, torch.is_grad_enabled(), *matrices)

    def forward(self, packed: Packed, save: bool) -> tuple[torch.Tensor, list[_Saved]]:
        """(S, E) the last states before their norm, and what each layer saved."""
        x, saved = F.embedding(packed.ids, self.merged.embedding), []
        turn = self._turn(packed)
        for layer in self.merged.layers:
            x1, norm1 = self.norm(x)
            heads = layer.qkv(x1 * layer.attention_norm).view(len(x), -1, self.size)
            head_norms = self._norm_heads(layer, heads)
            _rotate(heads[:, : -self.heads.keys], *turn)
            attended, attention = self._attend(heads, packed.blocks)
            x = layer.out.onto(x, attended)
            x2, norm2 = self.norm(x)
            gate, up = layer.gate_up.apart(x2 * layer.mlp_norm)
            x = layer.down.onto(x, F.silu(gate).mul_(up))
            if save:
                saved.append(_Saved(x1, norm1, head_norms, attention, attended, x2, norm2, gate, up))
        return x, saved

    def backward(self, packed: Packed, saved: list[_Saved], grad: torch.Tensor) -> list[torch.Tensor]:
        """The gradients of all A and B from that of the last states before their norm (S, E), which is overwritten."""
        cos, sin = self._turn(packed)
        gradients: list[torch.Tensor] = []
        for index in reversed(range(len(saved))):
            layer, kept = self.merged.layers[index], saved.pop()
            product, *inner = _swiglu_backward(kept.gate, kept.up, _back(layer.down, [grad]))
            found = [_lora_gradients(layer.down, product, [grad])]
            found.append(_lora_gradients(layer.gate_up, kept.x2 * layer.mlp_norm, inner))
            grad += _norm_backward(_back(layer.gate_up, inner), layer.mlp_norm, kept.x2, kept.norm2)

            found.append(_lora_gradients(layer.out, kept.attended, [grad]))
            heads = self._attend_backward(_back(layer.out, [grad]), kept.attended, packed.blocks, kept.attention)
            _rotate(heads[:, : -self.heads.keys], cos, -sin)
            self._norm_heads_backward(layer, heads, kept.head_norms)
            heads = heads.flatten(1)
            parts = [heads[:, part.columns] for part in layer.qkv.parts]
            found.append(_lora_gradients(layer.qkv, kept.x1 * layer.attention_norm, parts))
            if index:  # nothing to train lies before the first layer
                grad += _norm_backward(heads @ layer.qkv.weight.t(), layer.attention_norm, kept.x1, kept.norm1)
            gradients = [matrix for group in reversed(found) for matrix in group] + gradients
        return gradients

    def norm(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """x (..., E) at a root mean square of 1, and what that took: the norm before its weight."""
        factor = torch.linalg.vector_norm(x, dim=-1, keepdim=True).square_().div_(x.shape[-1]).add_(self.merged.eps)
        return x * factor.rsqrt_(), factor

    def _turn(self, packed: Packed) -> tuple[torch.Tensor, torch.Tensor]:
        """(S, 1, D / 2) cosines and sines of the rotary position embedding."""
        cos, sin = self.model.model.rotary_emb(self.merged.norm, packed.positions[None])
        return cos[0, :, None, : self.size // 2].contiguous(), sin[0, :, None, : self.size // 2].contiguous()

    def _normed_heads(self, layer: Layer, heads: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """The query heads and the key heads, each with the weight of its norm; none where they have no norms."""
        if layer.query_norm is None:
            return []
        queries, keys, _ = heads.split([self.heads.queries, self.heads.keys, self.heads.keys], dim=1)
        return [(queries, layer.query_norm), (keys, layer.key_norm)]

    def _norm_heads(self, layer: Layer, heads: torch.Tensor) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Norm queries and keys in place; what `norm` gave."""
        found = []
        for part, weight in self._normed_heads(layer, heads):
            found.append(self.norm(part))
            torch.mul(found[-1][0], weight, out=part)
        return found

    def _norm_heads_backward(
        self, layer: Layer, grad: torch.Tensor, norms: list[tuple[torch.Tensor, torch.Tensor]]
    ) -> None:
        for (part, weight), (x, factor) in zip(self._normed_heads(layer, grad), norms, strict=True):
            part.copy_(_norm_backward(part, weight, x, factor))

    def _attend(self, heads: torch.Tensor, blocks: list[Block]) -> tuple[torch.Tensor, list[tuple[torch.Tensor, ...]]]:
        """(S, H D) from the heads (S, H + 2 K, D), and each block's scaled queries, keys, values and weights."""
        rows = heads.view(-1, self.size)
        result = rows.new_empty(len(heads) * self.heads.queries, self.size)
        parts = []
        for block in blocks:
            q, k, v = (rows.index_select(0, index).view(block.n, self.heads.keys, -1, self.size)
                       for index in (block.q, block.k, block.v))  # fmt: skip
            q *= self.size**-0.5
            scores = (q @ k.mT).view(block.n, self.heads.queries, *block.mask.shape[2:])
            weights = scores.add_(block.mask).softmax(-1).view(*q.shape[:3], -1)
            attended = (weights @ v).view(-1, self.size)
            result.index_copy_(0, block.stream, attended.index_select(0, block.padded))
            parts.append((q, k, v, weights))
        return result.view(len(heads), -1), parts

    def _attend_backward(
        self,
        grad: torch.Tensor,
        attended: torch.Tensor,
        blocks: list[Block],
        parts: list[tuple[torch.Tensor, ...]],
    ) -> torch.Tensor:
        """The gradient of the heads (S, H + 2 K, D) from that of the result, `attended` (S, H D).

        Through a softmax, weights p and their gradient g give p (g - sum p g), and the sum is that of the result times
        its own gradient.
        """
        rows = grad.new_zeros(len(grad) * self.heads.all, self.size)
        grad = grad.view(-1, self.size)
        sums = torch.linalg.vecdot(grad, attended.view(-1, self.size))
        for block, (q, k, v, weights) in zip(blocks, parts, strict=True):
            result = torch.zeros_like(q).view(-1, self.size)
            result.index_copy_(0, block.padded, grad.index_select(0, block.stream))
            along = sums.new_zeros(len(result)).index_copy_(0, block.padded, sums.index_select(0, block.stream))
            result, along = result.view(q.shape), along.view(*q.shape[:3], 1)
            scores = (result @ v.mT).sub_(along).mul_(weights)
            queries = (scores @ k).mul_(self.size**-0.5)
            for index, part in ((block.q, queries), (block.k, scores.mT @ q), (block.v, weights.mT @ result)):
                rows.index_add_(0, index, part.view(-1, self.size))
        return rows.view(-1, self.heads.all, self.size)


class _Hidden(torch.autograd.Function):
    """The predicting states as a function of the adapter's matrices."""

    @staticmethod
    def forward(ctx: Any, llama: PackedLlama, packed: Packed, save: bool, *matrices: torch.Tensor) -> torch.Tensor:
        x, saved = llama.forward(packed, save)
        x, factor = llama.norm(x.index_select(0, packed.predicting))
        if save:
            ctx.llama, ctx.packed, ctx.saved, ctx.last = llama, packed, saved, (x, factor)
        return x * llama.merged.norm

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        packed = ctx.packed
        predicting = _norm_backward(grad, ctx.llama.merged.norm, *ctx.last)
        stream = predicting.new_zeros(len(packed.ids), predicting.shape[1])
        stream.index_add_(0, packed.predicting, predicting)
        return None, None, None, *ctx.llama.backward(packed, ctx.saved, stream)


def _matrices(projection: Projection) -> list[torch.Tensor]:
    """A and B of each adapter, in the order in which `_lora_gradients` gives their gradients."""
    return [matrix for part in projection.parts for lora in part.adapters() for matrix in (lora.a, lora.b)]


def _back(projection: Projection, grads: Sequence[torch.Tensor]) -> torch.Tensor:
    """The gradient (S, in) of a projection's input from those of its parts' outputs."""
    first, *others = (
        (grad, projection.weight[:, part.columns].t()) for part, grad in zip(projection.parts, grads, strict=True)
    )
    result = torch.mm(*first)
    for grad, weight in others:
        result.addmm_(grad, weight)
    return result


def _lora_gradients(projection: Projection, x: torch.Tensor, grads: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Of A and B of each adapter, from the projection's input (S, in) and the gradients of its parts' outputs."""
    adapted = [(lora, grad) for part, grad in zip(projection.parts, grads, strict=True) for lora in part.adapters()]
    if not adapted:
        return []
    ranks = [len(lora.a) for lora, _ in adapted]
    low = (x @ torch.cat([lora.a for lora, _ in adapted]).t()).split(ranks, dim=1)
    grad_low = torch.cat([(grad @ lora.b).mul_(lora.scale) for lora, grad in adapted], dim=1)
    gradients = []
    for (lora, grad), inner, grad_a in zip(adapted, low, (grad_low.t() @ x).split(ranks), strict=True):
        gradients += [grad_a, (grad.t() @ inner).mul_(lora.scale)]
    return gradients


def _rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> None:
    """Turn the pairs (i, i + D / 2) of heads (S, heads, D) in place; by -sin, turn them back."""
    first, second = heads.chunk(2, dim=-1)
    before = first.clone()
    first.mul_(cos).addcmul_(second, sin, value=-1)
    second.mul_(cos).addcmul_(before, sin)


def _norm_backward(grad: torch.Tensor, weight: torch.Tensor, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Through weight * x, x = factor * input the normed states: what lies along x falls out, as its length is fixed."""
    grad = grad * weight
    along = torch.linalg.vecdot(grad, x)[..., None].div_(x.shape[-1])
    return grad.addcmul_(x, along, value=-1).mul_(factor)


def _swiglu_backward(gate: torch.Tensor, up: torch.Tensor, grad: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """silu(gate) * up (S, F) again, and the gradients of gate and up from that of the product."""
    silu = F.silu(gate)
    grad_up = grad * silu
    return silu.mul_(up), torch.ops.aten.silu_backward(grad.mul_(up), gate), grad_up
