"""Random models of a few thousand parameters and a tokenizer of single characters, built in memory."""

from __future__ import annotations

import torch
from peft import LoraConfig, PeftModel, get_peft_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

CHARACTERS = "0123456789+-=?abcdefghij "
EOS, PAD = 0, 1


def tokenizer() -> PreTrainedTokenizerFast:
    vocabulary = {"<eos>": EOS, "<pad>": PAD} | {c: i + 2 for i, c in enumerate(CHARACTERS)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    backend.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<eos>", pad_token="<pad>")


SIZES = {
    "vocab_size": len(CHARACTERS) + 2,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "eos_token_id": EOS,
    "pad_token_id": PAD,
    "bos_token_id": None,
}


def llama(seed: int = 0, kv_heads: int = 2, **changes) -> LlamaForCausalLM:
    torch.manual_seed(seed)
    config = LlamaConfig(**SIZES | {"num_key_value_heads": kv_heads, "tie_word_embeddings": False} | changes)
    return _with_biases(LlamaForCausalLM(config))


def qwen(seed: int = 0, **changes) -> Qwen2ForCausalLM:
    torch.manual_seed(seed)
    return _with_biases(Qwen2ForCausalLM(Qwen2Config(**SIZES | {"num_key_value_heads": 2} | changes)))


def qwen3(seed: int = 0, **changes) -> Qwen3ForCausalLM:
    """Its head norms have weights other than 1."""
    torch.manual_seed(seed)
    model = Qwen3ForCausalLM(Qwen3Config(**SIZES | {"num_key_value_heads": 2, "head_dim": 12} | changes)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "_norm" in name:
                parameter.uniform_(0.5, 1.5)
    return model


def mistral(seed: int = 0, **changes) -> MistralForCausalLM:
    torch.manual_seed(seed)
    sizes = SIZES | {"num_key_value_heads": 2, "sliding_window": None}
    return MistralForCausalLM(MistralConfig(**sizes | changes)).eval()


def gpt2(seed: int = 0) -> GPT2LMHeadModel:
    torch.manual_seed(seed)
    sizes = {"vocab_size": len(CHARACTERS) + 2, "n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64}
    special = {"eos_token_id": EOS, "bos_token_id": EOS, "initializer_range": 0.3}
    return GPT2LMHeadModel(GPT2Config(**sizes, **special)).eval()


def _with_biases(model: PreTrainedModel) -> PreTrainedModel:
    """Random biases, where the model has any: a new one's are 0."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("bias"):
                parameter.normal_(std=0.3)
    return model.eval()


def with_lora(model: PreTrainedModel, seed: int = 0) -> PeftModel:
    """A LoRA adapter that does something: its B matrices are random, not zero."""
    torch.manual_seed(seed)
    policy = get_peft_model(model, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM"))
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_B" in name:
                parameter.normal_(std=0.1)
    return policy.eval()
