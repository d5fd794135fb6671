"""Run folders, locks and a pretended trainer of their own for each test."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from core.config import ExperimentConfig, parse
from core.runs import RunInfo, control
from core.runs.folders import run_info

FAKE_WORKER = Path(__file__).with_name("fake_worker.py")


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty folder of runs, without shipped examples; whatever still runs in it at the end is killed."""
    folder = tmp_path / "runs"
    monkeypatch.setattr("core.runs.folders.EXAMPLES", tmp_path / "no examples")
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(folder))
    monkeypatch.setenv("ADVANTAGE_LAB_LOCKS", str(tmp_path / "locks"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[3]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    yield folder
    for process in psutil.process_iter(["cmdline"]):
        if any(str(folder) in word for word in process.info["cmdline"] or ()):
            process.kill()


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Make launched workers train with the pretended loop: `fake(step_s=0.1, fail_at=3)`."""

    def tell(**what: object) -> None:
        monkeypatch.setattr(control, "WORKER", (sys.executable, str(FAKE_WORKER)))
        monkeypatch.setenv("FAKE", json.dumps(what))

    tell()
    return tell


def experiment(**settings: object) -> ExperimentConfig:
    """A small one; settings as in a preset."""
    return parse({"steps": 5, "device": "cpu", **settings})


def wait_for(path: Path, wanted: Callable[[RunInfo], bool] | str, seconds: float = 60) -> RunInfo:
    """Poll a run until it is in a state, or a condition holds."""
    deadline = time.monotonic() + seconds
    while True:
        info = run_info(path)
        if info.state == wanted if isinstance(wanted, str) else wanted(info):
            return info
        log = path / "log.txt"
        assert time.monotonic() < deadline, f"{info}\n{log.read_text() if log.exists() else 'no log'}"
        time.sleep(0.02)
