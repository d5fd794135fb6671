"""What the Launch page knows of one setting."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Kind = Literal["int", "float", "choice", "flag", "list", "text"]


@dataclass(frozen=True)
class Setting:
    """A field of `RunConfig` by its dotted path. `low` and `high` are what the widget offers, within what the config
    allows; `none` says what an empty value means, "" where there must be one, and of a text what might stand there;
    `ask` stands in a choice whose value is none of the choices, and was not chosen. `list` is comma-separated text."""

    path: str
    label: str
    kind: Kind
    help: str
    low: float | None = None
    high: float | None = None
    step: float | None = None
    choices: tuple[Any, ...] = ()
    none: str = ""
    ask: str = ""
