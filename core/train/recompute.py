"""Gradient checkpointing: a layer keeps its input alone, and computes the rest again in the backward pass."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer


def recompute_layers(model: torch.nn.Module) -> int:
    """Checkpoint every layer of a transformers model, wherever gradients are enabled; how many layers there are.

    The library's own switch works in training mode alone, where the base model's dropout would come on as well. Torch's
    non-reentrant form needs no input with a gradient (the base model's embeddings have none), and restores the random
    numbers of LoRA's dropout.
    """
    layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
    for layer in layers:
        layer.forward = _recomputed(layer.forward)
    return len(layers)


def _recomputed(forward: Any) -> Any:
    def run(*args: Any, **kwargs: Any) -> Any:
        if torch.is_grad_enabled():
            return checkpoint(forward, *args, use_reentrant=False, **kwargs)
        return forward(*args, **kwargs)

    return run
