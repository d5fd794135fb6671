"""The real worker around the real trainer, on the shipped model."""

from __future__ import annotations

import re
from pathlib import Path
from shutil import copytree

from core.config import read_run
from core.models.catalog import EMBEDDED_PATH
from core.runs import read_status, resume, start, stop
from core.runs.create import disk_bytes, weight_bytes
from core.store import open_runs
from core.store.check import check
from tests.core.runs.conftest import experiment, wait_for

TINY = {
    "steps": 6,
    "prompts_per_step": 2,
    "group_size": 4,
    "evaluate": {"every": 3, "prompts": 2, "rollouts": 2, "k": 2, "probes": 1},
    "threads": 1,
}
LONG = 40  # steps, so that a fast machine is still training when it is asked to stop


def test_a_real_run_stopped_resumed_finished_and_sealed(root: Path) -> None:
    (path,) = start(root, experiment(**{**TINY, "steps": LONG}))
    wait_for(path, lambda info: info.step >= 1, seconds=180)
    stop(path)
    stopped = wait_for(path, "stopped")
    assert 1 <= stopped.step < LONG
    assert stopped.reward is not None
    assert stopped.pass_at_1 is not None
    resume(path)
    info = wait_for(path, lambda info: info.state == "finished" and info.sealed, seconds=180)
    assert (info.step, info.error) == (LONG, "")
    assert (path / "adapter" / "adapter_model.safetensors").exists()
    assert (path / "rollouts.duckdb").exists()
    kept = sum(file.stat().st_size for file in path.rglob("*.safetensors"))  # the adapter and the checkpoints
    config = read_run(path / "config.yaml")
    assert kept <= weight_bytes(config) < 2 * kept
    taken = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    assert taken <= disk_bytes(config) < 3 * taken
    report = check(path)
    assert (report.problems, report.steps) == ([], LONG + 1)
    with open_runs([path]) as lab:
        last = lab.rows("SELECT pass_at_1 FROM evals ORDER BY step DESC LIMIT 1")[0]["pass_at_1"]
    assert info.pass_at_1 == last
    resume(path, extend_to=LONG + 2)
    info = wait_for(path, lambda info: info.state == "finished" and info.total == LONG + 2 and info.sealed, seconds=180)
    wait_for(path, lambda _: not read_status(path).is_alive())
    report = check(path)
    assert (report.problems, report.steps) == ([], LONG + 3)
    assert "\r" not in (path / "log.txt").read_text()


def test_a_model_that_vanishes_after_the_checks_fails_in_a_sentence(root: Path, tmp_path: Path) -> None:
    copytree(EMBEDDED_PATH, tmp_path / "model")
    (path,) = start(root, experiment(**{**TINY, "model": str(tmp_path / "model"), "evaluate": {"every": 0}}))
    (tmp_path / "model" / "model.safetensors").unlink()
    info = wait_for(path, "failed", seconds=180)
    assert re.search(r"model\.safetensors", info.error)
    assert "\n" not in info.error
