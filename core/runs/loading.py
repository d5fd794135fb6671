"""Importing torch and what stands on it, an eighth faster."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def heavy_imports() -> Iterator[None]:
    """Around imports: of the many objects that they make all stay, so the garbage collector need not go over them."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
