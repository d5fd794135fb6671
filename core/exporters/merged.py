"""A run's adapter merged into a copy of its base model: a whole model in float32, which needs no PEFT and no lab."""

from __future__ import annotations

import shutil
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model, set_peft_model_state_dict
from peft.tuners.lora import LoraLayer
from safetensors import SafetensorError
from safetensors.torch import load_file
from transformers import PreTrainedModel
from transformers.utils.logging import disable_progress_bar

from core.config import RunConfig, read_run
from core.exporters.adapter import WEIGHTS, ExportError, made_with, require_adapter
from core.exporters.model_card import card
from core.models.catalog import require
from core.models.convert import convert
from core.models.load import load_model
from core.models.packaged import PACKAGED

TOKENIZER_FILES = (
    "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "merges.txt", "chat_template.jinja",
)  # fmt: skip


def merge(run_dir: Path, out: Path) -> Path:
    """Write the merged model to the folder `out`, which must not exist; the base model stays as it is.

    The adapter's shape comes from the run's config, its numbers from its safetensors; of its adapter_config.json
    nothing is used. The tokenizer's files are the base model's own. Raises ExportError, ModelError, ConfigError.
    """
    if out.exists():
        raise ExportError(f"{out} is already there: name a folder that is not")
    adapter = require_adapter(run_dir)
    config = read_run(run_dir / "config.yaml")
    disable_progress_bar()
    model, _ = load_model(config.model)
    base = require(config.model).path or convert(PACKAGED[config.model])
    merged = _merged(model, config, adapter / WEIGHTS)
    aside = out.with_name(f".{out.name}.new")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(aside, ignore_errors=True)
        merged.save_pretrained(aside)
        for name in TOKENIZER_FILES:
            if (base / name).is_file():
                shutil.copyfile(base / name, aside / name)
        text = card(run_dir, config, made_with(run_dir), merged=True)
        (aside / "README.md").write_text(text, encoding="utf-8", errors="replace")
        aside.rename(out)
    except OSError as error:
        raise ExportError(f"{out} cannot be written ({error.strerror or error})") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return out


def _merged(model: PreTrainedModel, config: RunConfig, weights: Path) -> PreTrainedModel:
    targets = config.lora.targets
    lora = LoraConfig(
        r=config.lora.r,
        lora_alpha=config.lora.alpha,
        target_modules=targets if isinstance(targets, str) else list(targets),
        task_type="CAUSAL_LM",
    )
    try:
        policy = get_peft_model(model, lora)
        found = set_peft_model_state_dict(policy, load_file(weights))
        lacking = [name for name in found.missing_keys if "lora_" in name]
        if found.unexpected_keys or lacking:
            raise ValueError(f"{[*found.unexpected_keys, *lacking][0]} is only in one of them")
    except (ValueError, RuntimeError, KeyError, OSError, SafetensorError) as error:
        words = " ".join(str(error).split())[:300]
        raise ExportError(f"{weights.name} is not an adapter of the run's config ({words})") from error
    _untie(model)
    with torch.no_grad():
        return policy.merge_and_unload(safe_merge=True)


def _untie(model: PreTrainedModel) -> None:
    """Give the head weights of its own where it shares the embedding's and only one of them has an adapter."""
    embedding, head = model.get_input_embeddings(), model.get_output_embeddings()
    if not isinstance(embedding, LoraLayer) and not isinstance(head, LoraLayer):
        return
    own = getattr(head, "base_layer", head)
    if own.weight is getattr(embedding, "base_layer", embedding).weight:
        own.weight = torch.nn.Parameter(own.weight.detach().clone())
        model.config.tie_word_embeddings = False
