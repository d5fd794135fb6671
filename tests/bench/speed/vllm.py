"""Sampling through vLLM: the lab's engine, and vLLM alone, under the same adapter, which changes at every turn.

A turn is what a training step needs: the changed adapter written to the disk and read by vLLM, then the rollouts.
"""

from __future__ import annotations

import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path

import torch

from core.config import RunConfig
from core.engines.base import Engine, SampleKey, Sampling
from core.engines.choose import make_engine
from core.engines.text import Texts
from core.engines.vllm_process import environment
from core.train.policy import Policy, load_policy
from tests.bench.speed.result import Comparison
from tests.bench.speed.rollouts import rate, rollouts_of
from tests.bench.speed.step import changed, prompts_of
from tests.bench.speed.vllm_peer import Ask, RawVllm, arguments


@dataclass(frozen=True)
class VllmBench:
    """`warm_up` + `rounds` turns of a step's prompts x group size."""

    config: RunConfig
    rounds: int
    warm_up: int

    def run(self) -> Comparison:
        """Raises EngineError, ConfigError where vLLM cannot run here."""
        config, turns = self.config, self.rounds + self.warm_up
        torch.set_num_threads(config.threads or torch.get_num_threads())
        policy = load_policy(config)
        prompts = [prompt.text for prompt in prompts_of(changed(config, steps=turns))]
        ours: list[float] = []
        theirs: list[float] = []
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
            folder = Path(place)
            engine = make_engine(config, policy, folder)
            path = policy.model.get_base_model().name_or_path
            raw = RawVllm(arguments(path, config), environment("cpu", None, torch.get_num_threads(), folder))
            texts = Texts(policy.tokenizer)
            try:
                for turn in range(turns):
                    asked = prompts[turn * config.prompts_per_step :][: config.prompts_per_step]
                    _change(policy, turn)
                    ours.append(rate(lambda asked=asked, turn=turn: _ours(engine, config, asked, turn)))
                    theirs.append(
                        rate(lambda asked=asked, turn=turn: _raw(raw, texts, policy, config, folder, asked, turn))
                    )
            finally:
                engine.close()
                raw.close()
        ours_rate, raw_rate = (statistics.median(rates[self.warm_up :]) for rates in (ours, theirs))
        return rollouts_of(config, "vllm", ours_rate, raw_rate, self.rounds)


def _change(policy: Policy, turn: int) -> None:
    """Another adapter at every turn, none of them zero."""
    random = torch.Generator().manual_seed(turn)
    with torch.no_grad():
        for name, parameter in policy.parameters.items():
            if "lora_B" in name:
                parameter.copy_(torch.randn(parameter.shape, generator=random) * 0.01)


def _ours(engine: Engine, config: RunConfig, prompts: list[str], turn: int) -> int:
    sampling = Sampling(config.sampling.temperature, config.sampling.max_new_tokens)
    key = SampleKey(config.seed, "train", turn)
    return int(engine.generate(prompts, config.group_size, sampling, key, turn).length.sum())


def _raw(
    raw: RawVllm, texts: Texts, policy: Policy, config: RunConfig, folder: Path, prompts: list[str], turn: int
) -> int:
    adapter = folder / f"raw-{turn}"
    policy.save(adapter)
    sampling = config.sampling
    return raw.generate(
        Ask(
            texts.encode(prompts), config.group_size, sampling.temperature, sampling.max_new_tokens, turn + 1,
            str(adapter),
        )
    )  # fmt: skip
