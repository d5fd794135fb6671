"""Load a model and its tokenizer for sampling and training. The only place that opens weights."""

from __future__ import annotations

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from core.models.catalog import ModelError, require
from core.models.convert import convert
from core.models.packaged import PACKAGED

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def load_model(
    name: str, device: str = "cpu", dtype: str = "float32"
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """The base model, in eval mode, and its tokenizer, which pads on the left and always has a pad token.

    Safetensors only, no code of the model's own, no network; a packaged model is converted to them the first time.
    Raises ModelError.
    """
    path = require(name).path or convert(PACKAGED[name])
    if dtype not in DTYPES:
        raise ModelError(f"precision {dtype!r} is unknown: choose one of {', '.join(DTYPES)}")
    options = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(path, **options)
        model, loading = AutoModelForCausalLM.from_pretrained(
            path, dtype=DTYPES[dtype], use_safetensors=True, output_loading_info=True, **options
        )
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        words = " ".join(str(error).split())
        raise ModelError(f"model {name!r} cannot be loaded: {words[:300]}") from error
    if loading["missing_keys"]:
        missing = sorted(loading["missing_keys"])
        raise ModelError(f"model {name!r}: its weight files lack {missing[0]}, which would be left random")
    pad = tokenizer.pad_token_id
    if (
        pad is None or pad >= model.get_input_embeddings().num_embeddings
    ):  # Qwen's class brings one that a model may lack
        tokenizer.pad_token = tokenizer.eos_token
    tokenizer.padding_side = "left"
    return model.to(device).eval(), tokenizer
