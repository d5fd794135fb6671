import subprocess
import sys

import pytest

FREE_BYTES = """
import ctypes, torch
from core.train.allocator import keep_freed_memory
{keep}
class Info(ctypes.Structure):
    _fields_ = [(f"field{{i}}", ctypes.c_size_t) for i in range(10)]  # the ninth: free bytes that the process has
library = ctypes.CDLL(None)
if not hasattr(library, "mallinfo2"):
    print("no glibc")
else:
    library.mallinfo2.restype = Info
    together = [torch.ones(5_000_000) for _ in range(8)]
    del together
    print(library.mallinfo2().field8)
"""


def test_what_tensors_free_stays_with_the_process():
    """Eight tensors of 20 MB."""

    def free_bytes(keep: str) -> int:
        command = [sys.executable, "-c", FREE_BYTES.format(keep=keep)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        if told == "no glibc":
            pytest.skip("the C library is not GNU's, or an old one")
        return int(told)

    assert free_bytes("keep_freed_memory()") > 150e6
    assert free_bytes("") < 100e6
