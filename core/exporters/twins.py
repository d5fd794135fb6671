"""What becomes of each setting of a run in another trainer: its twin there, or why it has none."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from core.config import RunConfig

UNKNOWN = "this export does not know the setting"
APART = {"task.file.path": "the prompts of the file are in data/"}
"""Settings whose values name a place on this machine, and what is said of them instead."""


@dataclass(frozen=True)
class Fate:
    """One setting of the run, and where it went."""

    setting: str
    """As a config names it: `optimizer.lr`."""
    value: Any
    twin: str | None
    """What it is in the other trainer; None: it has no twin there."""
    why: str
    """Why it has no twin, or in what the twin differs; may be empty."""


@dataclass
class Twins:
    """Collects the fates of a run's settings."""

    config: RunConfig
    _said: dict[str, tuple[str | None, str]] = field(default_factory=dict)

    def twin(self, settings: str | Iterable[str], twin: str, differs: str = "") -> None:
        """These settings have a twin; `differs` says in what it is not the same."""
        for setting in [settings] if isinstance(settings, str) else settings:
            self._said[setting] = (twin, differs)

    def none(self, settings: str | Iterable[str], why: str) -> None:
        """These settings have no twin."""
        for setting in [settings] if isinstance(settings, str) else settings:
            self._said[setting] = (None, why)

    def fates(self) -> list[Fate]:
        """Of every setting, in the order of the config. A whole section may be said at once, by its name."""
        return [Fate(name, value, *self._of(name)) for name, value in leaves(self.config)]

    def _of(self, name: str) -> tuple[str | None, str]:
        parts = name.split(".")
        for count in range(len(parts), 0, -1):
            if said := self._said.get(".".join(parts[:count])):
                return said
        return None, UNKNOWN


def leaves(settings: BaseModel, above: str = "") -> Iterator[tuple[str, Any]]:
    """Every setting that is no section of others, by its dotted name, with its value."""
    for name in type(settings).model_fields:
        value = getattr(settings, name)
        if isinstance(value, BaseModel):
            yield from leaves(value, f"{above}{name}.")
        else:
            yield above + name, value


def lacking(fates: Iterable[Fate]) -> list[Fate]:
    return [fate for fate in fates if fate.twin is None]


def as_text(fate: Fate) -> str:
    """One line for a terminal or a list."""
    return f"{fate.setting}: {shown(fate)}: {fate.why}"


def as_markdown(fates: Iterable[Fate], trainer: str) -> str:
    """Two lists: what has no twin, with the reasons, and what became of the rest."""
    fates = list(fates)
    without = "\n".join(f"- `{fate.setting}` ({code(shown(fate))}): {fate.why}." for fate in lacking(fates))
    rows = "\n".join(
        f"| `{fate.setting}` | {code(shown(fate))} | {code(fate.twin)} | {fate.why} |" for fate in fates if fate.twin
    )
    return (
        f"## Settings without a twin in {trainer}\n\n{without}\n\n"
        f"## What became of the others\n\n| setting | value | in {trainer} | differs |\n|---|---|---|---|\n{rows}\n"
    )


def shown(fate: Fate) -> str:
    """The value on one line, shortened; a path of this machine is left out."""
    if fate.setting in APART and fate.value:
        return APART[fate.setting]
    text = json.dumps(plain(fate.value), ensure_ascii=False)
    return text if len(text) <= 120 else text[:119] + "…"


def plain(value: Any) -> Any:
    """The value as JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def code(text: str) -> str:
    """Text of a person's own as code on one line: it ends neither a cell of a table nor the code, and is no HTML."""
    text = " ".join(text.split()).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence} {text} {fence}" if "`" in text else f"`{text}`"
