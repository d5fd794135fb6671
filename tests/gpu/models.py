"""The models that the check trains: the one that ships, and random ones with the shapes of real ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, Qwen2Config, Qwen2ForCausalLM
from transformers.utils.logging import disable_progress_bar

from core.models.catalog import EMBEDDED, EMBEDDED_PATH


@dataclass(frozen=True)
class Shape:
    """A random model; its tokenizer is the embedded model's, which knows the first few ids of the vocabulary."""

    name: str
    kind: Callable[..., PreTrainedModel]
    config: type
    hidden: int
    feed_forward: int
    layers: int
    heads: int
    kv_heads: int
    vocab: int

    def write(self, folder: Path) -> Path:
        """Its files, seeded, in `folder/name`."""
        place = folder / self.name
        torch.manual_seed(0)
        config = self.config(
            hidden_size=self.hidden, intermediate_size=self.feed_forward, num_hidden_layers=self.layers,
            num_attention_heads=self.heads, num_key_value_heads=self.kv_heads, vocab_size=self.vocab,
            max_position_embeddings=4096, tie_word_embeddings=True, bos_token_id=None, eos_token_id=1, pad_token_id=0,
        )  # fmt: skip
        self.kind(config).save_pretrained(place)
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(EMBEDDED_PATH / name, place)
        return place


LARGE = (
    Shape("llama-0.5b", LlamaForCausalLM, LlamaConfig, 896, 4864, 24, 14, 2, 151_936),
    Shape("qwen-0.5b", Qwen2ForCausalLM, Qwen2Config, 896, 4864, 24, 14, 2, 151_936),
)
SMALL = (
    Shape("llama-small", LlamaForCausalLM, LlamaConfig, 128, 352, 2, 4, 2, 1024),
    Shape("qwen-small", Qwen2ForCausalLM, Qwen2Config, 128, 352, 2, 4, 2, 1024),
)


def models(folder: Path, large: bool) -> dict[str, str]:
    """What to check, name -> what a config calls it."""
    disable_progress_bar()
    shapes = LARGE if large else SMALL
    return {EMBEDDED: EMBEDDED, **{shape.name: str(shape.write(folder)) for shape in shapes}}
