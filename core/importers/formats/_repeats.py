"""Rows that a trainer logs again: the batch that it logged before, or what of it is still in its log."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

COMPARED = ("prompt", "text", "reward", "parts", "traits", "advantage")
"""All that a reader of text gives of a row but its step."""
TRIED = 64
"""Places at which a later row may begin to repeat, at most."""


class Repeats:
    """Compares each batch of rows with the batch before."""

    def __init__(self) -> None:
        self._before: pa.Table | None = None

    def at_the_beginning(self, block: pa.Table) -> int:
        """How many rows of a batch repeat the end of the batch before: all, half of them or more, or none.

        A log keeps its last rows, so that what repeats stands at its beginning. Less than half may be chance, where a
        policy says the same again.
        """
        new = block.select(COMPARED)
        old, self._before = self._before, new
        if old is None or not len(new) or not len(old):
            return 0
        if len(old) == len(new) and old.equals(new):
            return len(new)
        first = pc.and_(
            pc.equal(old["text"], new["text"][0]).fill_null(False),
            pc.equal(old["prompt"], new["prompt"][0]).fill_null(False),
        )
        least = (max(len(old), len(new)) + 1) // 2
        for start in np.flatnonzero(first.to_numpy())[:TRIED].tolist():
            rows = len(old) - start
            if least <= rows <= len(new) and old.slice(start).equals(new.slice(0, rows)):
                return rows
        return 0
