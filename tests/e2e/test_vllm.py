"""LoRA training with vLLM sampling, in a real worker: what it stores, and that nothing is left of vLLM at any end."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from core.cli import main
from core.config import load
from core.runs import create_runs, get_run
from core.runs.folders import RunInfo, run_info
from core.runs.preset import find_config
from core.runs.status import read_status
from core.store import open_runs
from tests.needs import need_vllm
from tests.warm import Workers

SHORT = [
    "engine=vllm", "device=cpu", "prompts_per_step=4", "group_size=4", "threads=1", "sampling.max_new_tokens=40",
    "evaluate={every: 2, prompts: 4, rollouts: 4, k: 4, probes: 1}", "vllm.kv_cache_gb=0.25", "optimizer.lr=0.01",
]  # fmt: skip
PATIENCE_S = 150.0


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    need_vllm()
    server = Workers()
    yield server
    server.close()


def create(root: Path, *settings: str) -> Path:
    (path,) = create_runs(root, load(find_config("smoke"), [*SHORT, *settings]))
    return path


def begin(workers: Workers, path: Path) -> int:
    """Start a worker on a run, and wait until the run's status is its own; its pid."""
    pid = workers.begin(path)
    deadline = time.monotonic() + 60
    while (status := read_status(path)) is None or status.pid != pid:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return pid


def wait(path: Path, reached: Callable[[RunInfo], bool]) -> RunInfo:
    deadline = time.monotonic() + PATIENCE_S
    while not reached(info := run_info(path)):
        assert info.live, f"{info.state}: {info.error}\n{(path / 'log.txt').read_text()[-2000:]}"
        assert time.monotonic() < deadline, f"still {info.state}: {info.message}"
        time.sleep(0.05)
    return info


def vllm_of(pid: int) -> psutil.Process:
    """The one process that a worker has started, which has none of its own."""
    deadline = time.monotonic() + 15
    while True:
        children = psutil.Process(pid).children(recursive=True)
        with contextlib.suppress(psutil.NoSuchProcess):
            if children and "core.engines.vllm_child" in children[0].cmdline():  # not only forked, also started
                break
        assert time.monotonic() < deadline
        time.sleep(0.02)
    (child,) = children
    return child


def gone(process: psutil.Process) -> bool:
    """Whether it ends within seconds."""
    deadline = time.monotonic() + 15
    while process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def test_trains_and_checks(
    workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    path = create(tmp_path, "steps=4")
    workers.begin(path)
    workers.end()
    info = get_run(tmp_path, path.name)
    log = (path / "log.txt").read_text()
    assert (info.state, info.step, info.sealed) == ("finished", 4, True), log
    assert "starting vLLM (about half a minute)" in log
    assert main(["check", path.name]) == 0, capsys.readouterr()
    with open_runs([path]) as lab:
        tokens = lab.rows(
            "SELECT count(*) AS n, count(advantage) AS advantages, count(entropy) AS entropies, max(abs(trainer_logprob"
            " - sampler_logprob)) AS gap, count(tis) AS weighted, min(tis) AS low, max(tis) AS high FROM tokens"
            " WHERE split = 'train'"
        )[0]
        metrics = lab.rows("SELECT * FROM metrics ORDER BY step")
        evals = lab.rows("SELECT * FROM evals ORDER BY step")
    assert tokens["n"] == tokens["advantages"] == tokens["entropies"] == tokens["weighted"] > 300
    assert 0 < tokens["gap"] < 1e-4, "the same weights, other kernels"
    assert 0.9999 < tokens["low"] <= tokens["high"] < 1.0001
    assert len(metrics) == 4
    assert {row["entropy_source"] for row in metrics} == {"trainer"}
    assert all(0 < row["gap_mean"] <= row["gap_max"] < 1e-4 for row in metrics)
    assert all(row["gap_share"] == 0 for row in metrics)
    assert max(row["update_norm"] for row in metrics) > 0.01, "the adapters that vLLM got were not all the same"
    assert [row["step"] for row in evals] == [0, 2, 4]
    assert all(row["greedy"] is not None for row in evals)
    assert not (path / "vllm").exists()


def test_nothing_is_left_of_vllm(workers: Workers, tmp_path: Path) -> None:
    """One run, which ends by vLLM's death, then by its own, then by a stop while vLLM starts, then by a stop."""
    path = create(tmp_path, "steps=100000", "evaluate.every=0")

    pid = begin(workers, path)
    wait(path, lambda info: info.state == "running" and info.step > 1)
    child = vllm_of(pid)
    os.kill(child.pid, signal.SIGKILL)
    workers.end()
    info = run_info(path)
    assert info.state == "failed"
    assert re.match(r"step \d+: vLLM's process was killed by SIGKILL .*vllm\.txt", info.error), info.error
    assert not (path / "vllm").exists()

    pid, done = begin(workers, path), info.step
    wait(path, lambda info: info.state == "running" and info.step > done)
    child = vllm_of(pid)
    os.kill(pid, signal.SIGKILL)
    workers.end()
    assert gone(child)

    pid = begin(workers, path)
    wait(path, lambda info: "starting vLLM" in info.message)
    child = vllm_of(pid)
    (path / "stop").touch()
    workers.end()
    assert run_info(path).state == "stopped"
    assert gone(child)

    pid, done = begin(workers, path), run_info(path).step
    wait(path, lambda info: info.state == "running" and info.step > done)
    child = vllm_of(pid)
    (path / "stop").touch()
    workers.end()
    info = run_info(path)
    assert info.state == "stopped"
    assert info.step > done
    assert gone(child)
    assert not (path / "vllm").exists()
