"""Hostile text is stored inertly, and comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.store.text import decode, encode, encode_all

anything = st.text(st.characters(codec=None) | st.sampled_from("\x00\ud800\udfff\u241bu0123456789abcdef\\"))


@given(anything)
def test_every_text_comes_back(text: str) -> None:
    stored = encode(text)
    assert decode(stored) == text
    assert "\x00" not in stored
    stored.encode("utf-8")  # raises on a lone surrogate


@pytest.mark.parametrize(
    "text", ["", "\\boxed{18}", "<script>alert(1)</script>", "\x1b[31mred", "\u202eabc", "é 漢 🦆", "\\ud800", "⟨eos⟩"]
)
def test_text_that_is_safe_to_store_is_stored_as_it_is(text: str) -> None:
    assert encode(text) == text


def test_escapes_are_visible_and_tell_apart_what_was_written_so() -> None:
    assert encode("a\ud83d") == "a\u241bud83d"
    assert encode("a\x00") == "a\u241bu0000"
    assert encode("a\u241bud83d") == "a\u241b\u241bud83d"


@given(st.lists(anything))
def test_many_texts_at_once_are_encoded_like_each_alone(texts: list[str]) -> None:
    assert encode_all(texts) == [encode(text) for text in texts]
