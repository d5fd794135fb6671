"""Values of the store as text formats have them: JSON's numbers, a spreadsheet's cells, names that are there once."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

_FORMULA = re.compile(r"\s*[=+\-@\uff1d\uff0b\uff0d\uff20]|[\t\r]")
"""What a spreadsheet takes for the beginning of a formula, behind blanks and in full width too."""


def plain_value(value: Any) -> Any:
    """A value as JSON has it: no NaN and no infinity (null), no decimal number of its own kind."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, list | tuple):
        return [plain_value(item) for item in value]
    return {str(key): plain_value(item) for key, item in value.items()} if isinstance(value, dict) else value


def no_formula(value: Any) -> Any:
    """A text that a spreadsheet would run as a formula with an apostrophe before it; anything else as it is."""
    if isinstance(value, str) and _FORMULA.match(value):
        try:
            float(value)
        except ValueError:
            return f"'{value}"
    return value


def apart(names: Sequence[str]) -> list[str]:
    """The names of columns, those that are there before with a number, so that none hides another."""
    taken: list[str] = []
    for name in names:
        own, again = name, 1
        while own in taken:
            again += 1
            own = f"{name} ({again})"
        taken.append(own)
    return taken
