"""DAPO's soft penalty on overlong responses (arXiv 2503.14476, equation 13): it grows over the last tokens before the
limit, so that a response is warned before it is cut off.

    0                                  length <= limit - buffer
    (limit - buffer - length) / buffer   down to -1 at the limit
"""

from __future__ import annotations

import numpy as np


def soft_overlong(length: np.ndarray, limit: int, buffer: int, factor: float = 1.0) -> np.ndarray:
    """(N,) float64, what each response's reward gains: between -factor and 0; all 0 with a buffer of 0, which is off.

    `length` (N,), `limit` and `buffer` count tokens, the end-of-sequence token included.
    """
    if not buffer:
        return np.zeros(len(length))
    over = np.asarray(length, dtype=np.float64) - (limit - buffer)
    return -factor * np.clip(over / buffer, 0.0, 1.0) + 0.0  # no -0.0
