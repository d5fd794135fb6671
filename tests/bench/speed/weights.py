"""The model of a run with its fresh adapter, made by PEFT alone, for a peer to run."""

from __future__ import annotations

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

from core.config import RunConfig
from core.models.load import load_model


def adapted_model(config: RunConfig) -> tuple[PeftModel, PreTrainedTokenizerBase]:
    """The same numbers as the lab's policy has before its first step."""
    disable_progress_bar()
    model, tokenizer = load_model(config.model, "cpu", config.precision)
    torch.manual_seed(config.seed)
    lora = LoraConfig(
        r=config.lora.r, lora_alpha=config.lora.alpha, lora_dropout=config.lora.dropout,
        target_modules=config.lora.targets, task_type="CAUSAL_LM",
    )  # fmt: skip
    return get_peft_model(model, lora), tokenizer
