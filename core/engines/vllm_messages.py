"""What the trainer and its vLLM process say to each other. Free of torch and vLLM: both sides import it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Start:
    """The first message: how to make the engine. It is answered by Ready, or by Failure."""

    arguments: dict[str, Any]  # of vllm.LLM
    one_adapter: bool  # replace the CPU's LoRA kernels by those of `vllm_lora`


@dataclass(frozen=True)
class Ready:
    context: int  # tokens of a prompt and its response at most


@dataclass(frozen=True)
class Request:
    """Draw `group_size` responses to each of P prompts. It is answered by Drawn, or by Failure."""

    prompt_ids: list[list[int]]
    group_size: int
    temperature: float  # 0 means greedy
    max_new_tokens: int
    stop_ids: list[int]  # they end a response and belong to it
    stop: list[str]  # text that ends a response; only for an engine that was started with a tokenizer
    seeds: list[int]  # one a response
    adapter: int  # the policy's version
    adapter_path: str


@dataclass(frozen=True)
class Drawn:
    """The responses of all prompts, N = P x group_size, one after another."""

    length: np.ndarray  # (N,) int32
    token_ids: np.ndarray  # (sum of lengths,) int32
    logprob: np.ndarray  # (sum of lengths,) float32, of each token under the distribution it was drawn from


@dataclass(frozen=True)
class Failure:
    words: str  # the exception, in one line
