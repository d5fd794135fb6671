"""Which columns of a dataset file are the prompt and the answer, most likely: by their names."""

from __future__ import annotations

import re
from collections.abc import Sequence

PROMPTS = ("prompt", "question", "problem", "instruction", "query", "input", "task", "messages", "text")
ANSWERS = (
    "answer", "solution", "result", "ground_truth", "target", "expected", "label", "output", "response", "completion",
)  # fmt: skip
"""Words of a column's name, the likeliest first."""
BESIDE = frozenset({"id", "ids", "index", "idx", "no", "number", "type", "kind", "source", "length", "len"})
"""Words of columns that say something about a prompt or an answer."""


def likely(names: Sequence[str]) -> tuple[str | None, str | None]:
    """The columns of the prompts and of the answers; None where no name says so. `a.b` counts by its last part."""
    asking = [name for name in names if _rank(name, ANSWERS) is None]  # "Answer text" is no text to be answered
    prompt = _best(asking, PROMPTS)
    return prompt, _best([name for name in names if name != prompt], ANSWERS)


def _best(names: Sequence[str], words: Sequence[str]) -> str | None:
    found = [(rank, place, name) for place, name in enumerate(names) if (rank := _rank(name, words)) is not None]
    return min(found)[2] if found else None


def _rank(name: str, words: Sequence[str]) -> tuple[int, int] | None:
    """The smaller the likelier: a name that is a word before one that has it, or begins with it; None for any other."""
    last = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.rpartition(".")[2])
    parts = [part for part in re.split(r"[^a-z]+", last.lower()) if part]
    if not parts or BESIDE & set(parts):
        return None
    whole = "_".join(parts)
    if whole in words:
        return 0, words.index(whole)
    has = [(1, place) for place, word in enumerate(words) if f"_{word}_" in f"_{whole}_"]
    begins = [(2, place) for place, word in enumerate(words) if whole.startswith(word)]
    return next(iter(has + begins), None)
