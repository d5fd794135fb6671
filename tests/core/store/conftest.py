"""Records and runs that the store's tests share."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path

import pytest

from core.config import RunConfig, dump, parse_run
from core.store import StepRecord, write_schema, write_step
from tests.synthetic import records


@pytest.fixture(scope="session")
def settings() -> RunConfig:
    """A3PO on three prompts, four rollouts each, for three steps."""
    exam = {"every": 2, "prompts": 4, "rollouts": 4, "k": 2, "probes": 2}
    size = {"steps": 3, "prompts_per_step": 3, "group_size": 4, "task": {"pool_size": 9}}
    return parse_run(size | {"method": "a3po", "evaluate": exam, "updates": {"minibatches": 3}})


@pytest.fixture(scope="session")
def _records(settings: RunConfig) -> list[StepRecord]:
    return records(settings, 3)


@pytest.fixture(scope="session")
def _run(settings: RunConfig, _records: list[StepRecord], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "run"
    path.mkdir()
    (path / "config.yaml").write_text(dump(settings))
    write_schema(path, settings)
    for record in _records:
        write_step(path, record)
    return path


@pytest.fixture
def step_record(_records: list[StepRecord]) -> StepRecord:
    """Step 0 of the run: training, probe and evaluation rollouts, metrics and an evaluation."""
    return copy.deepcopy(_records[0])


@pytest.fixture
def run_dir(_run: Path, tmp_path: Path) -> Path:
    """A live run with three steps and the final evaluation."""
    return shutil.copytree(_run, tmp_path / "run")
