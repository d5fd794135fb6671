"""A step is there whole or not at all, whatever happens to the writer."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from core.store import StepRecord, StoreError, drop_steps_from, open_runs, step_numbers, write_step, writer
from core.store.files import live_steps

PROJECT = Path(__file__).parents[3]
TABLES_OF_A_FULL_STEP = {"metrics", "groups", "rollouts", "tokens", "evals", "summary", "positions", "strings"}


def hidden(run_dir: Path) -> list[str]:
    return [name for name in os.listdir(run_dir) if name.startswith(".")]


def test_a_written_step_is_a_folder_of_tables(tmp_path: Path, step_record: StepRecord) -> None:
    seconds = write_step(tmp_path, step_record)
    assert 0 < seconds < 60
    assert {file.stem for file in (tmp_path / "steps/step=000000").iterdir()} == TABLES_OF_A_FULL_STEP
    assert hidden(tmp_path) == []
    assert step_numbers(tmp_path) == [0]


def test_writing_a_step_again_replaces_it(tmp_path: Path, step_record: StepRecord) -> None:
    write_step(tmp_path, step_record)
    write_step(tmp_path, replace(step_record, metrics={"reward": 42.0}, eval=None))
    with open_runs([tmp_path]) as lab:
        assert [row["reward"] for row in lab.rows("SELECT * FROM metrics")] == [42.0]
        assert lab.rows("SELECT * FROM evals") == []
    assert hidden(tmp_path) == []


@pytest.mark.parametrize("fails", ["write_table", "rename"])
def test_a_write_that_fails_leaves_the_run_as_it_was(
    tmp_path: Path, step_record: StepRecord, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    write_step(tmp_path, step_record)
    before = sorted(os.stat(file).st_ino for file in (tmp_path / "steps/step=000000").iterdir())

    def disk_full(*args: object, **kwargs: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    real_rename = os.rename

    def rename_into_place_fails(source: str | Path, target: str | Path) -> None:
        if Path(source).name.startswith(".writing"):
            disk_full()
        real_rename(source, target)

    if fails == "write_table":
        monkeypatch.setattr(writer.pq, "write_table", disk_full)
    else:
        monkeypatch.setattr(writer.os, "rename", rename_into_place_fails)
    with pytest.raises(OSError, match="No space left"):
        write_step(tmp_path, replace(step_record, metrics={"reward": 42.0}))
    assert sorted(os.stat(file).st_ino for file in (tmp_path / "steps/step=000000").iterdir()) == before
    assert hidden(tmp_path) == []


def test_a_refused_record_writes_nothing(tmp_path: Path, step_record: StepRecord) -> None:
    with pytest.raises(StoreError, match="steps count from 0"):
        write_step(tmp_path, replace(step_record, step=-1))
    with pytest.raises(StoreError, match="no column"):
        write_step(tmp_path, replace(step_record, metrics={"nonsense": 1.0}))
    assert live_steps(tmp_path) == {}


def test_dropping_steps_takes_the_newest_and_what_a_dead_writer_left(run_dir: Path) -> None:
    for name in (".writing-step=000009", ".replaced-step=000001"):
        (run_dir / name).mkdir()
        (run_dir / name / "tokens.parquet").write_text("half")
    (run_dir / ".hidden").write_text("someone else's")
    assert drop_steps_from(run_dir, 2) == [2, 3]
    assert step_numbers(run_dir) == [0, 1]
    assert hidden(run_dir) == [".hidden"]
    assert drop_steps_from(run_dir, 2) == []


def test_a_replaced_step_whose_replacement_never_came_is_put_back(run_dir: Path) -> None:
    os.rename(run_dir / "steps/step=000001", run_dir / ".replaced-step=000001")
    (run_dir / ".replaced-step=000002").mkdir()
    drop_steps_from(run_dir, 9)
    assert step_numbers(run_dir) == [0, 1, 2, 3]
    assert hidden(run_dir) == []


def test_only_step_folders_are_steps(run_dir: Path) -> None:
    for name in ("step=", "step=x", "xstep=000007", "step=7.tmp", ".step=000008", "step=-1", "step=٣"):
        (run_dir / "steps" / name).mkdir()
    assert step_numbers(run_dir) == [0, 1, 2, 3]


def whole(run_dir: Path) -> list[int]:
    """The steps that a reader sees; fails unless every one of them has all its rows."""
    with open_runs([run_dir]) as lab:
        steps = lab.steps("run")
        rows = lab.rows(
            "WITH r AS (SELECT step, count(*) AS n, sum(length) FILTER (split != 'eval') AS tokens "
            "FROM rollouts GROUP BY step), t AS (SELECT step, count(*) AS n FROM tokens GROUP BY step), "
            "g AS (SELECT step, sum(n) AS n FROM groups GROUP BY step) "
            "SELECT step, r.n = g.n AND t.n = r.tokens AS whole, metrics.reward IS NOT NULL AS measured "
            "FROM r JOIN t USING (step) JOIN g USING (step) JOIN metrics USING (step) JOIN evals USING (step) "
            "ORDER BY step"
        )
    assert [(row["step"], row["whole"], row["measured"]) for row in rows] == [(step, True, True) for step in steps]
    return steps


def test_killed_at_random_moments_no_step_is_ever_half_there(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    moment = random.Random(5)
    server = subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("killed_writer.py"))],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": str(PROJECT)},
    )  # fmt: skip
    reached = []
    try:
        for _ in range(12):
            start = len(whole(run_dir))
            server.stdin.write(f"{run_dir} {start}\n")
            server.stdin.flush()
            pid = int(server.stdout.readline())
            deadline = time.monotonic() + 60
            while len(live_steps(run_dir)) == start and time.monotonic() < deadline:
                time.sleep(0.002)
            time.sleep(moment.uniform(0, 0.1))
            os.kill(pid, signal.SIGKILL)
            assert server.stdout.readline() == "gone\n"
            steps = whole(run_dir)
            reached.append(max(steps, default=-1))
            missing = set(range(max(steps, default=-1))) - set(steps)
            assert len(missing) <= 1  # killed between the two renames of a replacement
            drop_steps_from(run_dir, len(steps) + 1)
            assert whole(run_dir) == list(range(len(steps) + len(missing)))
    finally:
        server.kill()
        server.wait(10)
    assert max(reached) >= 11  # each of the twelve wrote a step at least


def test_a_reader_beside_the_writer_sees_only_whole_steps(tmp_path: Path, step_record: StepRecord) -> None:
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    write_step(run_dir, step_record)
    enough = threading.Event()
    written = [0]

    def write() -> None:
        while not enough.is_set() and len(written) < 300:
            written.append(len(written))
            write_step(run_dir, replace(step_record, step=written[-1]))

    thread = threading.Thread(target=write)
    thread.start()
    seen: list[int] = []
    while len(set(seen)) < 5 and thread.is_alive():
        seen.append(len(whole(run_dir)))
    enough.set()
    thread.join()
    assert seen == sorted(seen) and len(set(seen)) == 5
    assert whole(run_dir) == written
