"""Groups of rows whose prompt and response are one string."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

CLEAR = 0.05
"""Neighbours within groups must have more in common than neighbours across, by this share, for groups to be told."""


@dataclass(frozen=True)
class Joined:
    """The group and the prompt of each line of a file."""

    lines: dict[int, tuple[str, str]]

    def of(self, number: int) -> tuple[str | None, str | None]:
        """The group's name, and the text that all of the group begin with; None for a line that was not there."""
        return self.lines.get(number, (None, None))

    @classmethod
    def of_groups(cls, numbers: Sequence[int], texts: Sequence[str], groups: Sequence[int]) -> Joined:
        """From the line, the text and the group's index of each row."""
        members: dict[int, list[str]] = {}
        for group, text in zip(groups, texts, strict=True):
            members.setdefault(group, []).append(text)
        prompts = {group: common_beginning(rows) for group, rows in members.items()}
        return cls({number: (str(group), prompts[group]) for number, group in zip(numbers, groups, strict=True)})


def common_beginning(texts: Sequence[str]) -> str:
    """What all of the texts begin with."""
    first, last = min(texts), max(texts)
    low, high = 0, len(first)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if last.startswith(first[:middle]) else (low, middle - 1)
    return first[:low]


def group_by_ids(
    texts: Sequence[str], prompts: Sequence[bytes | None], sequences: Sequence[bytes | None]
) -> list[int] | None:
    """Runs of equal prompt ids; None where ids are missing, or where equal ids stand for different texts."""
    if None in prompts:
        return None
    text_of: dict[bytes | None, str] = {}
    if any(text_of.setdefault(sequence, text) != text for sequence, text in zip(sequences, texts, strict=True)):
        return None
    return np.cumsum([at > 0 and prompt != prompts[at - 1] for at, prompt in enumerate(prompts)]).tolist()


def group_by_text(texts: Sequence[str]) -> list[int]:
    """Groups of one size, so that neighbours within have most in common at the beginning, and neighbours across least.

    One group a row where no size stands out.
    """
    rows = len(texts)
    common = np.array([len(common_beginning([a, b])) for a, b in pairwise(texts)], float)
    best, size = 0.0, 1
    for each in range(2, rows // 2 + 1):
        if rows % each:
            continue
        across = np.arange(1, rows) % each == 0
        inside = common[~across].mean()
        clear = (inside - common[across].mean()) / max(inside, 1.0)
        if clear > max(best, CLEAR):
            best, size = clear, each
    return [at // size for at in range(rows)]
