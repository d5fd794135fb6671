"""The process that vLLM lives in: `python -m core.engines.vllm_child FD`, started by `core.engines.vllm_process`.

It answers the messages that come over the socket FD, one at a time, and ends with the trainer: the kernel kills it when
the trainer's process goes (on Linux), and a closed socket tells it to leave. What vLLM prints goes where stdout goes.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import traceback
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING

import numpy as np

from core.engines.vllm_messages import Drawn, Failure, Ready, Request, Start

if TYPE_CHECKING:
    from vllm import LLM

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Make the engine, then draw until the socket is closed; an error ends the process once it is told."""
    _end_with_parent(int(sys.argv[2]))
    os.set_inheritable(int(sys.argv[1]), False)
    connection = Connection(int(sys.argv[1]))
    try:
        engine = _start(connection.recv())
        connection.send(Ready(engine.llm_engine.model_config.max_model_len))
        while True:
            connection.send(draw(engine, connection.recv()))
    except EOFError:
        _leave(0)
    except Exception as error:  # noqa: BLE001 - whatever it is, the trainer has to hear of it
        traceback.print_exc()
        connection.send(Failure(f"{type(error).__name__}: {' '.join(str(error).split())}"))
        _leave(1)


def _start(start: Start) -> LLM:
    from vllm import LLM

    if start.one_adapter:
        from core.engines.vllm_lora import install

        install()
    return LLM(**start.arguments)


def draw(engine: LLM, request: Request) -> Drawn:
    """All responses in one call, each with a seed of its own, so that they do not depend on one another."""
    from vllm import SamplingParams
    from vllm.inputs import TokensPrompt
    from vllm.lora.request import LoRARequest
    from vllm.sampling_params import RequestOutputKind

    prompts = [TokensPrompt(prompt_token_ids=ids) for ids in request.prompt_ids for _ in range(request.group_size)]
    sampling = [
        SamplingParams(
            temperature=request.temperature,
            seed=seed,
            max_tokens=request.max_new_tokens,
            stop_token_ids=request.stop_ids,
            stop=request.stop,
            include_stop_str_in_output=True,
            ignore_eos=True,
            logprobs=0,
            flat_logprobs=True,
            detokenize=bool(request.stop),
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        for seed in request.seeds
    ]
    adapter = LoRARequest(f"policy-{request.adapter}", request.adapter + 1, request.adapter_path)
    answers = engine.generate(prompts, sampling, use_tqdm=False, lora_request=adapter)
    responses = [answer.outputs[0] for answer in answers]
    length = np.array([len(response.token_ids) for response in responses], dtype=np.int32)
    token_ids = np.array([token for response in responses for token in response.token_ids], dtype=np.int32)
    logprob = np.array([value for response in responses for value in response.logprobs.logprobs], dtype=np.float32)
    return Drawn(length, token_ids, logprob)


def _end_with_parent(parent: int) -> None:
    """Have the kernel kill this process when the trainer's ends. To stop is the trainer's to hear, after its step."""
    for asked in (signal.SIGINT, signal.SIGTERM):
        signal.signal(asked, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it ended before the kernel was asked
            _leave(1)


def _leave(code: int) -> None:
    """End at once: vLLM has nothing to save, and its own way out takes seconds."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
