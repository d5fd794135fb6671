"""The engine for speed on a GPU: vLLM in a process of its own, which gets the policy's adapter by file.

The process isolates what vLLM changes in torch, its threads and its memory; it starts once a run and ends with it.
Every version of the policy is a new adapter to vLLM, with an id, a name and a path of its own: vLLM caches weights by
id, and the keys and values of prompts by name and path. It gives the log-probs of the tokens it drew, but no entropies.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from core.config import RunConfig
from core.engines.base import EngineError, Rollouts, SampleKey, Sampling
from core.engines.choose import VLLM_RANKS
from core.engines.stops import end_of, named_ids
from core.engines.text import Texts, check_room, eos_ids
from core.engines.vllm_messages import Drawn, Ready, Request, Start
from core.engines.vllm_process import VllmProcess, environment

if TYPE_CHECKING:
    from core.train.policy import Policy

FOLDER = "vllm"
MOST_AT_ONCE = 512
"""Rollouts that vLLM works on at the same time, at most; more wait their turn."""
CPU_BLOCK = 32
"""Tokens in a block of the cache on a CPU: prompts share whole blocks, and vLLM's own 128 are longer than most."""


class VllmEngine:
    """Samples with vLLM from the policy's current adapter. Raises EngineError with vLLM's own words.

    `rank` tells the processes of one run apart that train together.
    """

    def __init__(self, config: RunConfig, policy: Policy, run_dir: Path, rank: int = 0):
        suffix = f"-{rank}" if rank else ""
        model = policy.model.get_base_model()
        self.texts = Texts(policy.tokenizer, config.system_prompt)
        self.reads_text = bool(config.sampling.stop)
        self.eos = eos_ids(model, policy.tokenizer)
        self.pad = policy.tokenizer.pad_token_id if policy.tokenizer.pad_token_id is not None else self.eos[0]
        self.folder = (run_dir / f"{FOLDER}{suffix}").resolve()
        shutil.rmtree(self.folder, ignore_errors=True)  # of a process that was killed
        (self.folder / "tmp").mkdir(parents=True)
        self.adapters = Adapters(policy, self.folder)
        device = policy.device
        variables = environment(device.type, device.index, torch.get_num_threads(), self.folder / "tmp")
        self.process = VllmProcess(run_dir / f"{FOLDER}{suffix}.txt", variables)
        try:
            start = Start(_arguments(config, model.name_or_path, device.type), one_adapter=device.type == "cpu")
            ready: Ready = self.process.ask(start)
        except BaseException:
            self.close()
            raise
        self.context = ready.context

    def generate(
        self, prompts: Sequence[str], group_size: int, sampling: Sampling, key: SampleKey, adapter: int = 0
    ) -> Rollouts:
        """`group_size` responses a prompt from the policy of version `adapter`, without entropies."""
        prompt_ids = self.texts.encode(prompts)
        check_room(prompts, prompt_ids, sampling.max_new_tokens, self.context)
        ends = [*self.eos, *named_ids(self.texts.tokenizer, sampling.stop)]
        request = Request(
            prompt_ids,
            group_size,
            sampling.temperature,
            sampling.max_new_tokens,
            ends,
            list(sampling.stop) if self.reads_text else [],
            seeds(key, len(prompts), group_size),
            adapter,
            str(self.adapters.path(adapter)),
        )
        return self._rollouts(prompt_ids, self._rows(self.process.ask(request), sampling), ends)

    def close(self) -> None:
        """End vLLM's process, and remove its temporary files and the adapters it read."""
        self.process.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _rows(self, drawn: Drawn, sampling: Sampling) -> list[tuple[np.ndarray, np.ndarray, bool]]:
        """Token ids and log-probs of each response up to its first stop string, and whether it ended by one or before
        its longest length. vLLM looks for them as well, where it may: what it drew after one is left out here."""
        if not np.isfinite(drawn.logprob).all():
            raise EngineError("vLLM's log-probs are not finite numbers: try a lower optimizer.lr in a new run")
        places = np.cumsum(drawn.length)[:-1]
        rows = []
        for ids, logprob in zip(np.split(drawn.token_ids, places), np.split(drawn.logprob, places), strict=True):
            end = end_of(self.texts.tokenizer, sampling.stop, ids.tolist()) if sampling.stop else None
            rows.append((ids[:end], logprob[:end], end is not None or len(ids) < sampling.max_new_tokens))
        return rows

    def _rollouts(
        self, prompt_ids: list[list[int]], rows: Sequence[tuple[np.ndarray, np.ndarray, bool]], ends: Sequence[int]
    ) -> Rollouts:
        length = np.array([len(ids) for ids, *_ in rows], dtype=np.int32)
        shape = len(rows), int(length.max())
        mask = np.arange(shape[1]) < length[:, None]
        token_ids = np.full(shape, self.pad, dtype=np.int32)
        logprob = np.zeros(shape, dtype=np.float32)
        token_ids[mask] = np.concatenate([ids for ids, *_ in rows])
        logprob[mask] = np.concatenate([values for _, values, _ in rows])
        tokens = [ids.tolist() for ids, *_ in rows]
        return Rollouts(
            prompt_ids=prompt_ids,
            token_ids=token_ids,
            length=length,
            truncated=np.array([not ended and ids[-1] not in ends for ids, _, ended in rows]),
            logprob=logprob,
            entropy=None,
            text=self.texts.responses(tokens),
            token_text=[[self.texts.token(token) for token in row] for row in tokens],
        )


class Adapters:
    """The policy's adapter as a folder for vLLM, written anew where the version has changed."""

    def __init__(self, policy: Policy, folder: Path):
        self.policy = policy
        self.folder = folder
        self._version: int | None = None

    def path(self, version: int) -> Path:
        """The folder with the current weights, which are those of `version`. Versions only grow."""
        place = self._place(version)
        if version != self._version:
            if self._version is not None and version < self._version:
                raise ValueError(
                    f"adapter {version} after {self._version}: vLLM would use what it cached for {version}"
                )
            self.policy.save(place)
            if self._version is not None:
                shutil.rmtree(self._place(self._version))
            self._version = version
        return place

    def _place(self, version: int) -> Path:
        return self.folder / f"adapter-{version}"


def seeds(key: SampleKey, groups: int, group_size: int) -> list[int]:
    """One seed a response, of 63 bits, that depends on (seed, split, step, group, rollout) and on nothing else."""
    found = []
    for group in range(key.first_group, key.first_group + groups):
        for rollout in range(group_size):
            name = f"{key.seed}/{key.split}/{key.step}/{group}/{rollout}"
            found.append(int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little") >> 1)
    return found


def _arguments(config: RunConfig, path: str, device: str) -> dict[str, Any]:
    """What vllm.LLM is made with."""
    settings = config.vllm
    at_once = max(config.prompts_per_step * config.group_size, config.evaluate.prompts * config.evaluate.rollouts)
    if device == "cpu":
        of_device = {
            "kv_cache_memory_bytes": int(settings.kv_cache_gb * 2**30),
            "block_size": CPU_BLOCK,
            "enable_chunked_prefill": False,  # a seeded request fails on a CPU when its prompt is cut in two
            "dtype": "float32",
        }
    else:
        of_device = {
            "gpu_memory_utilization": settings.gpu_share,
            "dtype": "bfloat16" if config.precision == "bfloat16" else "auto",  # 16 bits: its LoRA kernels need them
        }
    return {
        "model": path,
        "skip_tokenizer_init": not config.sampling.stop,
        "trust_remote_code": False,
        "load_format": "safetensors",
        "generation_config": "vllm",  # nothing of the model's own sampling settings
        "seed": config.seed,
        "max_model_len": -1,  # the model's context, or as much of it as the cache can hold
        "max_num_seqs": min(at_once, MOST_AT_ONCE),
        "enforce_eager": device == "cpu" if settings.eager is None else settings.eager,
        "enable_lora": True,
        "max_loras": 1,
        "max_lora_rank": next(rank for rank in VLLM_RANKS if rank >= config.lora.r),
        "enable_prefix_caching": True,
        "logprobs_mode": "processed_logprobs",
        **of_device,
    }
