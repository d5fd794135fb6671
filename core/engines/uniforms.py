"""The random numbers of sampling, from a counter generator.

A draw depends on (seed, split, step, group, rollout, position) and on nothing else: batching, rows that finish early,
evaluations and resuming cannot shift one another's draws.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from core.engines.base import SampleKey


def uniforms(key: SampleKey, rows: Sequence[tuple[int, int]], count: int) -> np.ndarray:
    """(rows, count) float64 in [0, 1): row i holds the draws of positions 0..count-1 for (group, rollout) = rows[i].

    Philox 4x64 keyed by (seed, split, step); its 256-bit counter holds (block of four positions, rollout, group, 0).
    """
    philox = np.random.Philox(key=_key(key))
    state = philox.state  # as new, at each row's counter: a generator a row would cost three times as much
    raw = np.empty((len(rows), count), dtype=np.uint64)
    for row, (group, rollout) in enumerate(rows):
        state["state"]["counter"][:] = 0, rollout, key.first_group + group, 0
        philox.state = state
        raw[row] = philox.random_raw(count)
    return (raw >> np.uint64(11)) * 2.0**-53


def _key(key: SampleKey) -> np.ndarray:
    """(2,) uint64, distinct for every (seed, split, step)."""
    digest = hashlib.blake2b(f"{key.seed}/{key.split}/{key.step}".encode(), digest_size=16).digest()
    return np.frombuffer(digest, dtype="<u8").astype(np.uint64)
