"""Folders of small random models as people have them on disk, of three architectures and with their usual quirks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2ForCausalLM,
    Qwen3ForCausalLM,
)

from tests.core import tiny

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'system' %}a{{ m.content }}b{% else %}c{{ m.content }}d{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}e{% endif %}"
)
TEMPLATE_WITHOUT_SYSTEM = TEMPLATE.replace("a{{ m.content }}b", "")
TEMPLATE_AGAINST_SYSTEM = TEMPLATE.replace("a{{ m.content }}b", "{{ raise_exception('System role not supported') }}")


def gpt2(tied: bool) -> GPT2LMHeadModel:
    """Learned positions, layers of transposed weights (Conv1D) with biases."""
    torch.manual_seed(0)
    sizes = {"vocab_size": tiny.SIZES["vocab_size"], "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    special = {"eos_token_id": tiny.EOS, "bos_token_id": None, "initializer_range": 0.3}
    model = GPT2LMHeadModel(GPT2Config(**sizes, **special, tie_word_embeddings=tied)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.3)
    return model


MAKE: dict[str, Callable[[bool], PreTrainedModel]] = {
    "llama": lambda tied: tiny.llama(tie_word_embeddings=tied),
    "qwen2": lambda tied: tiny.qwen(tie_word_embeddings=tied),
    "qwen3": lambda tied: tiny.qwen3(tie_word_embeddings=tied),
    "gpt2": gpt2,
}
CLASSES = {
    "llama": LlamaForCausalLM, "qwen2": Qwen2ForCausalLM, "qwen3": Qwen3ForCausalLM, "gpt2": GPT2LMHeadModel,
}  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """What can differ between models of one architecture."""

    architecture: str
    chat: bool = False
    tied: bool = False
    pad: str = "own"  # "own" token, "eos", or "none" at all

    def __str__(self) -> str:
        words = ("chat" if self.chat else "base", "tied" if self.tied else "untied", f"pad {self.pad}")
        return f"{self.architecture}, {', '.join(words)}"


def save(kind: Kind, folder: Path, template: str = TEMPLATE) -> Path:
    """The model and its tokenizer in `folder`, as `save_pretrained` writes them."""
    tokenizer, settings = tiny.tokenizer(), {}
    if kind.pad == "none":
        tokenizer = PreTrainedTokenizerFast(tokenizer_object=tokenizer.backend_tokenizer, eos_token="<eos>")
        settings["pad_token_id"] = None
    elif kind.pad == "eos":
        tokenizer.pad_token = "<eos>"
        settings["pad_token_id"] = tiny.EOS
    if kind.chat:
        tokenizer.chat_template = template
    model = MAKE[kind.architecture](kind.tied)
    _set(model, settings)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def _set(model: PreTrainedModel, settings: dict[str, Any]) -> None:
    for name, value in settings.items():
        setattr(model.config, name, value)
        setattr(model.generation_config, name, value)
