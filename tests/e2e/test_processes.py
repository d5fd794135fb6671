"""A run of two processes, as people meet it: launched, stopped, killed and resumed, it is one run and stays whole."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from core.config import read_run
from core.runs import create_runs, launch, read_status, resume, stop
from core.runs.folders import REPO, run_info
from core.store import check, open_runs
from tests.core.runs.conftest import experiment, root, wait_for  # noqa: F401

STEPS = 30
CONFIG = {
    "method": "dapo",
    "steps": STEPS,
    "prompts_per_step": 4,
    "group_size": 4,
    "processes": 2,
    "threads": 1,
    "sampling": {"max_new_tokens": 32},
    "dynamic_sampling": {"max_refills": 1},
    "evaluate": {"every": 15, "prompts": 4, "rollouts": 2, "k": 2, "probes": 1},
}
SETTINGS = [f"{name}={value}" for name, value in CONFIG.items() if name not in ("processes", "method")]


@pytest.fixture
def whole(root: Path) -> Path:  # noqa: F811
    """The run, trained without a break: `accelerate launch` asked for the two processes."""
    command = [sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--cpu", "--num_processes", "2"]
    command += ["-m", "core", "run", "smoke", "--set", "method=dapo"]
    command += [word for setting in SETTINGS for word in ("--set", setting)]
    done = subprocess.run(command, cwd=REPO, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = root.glob("2*")
    return path


def test_launched_stopped_killed_and_resumed(root: Path, whole: Path) -> None:  # noqa: F811
    config = read_run(whole / "config.yaml")
    assert (config.processes, config.device) == (2, "cpu")
    assert run_info(whole).state == "finished"
    assert (check(whole).problems, check(whole).steps) == ([], STEPS + 1)

    (path,) = create_runs(root, experiment(**CONFIG))
    launch(path)
    team = ranks_of(path, at_least=2)
    stop(path)
    assert wait_for(path, "stopped").step < STEPS
    all_gone(team)

    resume(path)
    team = ranks_of(path, at_least=run_info(path).step + 2)
    os.kill(team[1], signal.SIGKILL)
    failed = wait_for(path, "failed")
    assert failed.error.startswith("rank 1 was killed by signal 9")
    assert failed.step < STEPS
    all_gone(team)

    resume(path)
    team = ranks_of(path, at_least=failed.step + 2)
    os.kill(team[0], signal.SIGKILL)
    assert "its process died without saying why" in wait_for(path, "failed").error
    all_gone(team)

    resume(path)
    wait_for(path, lambda info: info.state == "finished" and info.sealed)
    assert (check(path).problems, check(path).steps) == ([], STEPS + 1)
    assert contents(path) == contents(whole)


def ranks_of(path: Path, at_least: int) -> list[int]:
    """The pids of the run's processes, rank 0 first, once so many steps are done."""
    wait_for(path, lambda info: info.state == "running" and info.step >= at_least, seconds=180)
    pid = read_status(path).pid
    others = [child for child in psutil.Process(pid).children() if "core.runs.rank" in child.cmdline()]
    assert len(others) == 1
    return [pid, others[0].pid]


def all_gone(pids: list[int]) -> None:
    deadline = time.monotonic() + 10
    while any(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE for pid in pids):
        assert time.monotonic() < deadline, pids
        time.sleep(0.05)


def contents(path: Path) -> tuple[bytes, list[dict]]:
    """What must be the same to the last bit: the adapter, and what was trained on."""
    with open_runs([path]) as lab:
        tokens = lab.rows(
            'SELECT step, split, "group", rollout, position, token_id, sampler_logprob, advantage, ratio, '
            "after_logprob FROM tokens ORDER BY ALL"
        )
    return (path / "adapter" / "adapter_model.safetensors").read_bytes(), tokens
