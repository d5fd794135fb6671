"""status.json: written whole, read whatever state it is in, and never believed about a process that died."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from core.runs import machine
from core.runs.folders import list_runs, run_info
from core.runs.status import Status, derive, duration, read_status, write_status


def running(**changes: object) -> Status:
    status = Status(state="running", step=3, total=10, created=1.0, heartbeat=time.time(), **machine.this_process())
    return replace(status, **changes)


def dead_pid() -> int:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    return pid


def test_what_is_written_is_read(tmp_path: Path) -> None:
    status = running(metrics={"reward": 0.5}, eta_s=3.5, label="Ü", look_for="a\nb", sealed=True)
    write_status(tmp_path, status)
    assert read_status(tmp_path) == status
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_numbers_that_json_lacks_are_left_out(tmp_path: Path) -> None:
    write_status(tmp_path, running(metrics={"reward": float("nan"), "loss": 1.0}, eta_s=float("inf")))
    status = read_status(tmp_path)
    assert status is not None
    assert (status.metrics, status.eta_s) == ({"loss": 1.0}, None)


BROKEN = [
    b"",
    b"{",
    b'{"state": "running", "st',
    b"[]",
    b"null",
    b'{"state": 3}',
    b'{"state": "<b>"}',
    b"\xff\xfe\x00",
    b"[" * 100_000,
    b"\x00" * 4096,
]


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_a_broken_status_breaks_no_list(root: Path, content: bytes) -> None:
    for name in ("bad", "good"):
        (root / name).mkdir(parents=True)
        (root / name / "config.yaml").write_text("steps: 4\nmethod: {name: grpo}\n")
    (root / "bad" / "status.json").write_bytes(content)
    write_status(root / "good", Status(state="finished", step=4, total=4))
    states = {run.id: run.state for run in list_runs(root, examples=False)}
    assert states == {"bad": "failed", "good": "finished"}
    assert "status.json" in run_info(root / "bad").error


def test_fields_of_a_wrong_type_get_their_defaults(tmp_path: Path) -> None:
    wrong = {
        "state": "finished",
        "step": "x",
        "total": True,
        "pid": 1.5,
        "eta_s": "1",
        "metrics": [1],
        "error": 3,
        "new": 1,
    }
    (tmp_path / "status.json").write_text(json.dumps(wrong))
    assert read_status(tmp_path) == Status(state="finished")


def test_readers_never_see_a_part(tmp_path: Path) -> None:
    write_status(tmp_path, running())
    stop = threading.Event()
    seen: list[Status | None] = []

    def read() -> None:
        while not stop.is_set():
            seen.append(read_status(tmp_path))

    reader = threading.Thread(target=read)
    reader.start()
    for step in range(100):
        write_status(tmp_path, running(step=step, message="x" * 5000))
    stop.set()
    reader.join()
    assert len(seen) > 10
    assert None not in seen


def test_a_live_process_is_believed(tmp_path: Path) -> None:
    status = running()
    assert derive(tmp_path, status) == status


def test_a_dead_process_has_failed_with_its_last_words(tmp_path: Path) -> None:
    (tmp_path / "log.txt").write_bytes(
        b'step 3\nTraceback (most recent call last):\n  File "x.py", line 3\n    boom()\n'
        b"ValueError: \x1b[31mbad\x1b[0m \xe2\x80\xae<b>value</b>\n\n"
    )
    status = derive(tmp_path, running(pid=dead_pid()))
    assert status.state == "failed"
    assert "after step 3 of 10" in status.error
    assert status.error.endswith("last words: ValueError: bad <b>value</b>")


def test_a_reused_pid_is_not_the_run(tmp_path: Path) -> None:
    assert derive(tmp_path, running(pid_started=machine.process_started(os.getpid()) - 100)).state == "failed"


def test_a_zombie_is_dead(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    try:
        deadline = time.monotonic() + 5
        while machine.process_started(pid) is not None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert machine.process_started(pid) is None
    finally:
        os.waitpid(pid, 0)


def test_a_restart_of_the_machine_ends_a_run(tmp_path: Path) -> None:
    status = derive(tmp_path, running(boot_id="an earlier one"))
    assert status.state == "failed"
    assert "restarted" in status.error


def test_another_host_is_not_judged_only_found_silent(tmp_path: Path) -> None:
    elsewhere = running(host="node7", pid=dead_pid())
    assert derive(tmp_path, elsewhere).state == "running"
    silent = derive(tmp_path, replace(elsewhere, heartbeat=time.time() - 600))
    assert (silent.state, silent.message) == ("running", "no heartbeat for 10 min on node7")


def test_a_request_to_stop_shows_until_it_is_met(tmp_path: Path) -> None:
    (tmp_path / "stop").touch()
    assert derive(tmp_path, running()).state == "stopping"
    assert derive(tmp_path, running(pid=dead_pid())).state == "stopped"
    assert derive(tmp_path, running(state="finished")).state == "finished"


def test_a_run_that_nobody_started_does_not_wait_for_ever(tmp_path: Path) -> None:
    queued = Status(state="queued", created=time.time(), heartbeat=time.time(), host=machine.host())
    assert derive(tmp_path, queued).state == "queued"
    late = derive(tmp_path, replace(queued, created=1.0, heartbeat=1.0))
    assert late.state == "failed"
    assert late.error == "its process never started; resume it to start it"


def test_readers_write_nothing(tmp_path: Path) -> None:
    write_status(tmp_path, running(pid=dead_pid()))
    before = (tmp_path / "status.json").read_bytes()
    assert run_info(tmp_path).state == "failed"
    assert (tmp_path / "status.json").read_bytes() == before


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (89, "89 s"), (600, "10 min"), (7200, "2.0 h"), (1e6, "12 days")]
)
def test_durations_for_people(seconds: float, words: str) -> None:
    assert duration(seconds) == words
