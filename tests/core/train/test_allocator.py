import subprocess
import sys

import pytest

FAULTS = """
import platform, resource, torch
from core.train.allocator import keep_freed_memory
{keep}
def faults(count):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        torch.ones(5_000_000)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults(2)
print(faults(20) if platform.libc_ver()[0] == "glibc" else "no glibc")
"""


def test_a_freed_tensors_pages_serve_the_next_one():
    """A tensor of 20 MB is 4,900 pages (fewer where the kernel hands out larger ones)."""

    def faults(keep: str) -> int:
        command = [sys.executable, "-c", FAULTS.format(keep=keep)]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        if told == "no glibc":
            pytest.skip("the C library is not GNU's")
        return int(told)

    kept = faults("keep_freed_memory()")
    assert kept < 200
    assert kept < faults("") / 2
