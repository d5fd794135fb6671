"""The processes of one run: whoever dies first says why, and nobody outlives the run. The ranks here train nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from core.config import ConfigError, parse_run
from core.runs import RunError, locks, team
from core.runs.create import check_machine
from core.runs.folders import REPO
from core.runs.team import Team, check_gpus
from core.train.reporter import TrainingError

FAKE_RANK = Path(__file__).with_name("fake_rank.py")


@pytest.fixture
def ranks(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """`ranks({1: "error"})`: how each of them ends."""
    monkeypatch.setattr(team, "RANK", (sys.executable, str(FAKE_RANK)))

    def tell(what: dict[int, str]) -> None:
        monkeypatch.setenv("FAKE_RANK", json.dumps(what))

    tell({})
    return tell


def of(
    tmp_path: Path, world: int = 3, gpus: tuple[str, ...] = (), abandon: Callable[[str], None] = pytest.fail
) -> Team:
    return Team(tmp_path, world, list(gpus), abandon)


def started(members: Team) -> dict[int, str]:
    """What the ranks wrote when they began, by rank."""
    deadline = time.monotonic() + 60
    while len(files := list(members.folder.glob("here-*"))) < members.world - 1:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    time.sleep(0.1)
    return {int(file.name.removeprefix("here-")): file.read_text() for file in files}


def gone(pids: list[int]) -> bool:
    return not any(psutil.pid_exists(pid) for pid in pids)


def test_the_others_are_ended_and_nothing_is_left(tmp_path: Path, ranks: Callable[..., None]) -> None:
    with pytest.raises(KeyboardInterrupt), of(tmp_path, gpus=("4", "5", "7")) as members:
        words = started(members)
        raise KeyboardInterrupt
    assert [line.split()[1:] for _, line in sorted(words.items())] == [["3", "5"], ["3", "7"]]
    assert gone([int(line.split()[0]) for line in words.values()])
    assert not members.folder.exists()


def test_a_team_that_trained_to_the_end_waits_for_all(tmp_path: Path, ranks: Callable[..., None]) -> None:
    ranks({1: "done", 2: "done"})
    with of(tmp_path) as members:
        pass
    assert not members.folder.exists()
    assert {process.returncode for process in members._processes.values()} == {0}


@pytest.mark.parametrize(
    ("what", "sentence"),
    [
        ({2: "error"}, "rank 2: step 3: the <b>verifier</b> gave nothing"),
        ({1: "killed"}, "rank 1 was killed by signal 9 (out of memory, perhaps); resume to go on"),
        ({1: "crashed"}, "rank 1 was killed by signal 6; resume to go on"),
        ({1: "silent"}, "rank 1 ended without saying why; its last words are in the log"),
    ],
)
def test_a_broken_connection_is_put_down_to_the_rank_that_died(
    tmp_path: Path, ranks: Callable[..., None], what: dict[int, str], sentence: str
) -> None:
    ranks(what)
    with pytest.raises(RunError) as caught, of(tmp_path) as members:
        started(members)
        raise RuntimeError("Connection closed by peer")
    assert str(caught.value) == sentence


def test_rank_0_speaks_for_itself(tmp_path: Path, ranks: Callable[..., None]) -> None:
    """Its own sentence wins over another's; and where nobody has died, what happened is its own doing."""
    ranks({1: "error"})
    with pytest.raises(TrainingError, match="not a finite number"), of(tmp_path) as members:
        started(members)
        raise TrainingError("step 3: the loss is not a finite number")
    ranks({})
    with pytest.raises(MemoryError), of(tmp_path) as members:
        started(members)
        raise MemoryError


def test_a_rank_0_that_hangs_is_abandoned(
    tmp_path: Path, ranks: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(team, "NOTICE_S", 0.3)
    ranks({1: "error"})
    said: list[str] = []
    with pytest.raises(RunError), of(tmp_path, abandon=said.append):
        deadline = time.monotonic() + 60
        while not said and time.monotonic() < deadline:
            time.sleep(0.05)
        raise RuntimeError("never reached on a GPU")
    assert said == ["rank 1: step 3: the <b>verifier</b> gave nothing"]


def test_a_rank_does_not_outlive_rank_0(tmp_path: Path) -> None:
    """The real rank, waiting for others that never come."""
    (tmp_path / "config.yaml").write_text("device: cpu\nprocesses: 2\n")
    code = (
        "import os, sys, time; from pathlib import Path; from core.runs.team import Team\n"
        f"team = Team(Path({str(tmp_path)!r}), 2, [], print); team.__enter__()\n"
        "print(team._processes[1].pid, team.folder, flush=True); time.sleep(120)"
    )
    first = subprocess.Popen([sys.executable, "-c", code], cwd=REPO, stdout=subprocess.PIPE, text=True)
    pid, folder = first.stdout.readline().split()
    assert psutil.pid_exists(int(pid))
    first.kill()
    first.wait()
    deadline = time.monotonic() + 30
    while psutil.pid_exists(int(pid)) and psutil.Process(int(pid)).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert not Path(folder).exists()


def test_each_process_needs_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "has_cuda", lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    assert check_gpus(parse_run({"processes": 2})) == ["2", "5"]
    assert check_gpus(parse_run({"processes": 1})) == ["2"]
    assert check_gpus(parse_run({"processes": 3, "device": "cpu"})) == []
    with pytest.raises(ConfigError, match=r"processes is 3, but this machine shows only 2 GPUs: lower it, or set dev"):
        check_machine(parse_run({"processes": 3}))


def test_each_process_needs_a_prompt_of_its_own() -> None:
    with pytest.raises(ConfigError, match="processes is 9, but prompts_per_step is 8"):
        parse_run({"processes": 9})
