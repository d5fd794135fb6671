"""The task `file`: prompts and answers from a dataset file, split by a hash of each prompt's text.

The split depends on the text alone: the same prompt is on the same side whatever else is in the file, and raising the
share of held-out prompts only moves prompts over to them. Rows that cannot be used are counted, by reason.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.config_tasks import FileSettings
from core.quoted import quoted
from core.tasks.base import Prompt, TaskError, Verifier
from core.tasks.rows import FIELD, cell, look, rows, text_of

REPO = Path(__file__).parents[2]
MOST_ROWS = 100_000
"""Of a file; what comes after them is not read, and said."""
LONGEST_PROMPT, LONGEST_ANSWER = 50_000, 10_000
"""Characters."""


def resolved(path: str) -> Path:
    """The file of a config: a relative path starts in the current folder, else in the lab's own."""
    try:
        given = Path(path).expanduser()
        here = given.absolute()
        return here if given.is_absolute() or here.exists() or not (REPO / given).exists() else REPO / given
    except (OSError, ValueError, RuntimeError) as error:  # a null byte, a user that is not there
        raise TaskError(f"{FIELD}: {path[:80]!r} is no path") from error


@dataclass
class FilePrompts:
    """What a file gives: both sides of the split, and what could not be used."""

    train: list[Prompt] = field(default_factory=list)
    held: list[Prompt] = field(default_factory=list)
    refused: Counter[str] = field(default_factory=Counter)
    """Rows by the reason why they are left out."""
    first: dict[str, str] = field(default_factory=dict)
    """Where the first row of each reason stands."""
    unread: bool = False
    """Whether the file goes on after MOST_ROWS."""
    _orders: dict[str, list[Prompt]] = field(default_factory=dict, repr=False)

    def train_pool(self, size: int, seed: int) -> list[Prompt]:
        """At most `size`, shuffled; a larger pool of the same seed begins with a smaller one."""
        return self._ordered(self.train, f"pool {seed}")[:size]

    def held_out(self, count: int) -> list[Prompt]:
        """At most `count`, in a fixed order."""
        return self._ordered(self.held, "order")[:count]

    def _ordered(self, side: list[Prompt], order: str) -> list[Prompt]:
        if order not in self._orders:
            self._orders[order] = sorted(side, key=lambda prompt: _digest(f"{order} {prompt.text}"))
        return self._orders[order]

    def refuse(self, reason: str, where: str) -> None:
        self.refused[reason] += 1
        self.first.setdefault(reason, where)


def read_file(settings: FileSettings, verifier: Verifier) -> FilePrompts:
    """All prompts of the file that the verifier can judge. Raises TaskError."""
    if not settings.path:
        raise TaskError(f"{FIELD} is empty: name a .jsonl, .parquet or .csv file with a row for each prompt")
    path, found = resolved(settings.path), FilePrompts()
    seen: dict[bytes, str] = {}
    columns: set[str] = set()
    for number, (where, row) in enumerate(rows(path, (settings.prompt, settings.answer))):
        if number >= MOST_ROWS:
            found.unread = True
            break
        if isinstance(row, str):
            found.refuse(row, where)
            continue
        columns |= {column for column in (settings.prompt, settings.answer) if cell(row, column) is not None}
        prompt, answer = (_text(row, column) for column in (settings.prompt, settings.answer))
        if reason := _reason(prompt, answer) or verifier.problem(str(answer)):
            found.refuse(reason, where)
            continue
        key = hashlib.sha256(prompt.encode()).digest()
        if key in seen:
            same = "with the same answer" if seen[key] == answer else "with another answer"
            found.refuse(f"the prompt stands above already, {same}", where)
            continue
        seen[key] = answer
        side = found.held if is_held_out(prompt, settings.held_out) else found.train
        side.append(Prompt(settings.template.replace("{prompt}", prompt), answer))
    _check_columns(settings, path, columns, found)
    return found


def is_held_out(prompt: str, share: float) -> bool:
    """Whether the prompt, as the file has it, is one of that share that is never trained on."""
    return int.from_bytes(_digest(f"held out {prompt}")[:8], "big") < share * 2**64


def _text(row: Mapping[str, Any], column: str) -> str | None:
    """The cell's text, "" where there is none, None where it is neither text nor a number."""
    value = cell(row, column)
    return "" if value is None or value != value else text_of(value)


def _reason(prompt: str | None, answer: str | None) -> str:
    """Why a row with these cells is left out; "" if it is not."""
    for name, text, longest in (("prompt", prompt, LONGEST_PROMPT), ("answer", answer, LONGEST_ANSWER)):
        if text is None:
            return f"the {name} is neither text nor a number"
        if not text.strip():
            return f"no {name}"
        if len(text) > longest:
            return f"the {name} has more than {longest} characters"
        try:
            text.encode()
        except UnicodeEncodeError:
            return "not UTF-8"
    return ""


def _check_columns(settings: FileSettings, path: Path, columns: set[str], found: FilePrompts) -> None:
    """Raise TaskError where the file has nothing to train on, with the likeliest reason."""
    if found.train or found.held:
        return
    if found.refused and found.refused["not UTF-8"] == found.refused.total():
        raise TaskError(f"{FIELD}: {path} is not UTF-8: save it as UTF-8")
    there = look(path)[0] if found.refused else []
    for name, column in (("prompt", settings.prompt), ("answer", settings.answer)):
        if column not in columns and there:
            words = f"has no column {column!r} with anything in it; it has {quoted(there)}"
            raise TaskError(f"task.file.{name}: {path} {words}")
    why = ", ".join(f"{count} × {reason}" for reason, count in found.refused.most_common(3))
    raise TaskError(f"{FIELD}: {path} has no row that can be used" + (f" ({why})" if why else ""))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
