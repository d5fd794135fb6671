"""Numbers in words, one way everywhere: 3 significant digits, units always, a real minus sign."""

from __future__ import annotations

import math
import time
from typing import Any

import pandas as pd

DASH = "–"
NO_PROMPT = "(no prompt text)"
"""Of an import that has none."""


def number(value: float | None, unit: str = "", signed: bool = False) -> str:
    """`0.381 nats`, `12 300 tokens`; a dash for None and NaN."""
    if value is None or math.isnan(value):
        return DASH
    value += 0.0  # a negative zero becomes 0
    if math.isinf(value):
        text = "∞" if value > 0 else "−∞"
    else:
        text = f"{value:.3g}" if abs(value) < 1000 else f"{float(f'{value:.3g}'):,.0f}".replace(",", "\u202f")
        if "e" in text:
            mantissa, exponent = text.split("e")
            text = f"{mantissa}e{int(exponent)}"
        text = text.replace("-", "−")
    if signed and value > 0:
        text = "+" + text
    return f"{text}\u00a0{unit}" if unit else text


def share(value: float | None) -> str:
    """`31 %` of a number in [0, 1]."""
    if value is None or math.isnan(value):
        return DASH
    percent = 100 * value
    return f"{percent:.0f}\u00a0%" if percent >= 1 or percent == 0 else f"{percent:.1g}\u00a0%"


def duration(seconds: float | None) -> str:
    """`45 s`, `4 min`, `2 h 10 min`; a dash for None."""
    if seconds is None or math.isnan(seconds):
        return DASH
    seconds = max(0, round(seconds))
    if seconds < 90:
        return f"{seconds}\u00a0s"
    minutes = round(seconds / 60)
    if minutes < 90:
        return f"{minutes}\u00a0min"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours}\u00a0h {minutes}\u00a0min" if minutes else f"{hours}\u00a0h"
    return f"{round(hours / 24)}\u00a0days"


def age(when: float | None, now: float | None = None) -> str:
    """`4 min ago` of a time in seconds since the epoch."""
    if when is None or math.isnan(when):
        return DASH
    seconds = (time.time() if now is None else now) - when
    return "just now" if seconds < 5 else f"{duration(seconds)} ago"


def length(tokens: Any) -> str:
    """`23 tokens`; a dash where an import does not say (null)."""
    return DASH if pd.isna(tokens) else count(int(tokens), "token")


def said(flag: Any) -> bool:
    """Whether a flag that may be null is set."""
    return not pd.isna(flag) and bool(flag)


def count(n: int, one: str, several: str | None = None) -> str:
    """`1 run`, `3 runs`."""
    return f"{n:,}\u00a0{one if n == 1 else several or one + 's'}".replace(",", "\u202f")


def size(bytes_: int) -> str:
    """`3.2 MB`."""
    for unit, least in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if bytes_ >= least:
            return number(bytes_ / least, unit)
    return number(bytes_, "bytes")
