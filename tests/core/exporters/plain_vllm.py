"""A base model and an adapter in plain vLLM: `plain_vllm.py BASE ADAPTER IDS` prints greedy ids and their log-probs."""

from __future__ import annotations

import json
import sys

from vllm import LLM, SamplingParams
from vllm.lora.request import LoRARequest


def main() -> None:
    base, adapter, ids = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    engine = LLM(
        model=base, dtype="float32", enforce_eager=True, enable_lora=True, max_lora_rank=8, skip_tokenizer_init=True,
        kv_cache_memory_bytes=2**27, block_size=32, enable_chunked_prefill=False, max_num_seqs=4,
    )  # fmt: skip
    wanted = SamplingParams(temperature=0, max_tokens=8, logprobs=0, detokenize=False, ignore_eos=True)
    found = []
    for request in (None, LoRARequest("exported", 1, adapter)):
        (answer,) = engine.generate([{"prompt_token_ids": ids}], wanted, use_tqdm=False, lora_request=request)
        (response,) = answer.outputs
        logprobs = [step[token].logprob for step, token in zip(response.logprobs, response.token_ids, strict=True)]
        found.append({"ids": list(response.token_ids), "logprobs": logprobs})
    print("\n" + json.dumps(found))


if __name__ == "__main__":
    main()
