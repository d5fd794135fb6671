"""Regular expressions of a config: matched by a library that stops by itself, so that no pattern hangs the trainer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, lru_cache

import regex

from core.tasks.answers import LONGEST_READ, gold
from core.tasks.base import Judgement, Prompt, TaskError

LONGEST_S = 1.0
"""Seconds that a pattern may take on one response at most, whatever the config allows."""


@lru_cache(maxsize=64)
def compiled(pattern: str, field: str, ignore_case: bool = False) -> regex.Pattern:
    """The pattern, or TaskError with the sentence that names its field."""
    try:
        return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
    except (regex.error, RecursionError, OverflowError, MemoryError) as error:
        where = " ".join(str(error).split())[:120]
        raise TaskError(f"{field}: {pattern[:60]!r} is no regular expression ({where})") from error


def last_match(pattern: regex.Pattern, text: str, seconds: float) -> tuple[str | None, bool]:
    """(what the last match holds: its first group, or all of it; whether time ran out). Only the text's end is read."""
    found: regex.Match | None = None
    try:
        for match in pattern.finditer(text[-LONGEST_READ:], timeout=min(seconds, LONGEST_S)):
            found = match
    except TimeoutError:
        return None, True
    if found is None:
        return None, False
    return (found[1] if pattern.groups else found[0]) or "", False


@dataclass(frozen=True)
class Regex:
    """What the pattern finds last in a response, its first group, must be the answer."""

    pattern: str
    seconds: float = LONGEST_S
    ignore_case: bool = True

    def __post_init__(self) -> None:
        if not self.pattern:
            raise TaskError(
                r"task.verify.pattern is empty: write what finds the answer in a response, such as Answer: (\w+)"
            )
        assert self._compiled

    @cached_property
    def _compiled(self) -> regex.Pattern:
        return compiled(self.pattern, "task.verify.pattern", self.ignore_case)

    def problem(self, answer: str) -> str:
        return "" if gold(answer) else "no answer"

    def judge(self, prompt: Prompt, response: str) -> Judgement:
        found, late = last_match(self._compiled, response, self.seconds)
        traits = {"answered": float(found is not None), "timed_out": float(late)}
        said, wanted = (found or "").strip(), gold(prompt.answer)
        if self.ignore_case:
            said, wanted = said.casefold(), wanted.casefold()
        return Judgement(float(found is not None and said == wanted), traits)
