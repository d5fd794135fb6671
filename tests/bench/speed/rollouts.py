"""Sampling alone: the lab's engine and transformers' `generate`, the same model, adapter and prompts."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from core.config import RunConfig
from core.engines.base import SampleKey, Sampling
from core.engines.text import Texts, eos_ids
from core.engines.transformers import TransformersEngine
from tests.bench.speed.result import Comparison
from tests.bench.speed.step import changed, prompts_of
from tests.bench.speed.weights import adapted_model


@dataclass(frozen=True)
class RolloutBench:
    """`rounds` turns of a step's prompts x group size; every turn has prompts of its own."""

    config: RunConfig
    rounds: int
    warm_up: int

    def run(self) -> Comparison:
        config = self.config
        torch.set_num_threads(config.threads or torch.get_num_threads())
        turns = self.rounds + self.warm_up
        prompts = [prompt.text for prompt in prompts_of(changed(config, steps=turns))]
        ask_ours, ask_peer = _ours(config), _generate(config)
        ours: list[float] = []
        theirs: list[float] = []
        for turn in range(turns):
            asked = prompts[turn * config.prompts_per_step :][: config.prompts_per_step]
            ours.append(rate(lambda asked=asked, turn=turn: ask_ours(asked, turn)))
            theirs.append(rate(lambda asked=asked, turn=turn: ask_peer(asked, turn)))
        ours_rate, peer_rate = (statistics.median(rates[self.warm_up :]) for rates in (ours, theirs))
        return rollouts_of(config, "generate", ours_rate, peer_rate, self.rounds)


def rollouts_of(config: RunConfig, peer: str, ours: float, theirs: float, rounds: int) -> Comparison:
    """A comparison of two rates, in tokens a second."""
    return Comparison(
        what=f"rollouts of {config.model}, {config.prompts_per_step} prompts x {config.group_size}, "
        f"at most {config.sampling.max_new_tokens} new tokens",
        unit="tokens/s",
        peer=peer,
        ours=ours,
        theirs=theirs,
        ratio=ours / theirs,
        rounds=rounds,
        threads=torch.get_num_threads(),
        seconds=False,
    )


Ask = Callable[[list[str], int], int]
"""Samples for the prompts of a turn; the number of tokens."""


def _ours(config: RunConfig) -> Ask:
    model, tokenizer = adapted_model(config)
    engine = TransformersEngine(model.eval(), tokenizer)
    sampling = Sampling(config.sampling.temperature, config.sampling.max_new_tokens)

    def ask(prompts: list[str], turn: int) -> int:
        key = SampleKey(config.seed, "train", turn)
        return int(engine.generate(prompts, config.group_size, sampling, key, turn).length.sum())

    return ask


def _generate(config: RunConfig) -> Ask:
    model, tokenizer = adapted_model(config)
    model.eval()
    texts, eos = Texts(tokenizer), eos_ids(model.get_base_model(), tokenizer)

    def ask(prompts: list[str], turn: int) -> int:
        torch.manual_seed(turn)
        inputs = tokenizer.pad({"input_ids": texts.encode(prompts)}, return_tensors="pt")
        with torch.inference_mode():
            ids = model.generate(
                **inputs,
                do_sample=True,
                temperature=config.sampling.temperature,
                top_p=1.0,
                top_k=0,
                num_return_sequences=config.group_size,
                max_new_tokens=config.sampling.max_new_tokens,
                eos_token_id=eos,
                pad_token_id=tokenizer.pad_token_id,
            )[:, inputs["input_ids"].shape[1] :]
        tokenizer.batch_decode(ids, skip_special_tokens=True)
        ended = torch.isin(ids, torch.tensor(eos))
        before_the_end = (ended.cumsum(1) - ended.long()) == 0
        return int(before_the_end.sum())

    return ask


def rate(ask: Callable[[], int]) -> float:
    """Tokens a second."""
    started = time.perf_counter()
    tokens = ask()
    return tokens / (time.perf_counter() - started)
