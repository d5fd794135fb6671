"""Numbers as people read them: three significant digits, a real minus sign."""

from __future__ import annotations

import math
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches


def num(value: float) -> str:
    """`0.935`, `−1.06`, `12`, `3e−5`: three significant digits; whole numbers below a million in full."""
    value = float(value) + 0.0
    if math.isfinite(value) and value == round(value) and abs(value) < 1e6:
        return f"{value:.0f}".replace("-", "−")
    digits, e, power = f"{value:.3g}".partition("e")
    return (digits + (f"e{int(power)}" if e else "")).replace("-", "−")


def percent(share: float) -> str:
    return f"{num(100 * share)} %"


def listed(names: Iterable[str], last: str = "and") -> str:
    """`a`, `a and b`, `a, b and c`."""
    names = list(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {last} {names[-1]}" if names else "none"


def nearest(name: str, known: Iterable[str]) -> str:
    """`; did you mean grpo?`, or the known names where none is near."""
    known = list(known)
    name = str(name).lower()
    near = get_close_matches(name, known, n=3, cutoff=0.5)
    near.sort(key=lambda word: (-SequenceMatcher(None, word, name).ratio(), sorted(word) != sorted(name)))
    return f"; did you mean {near[0]}?" if near else f"; choose from {', '.join(known)}" if known else ""
