"""Untrusted text on its way into the store.

Lone surrogates crash Arrow and null bytes cut strings short in C libraries, so both are stored as a visible, reversible
escape: U+241B (the picture of the escape key, ␛), `u`, four hex digits. ␛ itself is doubled. Everything else is stored
as it is, the backslash of `\\boxed{}` included. HTML, ANSI codes and direction marks are harmless here; pages make them
inert.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

ESCAPE = "\u241b"
_UNSAFE = re.compile("[\x00\ud800-\udfff\u241b]")
_ESCAPED = re.compile(ESCAPE + "(?:u([0-9a-f]{4})|" + ESCAPE + ")")


def encode(text: str) -> str:
    """The text as the store keeps it: valid UTF-8 without null bytes. `decode` gives the original back."""
    return _UNSAFE.sub(lambda m: ESCAPE * 2 if m[0] == ESCAPE else f"{ESCAPE}u{ord(m[0]):04x}", text)


def decode(text: str) -> str:
    """The text before `encode`."""
    return _ESCAPED.sub(lambda m: chr(int(m[1], 16)) if m[1] else ESCAPE, text)


def encode_all(texts: Iterable[str | None]) -> list[str | None]:
    """`encode` of each, None stays; one scan where nothing needs it."""
    texts = list(texts)
    together = "".join(filter(None, texts))
    if (together.isascii() and "\0" not in together) or not _UNSAFE.search(together):
        return texts
    return [text and encode(text) for text in texts]
