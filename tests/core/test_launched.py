"""What `accelerate launch` told the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from core.cli.launched import Launched, launched
from core.runs import RunError, control

OF_LAUNCHERS = (
    "ACCELERATE_MIXED_PRECISION",
    "ACCELERATE_USE_CPU",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
)


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in OF_LAUNCHERS:
        monkeypatch.delenv(name, raising=False)
    before = {sign: signal.getsignal(sign) for sign in (signal.SIGTERM, signal.SIGINT)}
    yield
    for sign, handler in before.items():
        signal.signal(sign, handler)


def test_without_a_launcher_nothing_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "3")  # some scheduler's
    assert launched() == Launched()
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


@pytest.mark.parametrize("rank", [0, 1])
def test_several_copies_are_one_run(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    for name, value in {
        "ACCELERATE_MIXED_PRECISION": "no",
        "WORLD_SIZE": 4,
        "LOCAL_WORLD_SIZE": 4,
        "RANK": rank,
    }.items():
        monkeypatch.setenv(name, str(value))
    assert launched() == Launched(("processes=4",), copy=rank > 0)


def test_what_a_launcher_passes_on_is_one_ctrl_c(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "no")
    launched()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    signal.raise_signal(signal.SIGTERM)
    monkeypatch.setattr("core.cli.launched.PASSED_ON_S", 0)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGTERM)


def test_a_precision_that_the_run_does_not_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    with pytest.raises(RunError, match=r"mixed precision bf16.*--set precision=bfloat16"):
        launched()


def test_several_machines_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ACCELERATE_MIXED_PRECISION": "no", "WORLD_SIZE": 4, "LOCAL_WORLD_SIZE": 2, "RANK": 0}.items():
        monkeypatch.setenv(name, str(value))
    with pytest.raises(RunError, match="on one machine: set --num_machines 1"):
        launched()


@pytest.mark.parametrize(
    ("words", "processes"),
    [(["--num_processes", "3"], 3), (["--num-processes=2"], 2), (["--num_processes", "many"], 1), ([], 1)],
)
def test_on_a_cpu_the_launchers_own_command_line_says_how_many(words: list[str], processes: int) -> None:
    code = "from core.cli.launched import launched; print(launched().settings)"
    launcher = (
        "import subprocess, sys; "
        f"print(subprocess.run([sys.executable, '-c', {code!r}], capture_output=True, text=True).stdout)"
    )
    environment = os.environ | {"ACCELERATE_MIXED_PRECISION": "no", "ACCELERATE_USE_CPU": "True"}
    done = subprocess.run(
        [sys.executable, "-c", launcher, "launch", "--cpu", *words], capture_output=True, text=True, env=environment
    )
    assert done.stdout.strip() == str((f"processes={processes}", "device=cpu"))


def test_a_runs_own_process_is_told_nothing_of_the_launcher() -> None:
    told = ("ACCELERATE_USE_CPU", "TORCHELASTIC_RUN_ID", "RANK", "LOCAL_WORLD_SIZE", "MASTER_PORT", "GROUP_RANK")
    kept = ("PATH", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "RANKING", "MY_RANK")
    assert [bool(control._LAUNCHERS.match(name)) for name in (*told, *kept)] == [True] * len(told) + [False] * len(kept)
