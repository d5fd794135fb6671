"""The engine that samples with the trainer's own model: the default on a CPU and for small models."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from core.engines.base import EngineError, Rollouts, SampleKey, Sampling
from core.engines.cached import CachedDecoder
from core.engines.decode import Decoded, Decoder, decode
from core.engines.llama import LlamaDecoder
from core.engines.merged import supports
from core.engines.stops import StopWatch, named_ids
from core.engines.text import Texts, check_room, eos_ids
from core.engines.uniforms import uniforms
from core.limits import CACHE_BYTES


class TransformersEngine:
    """Samples from a causal language model in evaluation mode, a PEFT model's adapter included.

    `fast` False never uses the Llama decoder. Raises EngineError for a prompt that leaves no room and for logits that
    are not numbers.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        tokenizer: PreTrainedTokenizerBase,
        fast: bool = True,
        system_prompt: str | None = None,
    ):
        self.model: PreTrainedModel = model.get_base_model() if hasattr(model, "get_base_model") else model
        self.texts = Texts(tokenizer, system_prompt)
        self.eos = eos_ids(self.model, tokenizer)
        self.pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else self.eos[0]
        self.fast = fast and supports(self.model)

    def generate(
        self, prompts: Sequence[str], group_size: int, sampling: Sampling, key: SampleKey, adapter: int = 0
    ) -> Rollouts:
        """`group_size` responses a prompt, from the model as it is now (so `adapter` is not looked at)."""
        prompt_ids = self.texts.encode(prompts)
        limit = getattr(self.model.config.get_text_config(), "max_position_embeddings", None)
        check_room(prompts, prompt_ids, sampling.max_new_tokens, limit)
        batches = self._batches(prompt_ids, group_size, sampling.max_new_tokens)
        with torch.inference_mode():
            decoded = _join([self._decode(*batch, group_size, sampling, key) for batch in batches], self.pad)
        if not np.isfinite(decoded.logprob).all():
            raise EngineError("the model's logits are not finite numbers: try a lower optimizer.lr in a new run")
        rows = [ids[:n].tolist() for ids, n in zip(decoded.token_ids, decoded.length, strict=True)]
        return Rollouts(
            prompt_ids=prompt_ids,
            token_ids=decoded.token_ids,
            length=decoded.length,
            truncated=decoded.truncated,
            logprob=decoded.logprob,
            entropy=decoded.entropy,
            text=self.texts.responses(rows),
            token_text=[[self.texts.token(token) for token in row] for row in rows],
        )

    def _decode(
        self, first: int, prompt_ids: list[list[int]], group_size: int, sampling: Sampling, key: SampleKey
    ) -> Decoded:
        device = self.model.device
        width = max(len(ids) for ids in prompt_ids)
        padded = torch.tensor([[self.pad] * (width - len(ids)) + ids for ids in prompt_ids], device=device)
        lengths = torch.tensor([len(ids) for ids in prompt_ids], device=device)
        mask = torch.arange(width, device=device)[None, :] >= width - lengths[:, None]
        rows = [(first + group, rollout) for group in range(len(prompt_ids)) for rollout in range(group_size)]
        draws = uniforms(key, rows, sampling.max_new_tokens)
        decoder: Decoder = (LlamaDecoder if self.fast else CachedDecoder)(self.model, sampling.max_new_tokens)
        tokenizer, stop, eos, watch = self.texts.tokenizer, sampling.stop, self.eos, None
        if stop:
            eos, watch = [*eos, *named_ids(tokenizer, stop)], StopWatch(tokenizer, stop, len(rows))
        return decode(decoder, padded, mask, group_size, draws, sampling.temperature, eos, self.pad, watch)

    def _batches(
        self, prompt_ids: list[list[int]], group_size: int, max_new_tokens: int
    ) -> Iterator[tuple[int, list[list[int]]]]:
        """Whole groups at a time, (index of the first, prompts), as many as the cache has room for."""
        config = self.model.config.get_text_config()
        heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
        size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
        token_bytes = 2 * config.num_hidden_layers * heads * size * self.model.dtype.itemsize
        row_bytes = token_bytes * (max(map(len, prompt_ids)) + max_new_tokens)
        groups = max(1, CACHE_BYTES // (row_bytes * group_size))
        for first in range(0, len(prompt_ids), groups):
            yield first, prompt_ids[first : first + groups]

    def close(self) -> None:
        """The model is the trainer's: nothing to give back."""


def _join(parts: list[Decoded], pad: int) -> Decoded:
    """The rows of several batches under one another, padded to the widest."""
    if len(parts) == 1:
        return parts[0]
    width = max(part.token_ids.shape[1] for part in parts)

    def widen(array: np.ndarray, fill: float) -> np.ndarray:
        return np.pad(array, ((0, 0), (0, width - array.shape[1])), constant_values=fill)

    return Decoded(
        np.concatenate([widen(part.token_ids, pad) for part in parts]),
        np.concatenate([part.length for part in parts]),
        np.concatenate([part.truncated for part in parts]),
        np.concatenate([widen(part.logprob, 0) for part in parts]),
        np.concatenate([widen(part.entropy, 0) for part in parts]),
    )
