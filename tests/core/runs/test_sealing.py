"""When runs are sealed, and when the steps that a seal made superfluous go."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from core.runs import RunError, start, stop
from core.runs.folders import run_info
from core.runs.locks import run_lock
from core.runs.sealing import mark_sealed, seal_run, sweep_sealed
from core.store import open_runs
from core.store.seal import GRACE_S
from tests.core.runs.conftest import experiment, wait_for
from tests.synthetic import make_run

SMALL = {"steps": 2, "prompts": 1, "group_size": 2}


def age(run_dir: Path) -> None:
    """Let the sealed file be older than the grace period."""
    then = time.time() - GRACE_S - 10
    os.utime(run_dir / "rollouts.duckdb", (then, then))


def steps_left(run_dir: Path) -> int:
    return len(list((run_dir / "steps").glob("step=*")))


def test_the_steps_of_a_sealed_run_stay_for_their_readers_then_go(root: Path) -> None:
    path = make_run(root, "a", **SMALL)
    seal_run(path)
    assert run_info(path).sealed
    sweep_sealed(root)
    assert steps_left(path) == 3
    age(path)
    sweep_sealed(root)
    assert steps_left(path) == 0
    with open_runs([path]) as lab:
        assert [row["step"] for row in lab.rows("SELECT step FROM metrics ORDER BY step")] == [0, 1]


def test_the_next_start_clears_them_too(root: Path, fake: Callable[..., None]) -> None:
    path, damaged = make_run(root, "a", **SMALL), make_run(root, "b", **SMALL)
    for sealed in (path, damaged):
        seal_run(sealed)
        age(sealed)
    (damaged / "rollouts.duckdb").write_bytes(b"rubbish" * 1000)
    age(damaged)
    fake(step_s=0.5)
    (started,) = start(root, experiment())
    wait_for(started, "running")
    assert steps_left(path) == 0
    assert steps_left(damaged) == 3
    stop(started, wait=True)


def test_a_run_that_somebody_writes_is_not_swept(root: Path) -> None:
    path = make_run(root, "a", **SMALL)
    seal_run(path)
    age(path)
    with run_lock(path):
        sweep_sealed(root)
        assert steps_left(path) == 3
        with pytest.raises(RunError, match="a is being sealed by its own process"):
            seal_run(path)


def test_sweeping_takes_any_folder(root: Path) -> None:
    root.mkdir()
    (root / "file").write_text("")
    (root / "empty").mkdir()
    stopped = make_run(root, "b", **SMALL, state="stopped")
    sweep_sealed(root)
    assert steps_left(stopped) == 2


def test_marking_keeps_the_rest_of_the_status(root: Path) -> None:
    path = make_run(root, "a", **SMALL)
    before = run_info(path)
    mark_sealed(path)
    after = run_info(path)
    assert after.sealed
    assert (after.state, after.step, after.reward, after.created) == (
        before.state, before.step, before.reward, before.created,
    )  # fmt: skip
