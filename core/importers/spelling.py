"""Texts for rollouts that came as token ids alone: a model's own tokenizer.json spells them.

That file is data; nothing beside it is read or run. Texts that the files have themselves are never replaced.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tokenizers import Tokenizer

from core.importers.base import SCHEMA, ImportFailed, Report
from core.importers.formats._values import SHOWN_IDS

FILE = "tokenizer.json"
LARGEST = 256 * 2**20
LONGEST = 10_000
"""Characters of a token: a model's longest have some hundred."""
NAME_ONE = "name the folder of the model that sampled"
_IDS = re.compile(re.escape(SHOWN_IDS) + r"\d{1,9}(?: \d{1,9})*")


class Speller:
    """`path` is a model's folder, or its tokenizer.json. Raises ImportFailed where there is none that can be read."""

    def __init__(self, path: Path) -> None:
        file = path / FILE if path.is_dir() else path
        self.name = path.name
        if not file.is_file():
            raise ImportFailed(f"the tokenizer {path}: there is no {FILE}; name the folder of the model that sampled")
        if file.stat().st_size > LARGEST:
            raise ImportFailed(f"the tokenizer {file} is larger than 256 MB: name a model's {FILE}")
        try:
            self._tokenizer = Tokenizer.from_str(file.read_text(encoding="utf-8"))
        except Exception as error:
            words = str(error).partition("\n")[0][:200]
            raise ImportFailed(f"the tokenizer {file} cannot be read ({words}): name a model's {FILE}") from error
        self._special = {i for i, token in self._tokenizer.get_added_tokens_decoder().items() if token.special}
        self._known: dict[int, str] = {}
        self.unknown = 0
        """Tokens whose id the tokenizer does not have."""

    def fill(self, table: pa.Table) -> pa.Table:
        """A reader's table with the texts of its tokens, responses and prompts, where it has their ids alone."""
        table = table.combine_chunks()
        ids = table["token_ids"].combine_chunks()
        if ids.null_count < len(ids):
            if table["tokens"].null_count == len(ids):
                table = _with(table, "tokens", self._tokens(ids))
            if table["text"].null_count:
                rows = [own or [] for own in ids.to_pylist()]
                spelled = pa.array(self._texts(rows, skip=True), pa.string(), mask=ids.is_null().to_numpy(False))
                table = _with(table, "text", pc.coalesce(table["text"], spelled))
        return self._prompts(table)

    def tell(self, report: Report) -> None:
        """What it did, for the report."""
        report.note(f"Token ids were spelled with the tokenizer {self.name}.")
        if self.unknown:
            report.note(f"{self.unknown:,} token ids are not in the tokenizer {self.name}: it may be another model's.")

    def _tokens(self, ids: pa.ListArray) -> pa.ListArray:
        flat = ids.flatten().fill_null(-1).to_numpy()
        distinct, place, times = np.unique(flat, return_inverse=True, return_counts=True)
        texts = [self.token(value) for value in distinct.tolist()]
        missing = [value < 0 or self._tokenizer.id_to_token(value) is None for value in distinct.tolist()]
        self.unknown += int(times[np.array(missing, bool)].sum())
        sizes = pc.list_value_length(ids).fill_null(0).to_numpy()
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
        items = pa.array(texts, pa.string()).take(pa.array(place))
        return pa.ListArray.from_arrays(pa.array(offsets), items, mask=ids.is_null())

    def token(self, token: int) -> str:
        """A token's own text, as the lab's engines have it: specials by name, parts of characters as their piece."""
        if token not in self._known:
            self._known[token] = self._spelled(token)
        return self._known[token]

    def _spelled(self, token: int) -> str:
        piece = self._tokenizer.id_to_token(token) if token >= 0 else None
        if piece is None:
            return f"<{token}>"
        if token in self._special:
            return piece
        if piece.startswith("\u2581"):  # decoding one SentencePiece token alone would lose its leading space
            return piece.replace("\u2581", " ")
        (text,) = self._decoded([[token]], skip=False)
        if len(text) > LONGEST:
            raise ImportFailed(f"the tokenizer {self.name} spells one token with {len(text):,} characters: {NAME_ONE}")
        return piece if not text or "\ufffd" in text else text

    def _texts(self, rows: list[list[int]], skip: bool) -> list[str]:
        rows = [[token for token in own if token is not None and token >= 0] for own in rows]
        return self._decoded(rows, skip)

    def _decoded(self, rows: list[list[int]], skip: bool) -> list[str]:
        """Raises ImportFailed where the tokenizer's own settings break its library, which says so by no Exception."""
        try:
            return self._tokenizer.decode_batch(rows, skip_special_tokens=skip)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit):
                raise
            raise ImportFailed(f"the tokenizer {self.name} cannot spell its tokens: {NAME_ONE}") from error

    def _prompts(self, table: pa.Table) -> pa.Table:
        """Prompts that a reader could show as ids alone."""
        column = table["prompt"].combine_chunks()
        names = [name for name in pc.unique(column).to_pylist() if name is not None and _IDS.fullmatch(name)]
        if not names:
            return table
        rows = [[int(word) for word in name[len(SHOWN_IDS) :].split(" ")] for name in names]
        spelled = dict(zip(names, self._texts(rows, skip=False), strict=True))
        return _with(table, "prompt", pa.array([spelled.get(name, name) for name in column.to_pylist()], pa.string()))


def _with(table: pa.Table, name: str, values: pa.Array | pa.ChunkedArray) -> pa.Table:
    return table.set_column(table.schema.get_field_index(name), SCHEMA.field(name), values)
