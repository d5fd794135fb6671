"""The response's part of a sequence: what the loss mask keeps, and what lies between."""

from __future__ import annotations

import numpy as np


def response_part(kept: np.ndarray) -> slice | None:
    """From the first token of the loss to the last; None where there is none."""
    places = np.flatnonzero(kept)
    return slice(int(places[0]), int(places[-1]) + 1) if places.size else None


def spread(values: np.ndarray | None, kept: np.ndarray) -> np.ndarray | None:
    """(T,) float32 with NaN where the mask leaves a token out: from a value a kept token, or a value a token.

    None where there are no values, or neither as many as kept tokens nor as many as tokens.
    """
    if values is None or len(values) not in (len(kept), int(kept.sum())):
        return None
    full = np.full(len(kept), np.nan, np.float32)
    full[kept] = values[kept] if len(values) == len(kept) else values
    return full
