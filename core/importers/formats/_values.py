"""Values of foreign rows, made sure of: what is absent stays None, what has a wrong type is refused by name."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import numpy as np

BIGGEST = 2**53
"""Whole numbers up to here are whole in every reader of JSON."""
SHOWN_IDS = "token ids "
"""How a text begins that is ids alone."""


class Refused(ValueError):
    """A row that cannot be taken; the reason is short and names the field."""


def number(row: Mapping[str, Any], key: str) -> float | None:
    """A number, also one written as text or as true and false; None where it is absent, null or NaN."""
    value = row.get(key)
    if value is None or isinstance(value, list | dict):
        if value is None:
            return None
        raise Refused(f"`{key}` is no number")
    try:
        found = float(value)
    except (ValueError, OverflowError):
        raise Refused(f"`{key}` is no number") from None
    if math.isinf(found):
        raise Refused(f"`{key}` is infinite")
    return None if math.isnan(found) else found


def whole(row: Mapping[str, Any], key: str) -> int | None:
    """A whole number from 0, also one written as text or as 3.0; None where it is absent or null."""
    if isinstance(row.get(key), bool):
        raise Refused(f"`{key}` is no whole number from 0")
    found = number(row, key)
    if found is None:
        return None
    if found != int(found) or not 0 <= found <= BIGGEST:
        raise Refused(f"`{key}` is no whole number from 0")
    return int(found)


def text(value: Any) -> str | None:
    """A text as it is; other values as JSON. None for null."""
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def label(value: Any) -> str | None:
    """What a group or a sample is called: the text or the number. None for null, lists and objects."""
    return None if value is None or isinstance(value, list | dict) else str(value)


def numbers(values: Any, prefix: str = "") -> dict[str, float]:
    """The finite numbers of an object by their names; true and false count as 1 and 0."""
    if not isinstance(values, dict):
        return {}
    found = {}
    for key, value in values.items():
        if isinstance(value, int | float):
            try:
                if math.isfinite(value):
                    found[prefix + key] = float(value)
            except OverflowError:
                continue
    return found


def flag(value: Any) -> bool | None:
    """True and false, also as the numbers 1 and 0; None for anything else."""
    return bool(value) if isinstance(value, bool | int | float) and value in (0, 1) else None


def floats(value: Any) -> np.ndarray | None:
    """(T,) float32 of a list of numbers, NaN for null and for what is infinite; None where it is no such list."""
    if not isinstance(value, list):
        return None
    try:
        found = np.array(value, np.float64)
    except (ValueError, TypeError, OverflowError):
        return None
    if found.ndim != 1:
        return None
    with np.errstate(over="ignore"):
        found = found.astype(np.float32)
    return np.where(np.isfinite(found), found, np.float32("nan"))


def ids(value: Any) -> np.ndarray | None:
    """(T,) int32 of a list of token ids; None where it is no such list."""
    if not isinstance(value, list):
        return None
    try:
        found = np.array(value)
    except (ValueError, TypeError, OverflowError):
        return None
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        return None
    if found.size and not (found.min() >= 0 and found.max() < 2**31):
        return None
    return found.astype(np.int32)


def strings(value: Any) -> list[str] | None:
    """A list of texts; None where it is no list, or has others in it."""
    return value if isinstance(value, list) and all(isinstance(item, str) for item in value) else None


def mask(value: Any) -> np.ndarray | None:
    """(T,) bool of a list of true and false or of 1 and 0; None where it is no such list."""
    found = floats(value)
    return None if found is None else np.nan_to_num(found) != 0


def digest(value: str | bytes) -> str:
    """A short name for a long value, the same wherever the value comes back."""
    raw = value if isinstance(value, bytes) else value.encode("utf-8", "surrogatepass")
    return blake2b(raw, digest_size=8).hexdigest()


def shown_ids(tokens: np.ndarray) -> str:
    """Token ids as a text, where no file has the text that they stand for."""
    return SHOWN_IDS + " ".join(map(str, tokens.tolist()))
