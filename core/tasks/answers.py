r"""Where the answer stands: in a response (a box, an answer tag, after ####), and in a dataset's answer column."""

from __future__ import annotations

import re

LONGEST_READ = 8192
"""Characters at the end of a response that are read for its answer."""

_TAG = re.compile(r"<answer>((?:(?!<answer>).){0,2000}?)</answer>", re.DOTALL | re.IGNORECASE)
_HASHES = re.compile(r"####[ \t]*([^\n]+)")
_SAID = re.compile(r"\banswer(?:\s+is|\s*[:=])[ \t:*]*([^\n]+)", re.IGNORECASE)


def gold(answer: str) -> str:
    """The answer of a dataset's row: what stands after the last ####, where there is one, as in GSM8K."""
    return answer.rpartition("####")[2].strip()


def boxed(text: str) -> str | None:
    r"""What the last closed \boxed{…} holds, its own braces matched; None where there is none."""
    place = text.rfind(r"\boxed{")
    while place >= 0:
        depth = 0
        for i in range(place + len(r"\boxed"), len(text)):
            depth += {"{": 1, "}": -1}.get(text[i], 0)
            if depth == 0:
                return text[place + len(r"\boxed{") : i].strip()
        text = text[:place][-LONGEST_READ:]
        place = text.rfind(r"\boxed{")
        if depth > 64:  # nothing but opened boxes
            return None
    return None


def marked(text: str, read: str) -> str | None:
    """The answer where a response marks it. `read`: auto looks for a box, an answer tag and ####, in this order; boxed
    for a box alone; whole takes all of it. None: not marked."""
    if read == "whole":
        return text.strip()
    text = text[-LONGEST_READ:]
    found = boxed(text)
    if found is None and read == "auto":
        marks = [*_TAG.finditer(text)] or [*_HASHES.finditer(text)]
        found = marks[-1][1].strip() if marks else None
    return found


def last_said(text: str) -> str:
    """Of a response that marks nothing: what it calls its answer, last; else its last line."""
    text = text[-LONGEST_READ:]
    said = _SAID.findall(text)
    lines = text.strip().splitlines()
    return (said[-1] if said else lines[-1] if lines else "").strip()
