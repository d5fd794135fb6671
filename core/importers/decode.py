"""Texts for rollouts that came as token ids alone, by a tokenizer that the importer names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from core.importers.base import SCHEMA, ImportFailed
from core.importers.formats._values import ids_shown
from core.store.text import encode

if TYPE_CHECKING:
    from tokenizers import Tokenizer

FILE = "tokenizer.json"


class Decoder:
    """Fills in each token's text, the response and the prompt where a reader gives ids alone."""

    def __init__(self, folder: Path) -> None:
        """`folder` has a tokenizer.json, as every fast tokenizer of a model has. Raises ImportFailed without one."""
        self.folder = folder
        self._tokenizer = _load(folder / FILE if folder.is_dir() else folder)
        self._known: dict[int, str] = {}

    def __call__(self, table: pa.Table) -> pa.Table:
        """The same table with those texts that it lacked."""
        columns = {name: table[name].to_pylist() if name in table.column_names else None for name in _TEXTS}
        every = columns.pop("token_ids")
        if every is None:
            return table
        tokens, texts, prompts = (given or [None] * len(table) for given in columns.values())
        made = {
            "tokens": [
                [self._token(one) for one in ids] if ids and own is None else own
                for ids, own in zip(every, tokens, strict=True)
            ],
            "text": [self._text(ids) if ids and own is None else own for ids, own in zip(every, texts, strict=True)],
            "prompt": [self._text(ids) if own and (ids := ids_shown(own)) else own for own in prompts],
        }
        for name, values in made.items():
            column = pa.array(values, SCHEMA.field(name).type)
            place = table.schema.get_field_index(name)
            table = table.append_column(name, column) if place < 0 else table.set_column(place, name, column)
        return table

    def _token(self, token: int) -> str:
        if token not in self._known:
            self._known[token] = (
                encode(self._tokenizer.decode([token], skip_special_tokens=False)) if token >= 0 else ""
            )
        return self._known[token]

    def _text(self, ids: list[int]) -> str:
        return encode(self._tokenizer.decode([one for one in ids if one >= 0], skip_special_tokens=True))


_TEXTS = ("token_ids", "tokens", "text", "prompt")


def _load(file: Path) -> Tokenizer:
    from tokenizers import Tokenizer

    if not file.is_file():
        raise ImportFailed(f"--tokenizer {file}: there is no such file; name a model's folder with its {FILE}")
    try:
        return Tokenizer.from_file(str(file))
    except Exception as error:
        words = " ".join(str(error).split())[:200]
        raise ImportFailed(f"--tokenizer {file}: not a tokenizer that can be read ({words})") from error
