"""vLLM alone, in a process of its own: `LLM.generate` with a LoRARequest, nothing of the lab in between."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from core.config import RunConfig

SECONDS_TO_LEAVE = 30


@dataclass(frozen=True)
class Ask:
    """A turn: prompts as token ids, and the adapter's folder with the number of its version."""

    prompt_ids: list[list[int]]
    group_size: int
    temperature: float
    max_new_tokens: int
    adapter: int
    folder: str


class RawVllm:
    """One engine with `arguments`, started in the environment `variables`; `close` ends it."""

    def __init__(self, arguments: dict[str, Any], variables: dict[str, str]):
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        with _variables(variables):
            self.process = context.Process(target=_serve, args=(theirs, arguments), daemon=True)
            self.process.start()
        theirs.close()
        self.connection.recv()  # it is ready

    def generate(self, ask: Ask) -> int:
        """The number of tokens that it drew."""
        self.connection.send(ask)
        return self.connection.recv()

    def close(self) -> None:
        self.connection.close()
        self.process.join(SECONDS_TO_LEAVE)
        self.process.kill()


def _serve(connection: Connection, arguments: dict[str, Any]) -> None:
    os.dup2(2, 1)  # what vLLM prints is no result of the bench
    from vllm import LLM, SamplingParams
    from vllm.inputs import TokensPrompt
    from vllm.lora.request import LoRARequest

    engine = LLM(**arguments)
    connection.send(True)
    while True:
        try:
            ask: Ask = connection.recv()
        except EOFError:
            return
        answers = engine.generate(
            [TokensPrompt(prompt_token_ids=ids) for ids in ask.prompt_ids],
            SamplingParams(n=ask.group_size, temperature=ask.temperature, top_p=1.0, max_tokens=ask.max_new_tokens),
            use_tqdm=False,
            lora_request=LoRARequest(f"adapter-{ask.adapter}", ask.adapter, ask.folder),
        )
        connection.send(sum(len(each.token_ids) for answer in answers for each in answer.outputs))


@contextmanager
def _variables(variables: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def arguments(path: str, config: RunConfig) -> dict[str, Any]:
    """What both engines must agree on; all else is vLLM's own choice."""
    return {
        "model": path,
        "dtype": config.precision,
        "enforce_eager": True,
        "enable_lora": True,
        "max_loras": 1,
        "max_lora_rank": config.lora.r,
        "kv_cache_memory_bytes": int(config.vllm.kv_cache_gb * 2**30),
    }
