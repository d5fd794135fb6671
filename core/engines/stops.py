"""Stop strings: which responses have just come to one, and where in a finished response the first one ends.

A response ends with the token that completes a stop string. The text is what `Texts.responses` gives, special tokens
left out; a stop string that is a special token's name is that token's id instead.
"""

from __future__ import annotations

from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

MARGIN = 4
"""Tokens beyond the longest stop string that are read with it: some tokenizers drop a space where a text begins."""


def named_ids(tokenizer: PreTrainedTokenizerBase, stop: Sequence[str]) -> list[int]:
    """The ids of the special tokens that stop strings name."""
    names = dict(zip(tokenizer.all_special_tokens, tokenizer.all_special_ids, strict=True))
    return [names[text] for text in stop if text in names]


class StopWatch:
    """Follows responses as they grow, token by token.

    Only the end of a response is decoded: a token that is text has a byte at least, so a stop string has no more tokens
    than bytes.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, stop: Sequence[str], responses: int):
        self.tokenizer = tokenizer
        self.special = set(tokenizer.all_special_ids)
        self.stop = tuple(stop)
        self.window = max(len(text.encode("utf-8", "surrogatepass")) for text in stop) + MARGIN
        self.tails: list[list[int]] = [[] for _ in range(responses)]

    def completed(self, responses: Sequence[int], tokens: Sequence[int]) -> set[int]:
        """The indices i at which `tokens[i]`, which `responses[i]` has just drawn, completes a stop string."""
        drawn = [i for i, token in enumerate(tokens) if token not in self.special]
        for i in drawn:
            tail = self.tails[responses[i]]
            tail.append(tokens[i])
            del tail[: -self.window]
        if not drawn:
            return set()  # of no responses the library makes one empty text
        texts = self.tokenizer.batch_decode(
            [self.tails[responses[i]] for i in drawn], skip_special_tokens=True, clean_up_tokenization_spaces=False
        )
        return {i for i, text in zip(drawn, texts, strict=True) if any(each in text for each in self.stop)}


def end_of(tokenizer: PreTrainedTokenizerBase, stop: Sequence[str], ids: Sequence[int]) -> int | None:
    """How many tokens of a response there are up to the one that completes its first stop string; None without one."""
    watch = StopWatch(tokenizer, stop, 1)
    return next((count for count, token in enumerate(ids, 1) if watch.completed([0], [token])), None)
