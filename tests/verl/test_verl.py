"""The lab's numbers in verl: `check_advantages.py` and `check_losses.py`, run by verl's own environment."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.needs import need_verl

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def test_verl_and_the_lab_give_the_same_numbers() -> None:
    """Their modules are found beside each other (prepend), and none of this suite's own configuration is used."""
    options = ["--noconftest", "--import-mode=prepend", "-oaddopts=", "-pno:cacheprovider", "-Wignore", "-q"]
    checks = [HERE / "check_advantages.py", HERE / "check_losses.py"]
    command = [need_verl(), "-m", "pytest", *options, *checks]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=500, check=False)
    print(done.stdout[-10_000:])
    if done.returncode:
        pytest.fail(f"{done.stdout[-10_000:]}\n{done.stderr[-2_000:]}", pytrace=False)
    assert re.search(r"^\d{3,} passed in ", done.stdout, re.MULTILINE), "a check was skipped, or there are none"
