"""Names that somebody else gave, in a sentence."""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice

MOST, LONGEST = 12, 40
"""Names that are said; characters of each."""


def quoted(names: Collection[object]) -> str:
    """`'a', 'b', 'c' and 7 more`; control characters are escaped, "nothing" where there is none."""
    said = ", ".join(repr(str(name)[:LONGEST]) for name in islice(names, MOST)) or "nothing"
    return said + (f" and {len(names) - MOST} more" if len(names) > MOST else "")
