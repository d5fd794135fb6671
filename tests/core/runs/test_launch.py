"""Runs as processes: they queue, report, fail, stop, go on, and go away. The trainer is pretended."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from core.config import read_run
from core.runs import RunError, control, delete, launch, list_runs, machine, read_status, resume, start, stop
from core.runs.create import create_runs
from core.runs.folders import REPO, run_info
from core.runs.locks import DeviceQueue
from core.runs.status import Status, write_status
from tests.core.runs.conftest import FAKE_WORKER, experiment, wait_for

Fake = Callable[..., None]


def timeline(root: Path) -> list[list[str]]:
    return [line.split() for line in (root / "timeline.txt").read_text().splitlines()]


def log_of(path: Path) -> str:
    return (path / "log.txt").read_text()


def test_an_experiment_trains_one_run_at_a_time_in_order(root: Path, fake: Fake) -> None:
    paths = start(root, experiment(methods=["grpo", "psr"], seeds=[0, 1], name="../x"))
    for path in paths:
        info = wait_for(path, "finished")
        assert (info.step, info.total, info.error, info.message) == (5, 5, "", "")
    expected = [[word, path.name] for path in paths for word in ("start", "end")]
    assert timeline(root) == expected
    assert [run.seed for run in sorted(list_runs(root, examples=False), key=lambda run: run.created)] == [0, 0, 1, 1]
    assert len({run.experiment for run in list_runs(root, examples=False)}) == 1
    assert {run.experiment_name for run in list_runs(root, examples=False)} == {"../x"}


def test_a_queued_run_says_where_in_line_it_stands(root: Path, fake: Fake) -> None:
    fake(step_s=5)
    first, _, third = start(root, experiment(seeds=[0, 1, 2]))
    info = wait_for(third, lambda info: "2nd in line" in info.message)
    assert info.state == "queued"
    assert info.message.startswith("waiting for cpu, 2nd in line, after ")
    assert run_info(first).live


def test_a_second_lab_queues_in_the_same_line(root: Path, fake: Fake) -> None:
    fake(step_s=0.1)
    (mine,) = start(root, experiment(steps=3))
    wait_for(mine, "running")
    code = (
        "import sys; from pathlib import Path; from core.runs import control, start; from core.config import parse\n"
        f"control.WORKER = (sys.executable, {str(FAKE_WORKER)!r})\n"
        f"print(start(Path({str(root)!r}), parse({{'steps': 2, 'device': 'cpu'}}))[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPO)
    theirs = Path(done.stdout.strip())
    wait_for(theirs, "finished")
    assert timeline(root) == [["start", mine.name], ["end", mine.name], ["start", theirs.name], ["end", theirs.name]]
    assert len(list_runs(root, examples=False)) == 2


def test_status_follows_the_training(root: Path, fake: Fake) -> None:
    fake(step_s=0.1)
    (path,) = start(root, experiment(steps=30))
    info = wait_for(path, lambda info: info.step >= 5)
    status = read_status(path)
    assert status is not None
    assert (info.state, info.total) == ("running", 30)
    assert info.eta_s == pytest.approx((30 - info.step) * 0.1, rel=0.5)
    assert info.reward == pytest.approx((status.step - 1) / 30)
    assert info.pass_at_1 is None
    assert psutil.Process(status.pid).nice() >= 5
    assert os.getsid(status.pid) == status.pid


def test_a_process_that_waits_has_not_loaded_torch(root: Path, fake: Fake) -> None:
    fake(step_s=5)
    _, waiting = start(root, experiment(seeds=[0, 1]))
    wait_for(waiting, lambda info: "in line" in info.message)
    status = read_status(waiting)
    assert status is not None
    maps = Path(f"/proc/{status.pid}/maps")
    if maps.exists():
        assert "libtorch" not in maps.read_text()
    assert psutil.Process(status.pid).memory_info().rss < 80 * 2**20


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("zero", "ZeroDivisionError: the loss is <b>not</b> a number"),
        ("memory", "out of memory: lower"),
        ("disk", "the disk is full: free some space, then resume"),
        ("rust", "the disk is full: free some space, then resume"),
    ],
)
def test_an_exception_becomes_one_sentence(root: Path, fake: Fake, kind: str, sentence: str) -> None:
    fake(fail_at=2, kind=kind)
    (path,) = start(root, experiment())
    info = wait_for(path, "failed")
    assert info.error.startswith(sentence)
    assert info.step == 2
    assert "Traceback" in log_of(path)
    fake()
    resume(path)
    assert wait_for(path, "finished").error == ""


def test_a_killed_run_fails_and_frees_the_device(root: Path, fake: Fake) -> None:
    fake(die_at=2, step_s=0.3)
    first, second = start(root, experiment(seeds=[0, 1]))
    info = wait_for(first, "failed")
    assert "died without saying why" in info.error
    assert info.error.endswith("about to take up all memory")
    wait_for(second, lambda info: info.state in ("running", "failed"))


def test_a_worker_that_cannot_start_fails_with_its_last_words(
    root: Path, monkeypatch: pytest.MonkeyPatch, fake: Fake
) -> None:
    monkeypatch.setattr(control, "WORKER", (sys.executable, "-c", "raise SystemExit('no such luck')"))
    monkeypatch.setattr("core.runs.status.SILENT_S", 0.5)
    (path,) = start(root, experiment())
    assert wait_for(path, "failed").error.endswith("no such luck")


def test_stopping_ends_the_step_and_resuming_goes_on(root: Path, fake: Fake) -> None:
    fake(step_s=0.1)
    (path,) = start(root, experiment(steps=20))
    wait_for(path, lambda info: info.step >= 2)
    stop(path)
    assert run_info(path).state in ("stopping", "stopped")
    info = wait_for(path, "stopped")
    assert 2 <= info.step < 20
    assert not (path / "stop").exists()
    fake(step_s=0)
    resume(path)
    assert wait_for(path, "finished").step == 20
    assert f"training from step {info.step} to 20" in log_of(path)


@pytest.mark.parametrize("way", ["queued", "loading"])
def test_stopping_before_the_first_step_is_immediate(root: Path, fake: Fake, way: str) -> None:
    fake(load_s=30)
    first, second = start(root, experiment(seeds=[0, 1]))
    wait_for(first, "loading")
    path = second if way == "queued" else first
    wait_for(path, lambda info: bool(info.message))
    asked = time.monotonic()
    stop(path)
    wait_for(path, "stopped")
    assert time.monotonic() - asked < 5


def test_a_run_that_does_not_listen_is_signalled(root: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(step_s=60)
    monkeypatch.setattr(control, "TERM_S", 0.5)
    (path,) = start(root, experiment())
    wait_for(path, "running")
    stop(path, now=True, wait=True)
    assert run_info(path).state == "stopped"
    status = read_status(path)
    assert status is not None
    assert not psutil.pid_exists(status.pid) or psutil.Process(status.pid).status() == psutil.STATUS_ZOMBIE
    fake()
    resume(path)
    wait_for(path, "finished")


def test_only_the_recorded_process_is_signalled(root: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = create_runs(root, experiment())
    status = read_status(path)
    assert status is not None
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        changed = {"state": "running", "pid": bystander.pid, "pid_started": 1.0}
        write_status(path, {**vars(status), **changed})
        with pytest.raises(RunError, match="is not running: it is failed"):
            stop(path, now=True, wait=True)
        monkeypatch.setattr(
            control, "run_info", lambda path: run_info(path).__class__(**{**vars(run_info(path)), "state": "running"})
        )
        stop(path, now=True, wait=True)
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


def test_what_cannot_be_done_says_why(root: Path, fake: Fake) -> None:
    fake(step_s=0.2)
    (path,) = start(root, experiment(steps=3))
    wait_for(path, "running")
    for action in (launch, resume, delete):
        with pytest.raises(RunError, match=rf"{path.name} is running"):
            action(path)
    wait_for(path, "finished")
    with pytest.raises(RunError, match="is not running: it is finished"):
        stop(path)
    with pytest.raises(RunError, match="is finished: to go on, extend it to more than its 3 steps"):
        resume(path)
    with pytest.raises(RunError, match="has 3 steps"):
        resume(path, extend_to=3)
    with pytest.raises(RunError, match="not a run folder"):
        delete(root)


def test_a_run_of_a_host_that_fell_silent_can_be_taken_over(root: Path, fake: Fake) -> None:
    (path,) = create_runs(root, experiment(steps=2))
    there = {**vars(read_status(path)), "state": "running", "host": "node7", "pid": 1, "boot_id": "x"}
    write_status(path, {**there, "heartbeat": time.time() - 60})
    for action in (resume, delete):
        with pytest.raises(RunError, match="is running on node7"):
            action(path)
    write_status(path, {**there, "heartbeat": time.time() - 3600})
    resume(path)
    assert wait_for(path, "finished").host_is_here


def test_a_run_that_cannot_be_started_says_why(root: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control, "WORKER", ("/no/such/python",))
    with pytest.raises(RunError, match=r"cannot be started \(/no/such/python: No such file or directory\)"):
        start(root, experiment())


def test_a_run_that_seals_is_not_killed(root: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = create_runs(root, experiment())
    sealing = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        status = Status(state="running", **machine.process(sealing.pid))
        write_status(path, {**vars(status), "state": "finished"})
        control._escalate(path, status, 0.0)
        assert sealing.poll() is None
    finally:
        sealing.kill()
        sealing.wait()


def test_extending_keeps_the_schedules_length(root: Path, fake: Fake) -> None:
    (path,) = start(root, experiment(steps=3))
    wait_for(path, "finished")
    resume(path, extend_to=6)
    assert wait_for(path, lambda info: info.state == "finished" and info.total == 6).step == 6
    config = read_run(path / "config.yaml")
    assert (config.steps, config.schedule_steps) == (6, 3)
    resume(path, extend_to=7)
    wait_for(path, lambda info: info.state == "finished" and info.total == 7)
    assert read_run(path / "config.yaml").schedule_steps == 3


def test_extending_needs_space_for_the_steps_to_come(root: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = start(root, experiment(steps=3))
    wait_for(path, "finished")
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda where: usage._replace(free=200 * 2**20))
    with pytest.raises(RunError, match=r"not enough disk space in .*: the run needs up to .* 200 MB are free"):
        resume(path, extend_to=100_000)
    assert read_run(path / "config.yaml").steps == 3
    assert run_info(path).state == "finished"
    resume(path, extend_to=4)
    assert wait_for(path, lambda info: info.state == "finished" and info.step == 4).total == 4


def test_an_imported_run_is_not_started(root: Path, fake: Fake) -> None:
    (path,) = create_runs(root, experiment())
    config = read_run(path / "config.yaml")
    (path / "config.yaml").write_text(control.dump(config.model_copy(update={"imported": True})))
    with pytest.raises(RunError, match="came from elsewhere"):
        launch(path)
    assert not (path / "log.txt").exists()


def test_a_config_broken_by_hand_says_so(root: Path, fake: Fake) -> None:
    (path,) = create_runs(root, experiment())
    (path / "config.yaml").write_text("steps: many\n")
    with pytest.raises(RunError, match="its config cannot run: steps: must be a whole number"):
        launch(path)


def test_deleting_leaves_nothing(root: Path, fake: Fake) -> None:
    (path,) = start(root, experiment(steps=1))
    wait_for(path, "finished")
    delete(path)
    assert [child.name for child in root.iterdir()] == ["timeline.txt"]


def test_deleting_a_link_keeps_what_it_points_to(root: Path, tmp_path: Path) -> None:
    (path,) = create_runs(tmp_path / "far", experiment())
    write_status(path, {**vars(read_status(path)), "state": "stopped"})
    root.mkdir()
    (root / "link").symlink_to(path)
    delete(root / "link")
    assert path.is_dir()
    assert not (root / "link").is_symlink()


def test_a_second_process_for_one_run_does_nothing(root: Path, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake(step_s=0.2)
    (path,) = start(root, experiment(steps=8))
    wait_for(path, "running")
    code = f"import sys, core.runs.worker as w; w.ENDING_S = 0.1; sys.argv = ['', {str(path)!r}]; sys.exit(w.main())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=REPO)
    assert "another process has this run" in done.stdout
    assert wait_for(path, "finished").step == 8
    assert len(timeline(root)) == 2


def test_sigterm_is_a_clean_stop(root: Path, fake: Fake) -> None:
    fake(step_s=0.1)
    (path,) = start(root, experiment(steps=50))
    wait_for(path, lambda info: info.step >= 1)
    status = read_status(path)
    assert status is not None
    os.kill(status.pid, signal.SIGTERM)
    info = wait_for(path, "stopped")
    assert info.error == ""
    assert not DeviceQueue("cpu").tickets()


def test_a_crash_between_runs_does_not_hold_up_the_line(root: Path, fake: Fake) -> None:
    fake(step_s=5)
    first, second, third = start(root, experiment(seeds=[0, 1, 2]))
    wait_for(first, "running")
    wait_for(second, lambda info: "1st in line" in info.message)
    wait_for(third, lambda info: "2nd in line" in info.message)
    for path in (second, first):
        status = read_status(path)
        assert status is not None
        os.kill(status.pid, signal.SIGKILL)
    wait_for(third, "running")
    assert run_info(second).state == run_info(first).state == "failed"
