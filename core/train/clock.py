"""The seconds of each phase of a step."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class Clock:
    """`with clock("sample"): ...` adds to `clock.seconds["sample"]`.

    A GPU works behind the program's back: both ends of a phase wait for it, so that no phase pays for another's work.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        _settle()
        start = time.perf_counter()
        try:
            yield
            _settle()
        finally:
            self.seconds[phase] += time.perf_counter() - start


def _settle() -> None:
    """Wait for the GPU, if this process uses one."""
    if torch.cuda.is_initialized():
        torch.cuda.synchronize()
