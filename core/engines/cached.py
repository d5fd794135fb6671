"""Any Hugging Face causal language model as a `Decoder`, through the library's own cache."""

from __future__ import annotations

import inspect

import torch
from transformers import DynamicCache, PreTrainedModel
from transformers.cache_utils import DynamicLayer

LOWEST = -1e30
"""In place of the -inf by which some models forbid a token: as improbable, but finite."""


class PreallocatedLayer(DynamicLayer):
    """A layer's keys and values in buffers of their final size: a step writes one slot in place of copying them all."""

    def __init__(self, rows: int, capacity: int):
        super().__init__()
        self.rows, self.capacity = rows, capacity
        self.used = 0

    def update(self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs):
        """Append (rows, heads, n, size) states; views of all so far."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
            self.keys, self.values = self._buffer(key_states), self._buffer(value_states)
        start, self.used, rows = self.used, self.used + key_states.shape[-2], len(key_states)
        self.keys[:rows, :, start : self.used] = key_states
        self.values[:rows, :, start : self.used] = value_states
        return self.keys[:rows, :, : self.used], self.values[:rows, :, : self.used]

    def batch_select_indices(self, indices: torch.Tensor) -> None:
        """Row j becomes what row indices[j] was; a row that is copied over is not copied from."""
        to = torch.nonzero(indices != torch.arange(len(indices), device=indices.device))[:, 0]
        if len(to):
            source = indices[to]
            self.keys[to, :, : self.used] = self.keys[source, :, : self.used]
            self.values[to, :, : self.used] = self.values[source, :, : self.used]

    def _buffer(self, states: torch.Tensor) -> torch.Tensor:
        _, heads, _, size = states.shape
        return states.new_empty((self.rows, heads, self.capacity, size))

    def get_seq_length(self) -> int:
        return self.used


class CachedDecoder:
    """Runs `model` (a PEFT model's base, LoRA layers included) one token at a time.

    Prompts are left-padded, so that every row's next token lies in the same column; position ids skip the padding.
    """

    def __init__(self, model: PreTrainedModel, max_new_tokens: int):
        self.model = model
        self.max_new_tokens = max_new_tokens
        self.takes_positions = "position_ids" in inspect.signature(model.forward).parameters

    def prefill(self, input_ids: torch.Tensor, mask: torch.Tensor, room: int) -> torch.Tensor:
        width = input_ids.shape[1]
        self.cache = DynamicCache(config=self.model.config)
        for index, layer in enumerate(self.cache.layers):
            if type(layer) is DynamicLayer:
                self.cache.layers[index] = PreallocatedLayer(room, width + self.max_new_tokens)
        self.width = width
        self.mask = None if bool(mask.all()) else mask.long()
        positions = (mask.long().cumsum(-1) - 1).clamp_(min=0)
        logits = self._forward(input_ids, positions)
        self.position = positions[:, -1] + 1
        if self.mask is not None:
            tail = self.mask.new_ones((len(mask), self.max_new_tokens))
            self.mask = torch.cat([self.mask, tail], dim=1)
        return logits

    def step(self, tokens: torch.Tensor) -> torch.Tensor:
        self.width += 1
        logits = self._forward(tokens[:, None], self.position[:, None])
        self.position += 1
        return logits

    def arrange(self, count: int, to: torch.Tensor, source: torch.Tensor) -> None:
        rows = torch.arange(count, device=to.device)
        rows[to] = source
        self.cache.batch_select_indices(rows)
        self.position = self.position[rows]
        if self.mask is not None:
            self.mask = self.mask[rows]

    def _forward(self, input_ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        inputs = {"position_ids": positions} if self.takes_positions else {}
        if self.mask is not None:
            inputs["attention_mask"] = self.mask[:, : self.width]
        output = self.model(input_ids=input_ids, past_key_values=self.cache, use_cache=True, logits_to_keep=1, **inputs)
        return output.logits[:, -1].float().clamp(min=LOWEST)
