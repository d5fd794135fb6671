"""Stop strings where text and tokens do not line up: bytes, spaces, special tokens."""

from __future__ import annotations

import numpy as np
import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from core.engines.base import SampleKey, Sampling
from core.engines.stops import StopWatch, end_of, named_ids
from core.engines.transformers import TransformersEngine
from tests.core import tiny

SPECIAL = ("<eos>", "<|turn|>")


@pytest.fixture(scope="module")
def bytewise() -> PreTrainedTokenizerFast:
    """A byte is a token: a letter beyond ASCII is several."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Tokenizer(models.BPE({**{c: i for i, c in enumerate(letters)}}, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=SPECIAL[0], additional_special_tokens=[SPECIAL[1]]
    )


@pytest.fixture(scope="module")
def pieces() -> PreTrainedTokenizerFast:
    """SentencePiece-like: the space that a text begins with is lost when it is decoded."""
    vocabulary = {name: i for i, name in enumerate(["<unk>", "▁so", "▁Q", ":", "▁", "a"])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.decoder = decoders.Sequence([decoders.Metaspace()])
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>")


def ids_of(tokenizer: PreTrainedTokenizerFast, text: str) -> list[int]:
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@pytest.mark.parametrize(
    ("text", "stop", "kept"),
    [
        ("one.two", ["."], "one."),
        ("x = 5\n\nQ: next", ["\n\nQ:"], "x = 5\n\nQ:"),
        ("café noir", ["é"], "café"),
        ("日本語です", ["語", "で"], "日本語"),
        ("a long way before it ends here, says the text", ["ends here"], "a long way before it ends here"),
        ("abab", ["bab", "ab"], "ab"),
        ("nothing of it", ["zork"], None),
    ],
)
def test_the_token_that_completes_the_first_one_is_the_last(
    bytewise: PreTrainedTokenizerFast, text: str, stop: list[str], kept: str | None
) -> None:
    ids = ids_of(bytewise, text)
    end = end_of(bytewise, stop, ids)
    assert end == (None if kept is None else len(kept.encode()))


def test_a_stop_string_may_begin_with_a_space_that_decoding_drops(pieces: PreTrainedTokenizerFast) -> None:
    ids = pieces.convert_tokens_to_ids(["▁so", *["a"] * 20, "▁Q", ":", "a"])
    assert end_of(pieces, [" Q:"], ids) == 23


def test_special_tokens_are_no_text_but_may_be_named(bytewise: PreTrainedTokenizerFast) -> None:
    turn = bytewise.convert_tokens_to_ids(SPECIAL[1])
    ids = [*ids_of(bytewise, "ab"), turn, *ids_of(bytewise, "cd")]
    assert end_of(bytewise, ["bc"], ids) == 4, "as the text reads, without them"
    assert end_of(bytewise, [SPECIAL[1]], ids) is None
    assert named_ids(bytewise, [SPECIAL[1], "bc"]) == [turn]


def test_each_response_is_followed_by_itself(bytewise: PreTrainedTokenizerFast) -> None:
    watch = StopWatch(bytewise, ["ab"], 3)
    a, b, eos = (bytewise.convert_tokens_to_ids(name) for name in ("a", "b", "<eos>"))
    assert watch.completed([0, 1, 2], [a, b, a]) == set()
    assert watch.completed([0, 1, 2], [eos, eos, eos]) == set()
    assert watch.completed([1, 2], [b, b]) == {1}


def test_a_named_special_token_ends_a_response() -> None:
    tokenizer = tiny.tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": ["7"]})
    seven = tokenizer.convert_tokens_to_ids("7")
    engine = TransformersEngine(tiny.llama(), tokenizer)
    key = SampleKey(0, "train", 0)
    rollouts = engine.generate(["1=?", "23=?"], 32, Sampling(max_new_tokens=12, stop=("7",)), key)
    last = rollouts.token_ids[np.arange(64), rollouts.length - 1]
    assert 0 < (last == seven).sum() < 64
    assert not rollouts.truncated[last == seven].any()
    assert not any((ids[: n - 1] == seven).any() for ids, n in zip(rollouts.token_ids, rollouts.length, strict=True))
