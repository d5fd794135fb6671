"""kill -9 at random moments, then resume: the run ends as if nothing had happened, to the last bit."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.runs.create import create_runs
from core.runs.folders import run_info
from core.store import open_runs
from core.store.check import check
from core.store.files import live_steps
from tests.core.runs.conftest import experiment, wait_for
from tests.warm import Workers

KILLS = int(os.environ.get("ADVANTAGE_LAB_KILLS", "10"))
CONFIG = {
    "method": "dapo",
    "steps": 8,
    "prompts_per_step": 4,
    "group_size": 4,
    "updates": {"minibatches": 2},
    "dynamic_sampling": {"max_refills": 1},
    "evaluate": {"every": 4, "prompts": 4, "rollouts": 2, "k": 2, "probes": 1},
    "threads": 1,
}


@pytest.fixture
def workers(root: Path) -> Iterator[Workers]:
    server = Workers()
    yield server
    server.close()


def stored(run_dir: Path) -> dict[str, list[tuple]]:
    """All rows of the store but the times, in one order."""
    rows = {}
    with open_runs([run_dir]) as lab:
        for table in ("tokens", "rollouts", "groups", "evals", "summary", "metrics"):
            frame = lab.df(f"SELECT * EXCLUDE (run) FROM {table} ORDER BY ALL")
            timed = [name for name in frame.columns if name.startswith("time") or name == "tokens_per_second"]
            rows[table] = [tuple(map(repr, row)) for row in frame.drop(columns=timed).itertuples(index=False)]
    return rows


def adapter(run_dir: Path) -> bytes:
    return (run_dir / "adapter" / "adapter_model.safetensors").read_bytes()


def test_killed_and_resumed_ends_the_same(root: Path, workers: Workers) -> None:
    (whole,) = create_runs(root, experiment(**CONFIG))
    workers.begin(whole)
    workers.end()
    assert wait_for(whole, "finished").step == 8
    expected = stored(whole)
    assert len(expected["tokens"]) > 500
    assert len(expected["metrics"]) == 8
    rng = random.Random(int.from_bytes(os.urandom(4)))
    step_s = run_info(whole).step_s
    killed_at: list[int] = []
    path: Path | None = None
    while len(killed_at) < KILLS or path is not None:
        if path is None:
            (path,) = create_runs(root, experiment(**CONFIG))
        pid = workers.begin(path)
        if len(killed_at) < KILLS:
            target = len(live_steps(path)) + rng.choice((0, 1, 1, 2))
            early = rng.random() < 0.2
            wait_for(
                path,
                lambda info, path=path, target=target, early=early: (
                    info.state == "finished" or (info.live and (early or len(live_steps(path)) >= target))
                ),
            )
            time.sleep(rng.uniform(0, 1.5) * step_s)
            if run_info(path).state != "finished":
                os.kill(pid, signal.SIGKILL)
        workers.end()
        info = run_info(path)
        if info.state == "failed":
            assert "died without saying why" in info.error, (path / "log.txt").read_text()
            killed_at.append(readable(path))
            continue
        if info.state == "queued":
            continue  # killed before it could say that it is there
        assert (info.state, info.step) == ("finished", 8), (path / "log.txt").read_text()
        assert adapter(path) == adapter(whole)
        assert stored(path) == expected
        assert check(path).problems == []
        path = None
    print(f"killed with {killed_at} steps stored")
    assert len(killed_at) == KILLS
    assert len(set(killed_at)) > 1


def readable(path: Path) -> int:
    """How many whole steps the killed run has; all of them can be read."""
    with open_runs([path]) as lab:
        steps = lab.df("SELECT step FROM metrics ORDER BY step")["step"].tolist()
        assert steps == list(range(len(steps)))
        assert lab.df("SELECT DISTINCT step FROM tokens WHERE split = 'train' ORDER BY 1")["step"].tolist() == steps
    return len(steps)
