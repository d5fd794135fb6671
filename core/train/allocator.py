"""Freed memory kept for the next tensor, where the C library is GNU's.

It gives large blocks back to the kernel, which clears every page anew when the next tensor of that size comes: a tenth
of a training step or so. Kept, they cost nothing but that a process stays at its largest size.
"""

from __future__ import annotations

import ctypes
import platform

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3
LARGEST_KEPT = 2**25
"""Bytes of a block; the library takes no larger value."""


def keep_freed_memory() -> None:
    """For this process, from now on."""
    if platform.libc_ver()[0] != "glibc":
        return
    library = ctypes.CDLL(None)
    library.mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT)
    library.mallopt(M_TRIM_THRESHOLD, 2**31 - 1)
