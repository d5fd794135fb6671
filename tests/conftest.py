"""What every suite shares: one thread a process, long files first, the seconds of each suite against its budget."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import tomllib
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import settings

HERE = Path(__file__).parent
BUDGET = tomllib.loads((HERE / "budget.toml").read_text(encoding="utf-8"))["seconds"]

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # pools that spin for the same cores take ten times as long

LOCKS = tempfile.mkdtemp(prefix="advantage-lab-locks-")
os.environ["ADVANTAGE_LAB_LOCKS"] = LOCKS  # runs of one test process wait for no other's, nor for those of this machine
atexit.register(shutil.rmtree, LOCKS, ignore_errors=True)

settings.register_profile("lab", deadline=None)  # a busy machine is no failure
settings.load_profile("lab")

FIRST = ("tests/verl/", "tests/e2e/", "tests/browser/", "tests/core/engines/")
"""Suites with files that take minutes: begun first, so that no core waits at the end for the other's last file."""

_seconds: dict[str, float] = defaultdict(float)


def suite_of(nodeid: str) -> str:
    """The budget line a test belongs to: the longest one that its path starts with."""
    path = nodeid.split("::", 1)[0]
    return max((name for name in BUDGET if path.startswith(f"tests/{name}")), key=len, default="elsewhere")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: next((i for i, name in enumerate(FIRST) if item.nodeid.startswith(name)), len(FIRST)))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _seconds[suite_of(report.nodeid)] += report.duration


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("seconds by suite, and the budget")
    for name, seconds in sorted(_seconds.items()):
        budget = BUDGET.get(name)
        allowed = f"of {budget:>4} s" if budget else "no budget: add it to tests/budget.toml"
        over = "  OVER BUDGET" if budget and seconds > budget else ""
        terminalreporter.write_line(f"{name:<18} {seconds:7.1f} s {allowed}{over}")
    terminalreporter.write_line(f"{'all':<18} {sum(_seconds.values()):7.1f} s of {sum(BUDGET.values()):>4} s")
