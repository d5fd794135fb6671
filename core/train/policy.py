"""The policy: a base model with a LoRA adapter, the one thing that training changes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import PreTrainedTokenizerBase
from transformers.utils.logging import disable_progress_bar

from core.config import RunConfig
from core.models.load import load_model
from core.train.forward import Scorer
from core.train.recompute import recompute_layers
from core.train.reporter import TrainingError


class Policy:
    """A PEFT model in evaluation mode, its tokenizer, and the trainable parameters by name in a fixed order."""

    def __init__(self, model: torch.nn.Module, tokenizer: PreTrainedTokenizerBase, config: RunConfig):
        torch.manual_seed(config.seed)  # the adapter's A matrices are random
        lora = LoraConfig(
            r=config.lora.r,
            lora_alpha=config.lora.alpha,
            lora_dropout=config.lora.dropout,
            target_modules=config.lora.targets if isinstance(config.lora.targets, str) else list(config.lora.targets),
            task_type="CAUSAL_LM",
        )
        try:
            self.model = get_peft_model(model, lora).eval()
        except ValueError as error:
            raise TrainingError(f"lora.targets: {' '.join(str(error).split())}") from error
        self.model.peft_config["default"].base_model_name_or_path = config.model
        self.tokenizer = tokenizer
        self.parameters = {name: p for name, p in self.model.named_parameters() if p.requires_grad}
        self.device = model.device
        named = self.model.named_modules()
        self._dropouts = [m for name, m in named if "lora_dropout" in name and isinstance(m, torch.nn.Dropout)]
        if config.gradient_checkpointing and not recompute_layers(self.model):
            raise TrainingError(f"gradient_checkpointing: the model {config.model} has no layers that can do it")
        packed = not config.gradient_checkpointing  # the packed pass keeps every layer's states
        self.scorer = Scorer(self.model, config.sampling.temperature, config.batch_tokens, packed)

    @contextmanager
    def base(self) -> Iterator[None]:
        """The base model alone: the adapter is switched off inside."""
        with self.model.disable_adapter():
            yield

    @contextmanager
    def training(self, seed: int, step: int, rank: int = 0) -> Iterator[None]:
        """Inside, the adapter's dropout is on, drawn from (seed, rank, step); the base model's own stays off."""
        if self._dropouts:
            torch.manual_seed(seed << 32 | rank << 20 | step)  # a run has at most 10^6 steps
        for module in self._dropouts:
            module.train()
        try:
            yield
        finally:
            for module in self._dropouts:
                module.eval()

    def flat(self) -> torch.Tensor:
        """(parameters,) a copy of the adapter's weights in one vector."""
        return torch.cat([p.detach().flatten() for p in self.parameters.values()])

    def save(self, folder: Path) -> None:
        """Write the adapter as PEFT reads it (safetensors), replacing an older one in one move."""
        new, old = folder.with_name(f".{folder.name}.new"), folder.with_name(f".{folder.name}.old")
        for leftover in (new, old):
            shutil.rmtree(leftover, ignore_errors=True)
        self.model.save_pretrained(new, save_embedding_layers=False)
        (new / "README.md").unlink(missing_ok=True)  # a template about the hub
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
        shutil.rmtree(old, ignore_errors=True)


def load_policy(config: RunConfig) -> Policy:
    """The run's model with a fresh adapter. Raises ModelError, TrainingError."""
    device = device_of(config)
    if device == "cuda" and not torch.cuda.is_available():
        raise TrainingError("device is cuda, but this machine has none that torch can use: set device: cpu")
    disable_progress_bar()  # a log has no use for it
    model, tokenizer = load_model(config.model, device, config.precision)
    return Policy(model, tokenizer, config)


def device_of(config: RunConfig) -> str:
    """`auto` resolved: cuda where there is one."""
    if config.device != "auto":
        return config.device
    return "cuda" if torch.cuda.is_available() else "cpu"
