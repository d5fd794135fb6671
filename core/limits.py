"""How much is computed at once: bounds that trade memory for speed. What is computed does not depend on them, but for
rounding. No torch here: the memory plan of a run reads them too.
"""

from __future__ import annotations

CACHE_BYTES = 2 * 2**30
"""About the largest key-value cache of one sampling batch; more rollouts are sampled one batch after another."""
CACHE_GROWTH = 32
"""Tokens by which the fast decoder's cache grows: a small one is read faster, and rows that end early need no more."""
BASE_BYTES = 2**30
"""Of a Llama's linear layers up to this size, the base weights are kept joined beside those with the adapter merged in,
which makes a merge twice as fast."""
MAX_TOKENS = 16_384
"""Padded tokens of a training micro-batch at most."""
MAX_LOGITS = 2**27
"""Numbers in a micro-batch's logits at most (half a gigabyte in float32)."""
CHUNK_LOGITS = 2**24
"""Numbers in the logits that are looked at together, at most (64 MB in float32), where the head is one matrix."""
PACKED_BYTES = 2 * 2**30
"""About what a micro-batch of packed rollouts keeps for the backward pass, at most."""
PACKED_LONGEST = 1024
"""Tokens of prompt and response up to which rollouts are packed: the weights of their attention are kept as a whole."""
MIN_TOKENS = 1024
"""However large the vocabulary is, a micro-batch may have so many tokens."""


def micro_batch_tokens(vocabulary: int, wanted: int | None = None) -> int:
    """The padded tokens of a micro-batch: `wanted`, else what the two bounds leave for this vocabulary."""
    return wanted or max(MIN_TOKENS, min(MAX_TOKENS, MAX_LOGITS // max(1, vocabulary)))
