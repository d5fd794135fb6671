"""An empty folder of runs, with locks of its own."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("core.runs.folders.EXAMPLES", tmp_path / "no examples")
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("ADVANTAGE_LAB_LOCKS", str(tmp_path / "locks"))
    return tmp_path / "runs"
