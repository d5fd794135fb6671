"""One large JSON object, read a value at a time: its fields in order, and the items of one list on their own.

A list of entries may be larger than the memory: each item is parsed, given and let go.
"""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any, BinaryIO

from core.importers.formats._values import Refused

CHUNK = 2**20
LARGEST = 512 * 2**20
"""Characters of one value at most."""
_SPACE = " \t\r\n\ufeff"
TORN = "the file ends within a value, or is no JSON"


class Reader:
    """A cursor over the text of a file. Raises Refused where the text ends or is no JSON."""

    def __init__(self, handle: BinaryIO) -> None:
        self._handle = handle
        self._decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        self._parse = json.JSONDecoder().raw_decode
        self._text, self._at, self._ended = "", 0, False

    def _more(self, wanted: int = CHUNK) -> bool:
        if self._ended or len(self._text) - self._at > LARGEST:
            return False
        raw = self._handle.read(wanted)
        self._ended = not raw
        self._text, self._at = self._text[self._at :] + self._decode(raw, self._ended), 0
        return not self._ended

    def sign(self) -> str:
        """The next character that is no space; it is not passed. Empty at the end of the file."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._more():
                return ""

    def pass_sign(self, wanted: str) -> None:
        """Pass the next sign, which must be one of `wanted`."""
        if self.sign() not in tuple(wanted):
            raise Refused(TORN)
        self._at += 1

    def value(self) -> Any:
        """The next value."""
        self.sign()
        while True:
            try:
                value, end = self._parse(self._text, self._at)
            except (ValueError, RecursionError):
                # Twice as much each time, so that a long value is not parsed over and over.
                if not self._more(max(CHUNK, len(self._text) - self._at)):
                    raise Refused(TORN) from None
                continue
            if end == len(self._text) and self._more():
                continue
            self._at = end
            return value


AFTER = ""
"""The name under which `fields` says whether something follows the object."""


def fields(handle: BinaryIO, listed: str) -> Iterator[tuple[str, Any]]:
    """(name, value) of each field of the object, and (listed, item) of each item of the list under `listed`.

    At last (AFTER, whether the file goes on behind the object).
    """
    reader = Reader(handle)
    reader.pass_sign("{")
    while reader.sign() != "}":
        name = reader.value()
        if not isinstance(name, str):
            raise Refused(TORN)
        reader.pass_sign(":")
        if name == listed and reader.sign() == "[":
            reader.pass_sign("[")
            while reader.sign() != "]":
                yield name, reader.value()
                if reader.sign() != "]":
                    reader.pass_sign(",")
            reader.pass_sign("]")
        else:
            yield name, reader.value()
        if reader.sign() != "}":
            reader.pass_sign(",")
    reader.pass_sign("}")
    yield AFTER, reader.sign() != ""
