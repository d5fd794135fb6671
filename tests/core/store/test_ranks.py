"""A step written by several processes is one step. Here they are threads: the store only asks them to meet."""

from __future__ import annotations

import errno
import shutil
import threading
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest

from core.config import RunConfig
from core.ranks import Ranks
from core.store import (
    StepRecord,
    check,
    drop_steps_from,
    fingerprint,
    open_runs,
    seal,
    write_schema,
    write_step,
    writer,
)
from core.store.files import live_steps
from core.store.queries.live import Follower
from core.store.queries.tokens import group_tokens, steps_with_tokens
from core.store.schema import TABLES
from core.store.sql import query
from tests.ranks import Threads
from tests.synthetic import records

WORLD = 3


@pytest.fixture
def shared_run(run_dir: Path, settings: RunConfig) -> Path:
    """The run of `run_dir`, its steps written by three ranks."""
    path = shutil.copytree(run_dir, run_dir.with_name("shared") / "run", ignore=shutil.ignore_patterns("step=*"))
    for record in records(settings, 3):
        Threads(WORLD).run(lambda ranks, record=record: write_step(path, record, ranks))
    return path


def contents(path: Path, table: str) -> pd.DataFrame:
    with open_runs([path]) as lab:
        return lab.df(f"SELECT * FROM {table} ORDER BY ALL")


def test_each_rank_writes_its_groups_and_readers_see_one_step(run_dir: Path, shared_run: Path) -> None:
    names = {file.name for file in (shared_run / "steps/step=000000").iterdir()}
    assert names == {
        "metrics.parquet", "evals.parquet", "summary.parquet", "positions.parquet", "strings.parquet",
        *(f"{table}{rank}.parquet" for table in ("groups", "rollouts", "tokens") for rank in ("", "-1", "-2")),
    }  # fmt: skip
    groups = [
        {(row["split"], row["group"]) for row in pq.read_table(file, columns=["split", "group"]).to_pylist()}
        for file in sorted((shared_run / "steps/step=000000").glob("tokens*.parquet"))
    ]
    assert len(groups) == WORLD and all(groups)
    assert sum(map(len, groups)) == len(set.union(*groups)), "a group in two files"
    for table in TABLES:
        timed = ["time"] if table == "metrics" else []
        one, several = contents(run_dir, table).drop(columns=timed), contents(shared_run, table).drop(columns=timed)
        pd.testing.assert_frame_equal(one, several, rtol=1e-12)


def test_queries_live_curves_and_sql_read_all_files(run_dir: Path, shared_run: Path) -> None:
    for group in range(3):
        frames = []
        for path in (run_dir, shared_run):
            with open_runs([path]) as lab:
                assert steps_with_tokens(lab, "run") == {0, 1, 2, 3}
                frames.append(group_tokens(lab, "run", 1, "train", group))
        pd.testing.assert_frame_equal(*frames)
        assert len(frames[0])
    counts = [query([path], "SELECT count(*) AS n FROM tokens").rows for path in (run_dir, shared_run)]
    assert counts[0] == counts[1]
    curves = [Follower(path).read().metrics["reward"].tolist() for path in (run_dir, shared_run)]
    assert curves[0] == curves[1]


def test_a_shared_run_keeps_the_promise_live_and_sealed(shared_run: Path) -> None:
    live = fingerprint([shared_run])
    assert check(shared_run).problems == []
    before = {table: contents(shared_run, table) for table in TABLES}
    (shared_run / "status.json").write_text('{"state": "finished"}')
    seal(shared_run)
    assert fingerprint([shared_run]) != live
    shutil.rmtree(shared_run / "steps")
    assert check(shared_run).problems == []
    for table, frame in before.items():
        pd.testing.assert_frame_equal(contents(shared_run, table), frame)


def test_a_file_that_is_missing_is_found_out(shared_run: Path) -> None:
    (shared_run / "steps/step=000001/tokens-1.parquet").unlink()
    assert any("step 1" in problem for problem in check(shared_run).problems)


def test_a_step_that_one_rank_could_not_write_is_not_there(
    run_dir: Path, step_record: StepRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table = writer.pq.write_table

    def full(rows: Any, path: Path, **settings: Any) -> None:
        if path.name == "tokens-2.parquet":
            raise OSError(errno.ENOSPC, "No space left on device")
        write_table(rows, path, **settings)

    drop_steps_from(run_dir, 0)
    monkeypatch.setattr(writer.pq, "write_table", full)
    team = Threads(WORLD)

    def work(ranks: Ranks) -> str:
        try:
            write_step(run_dir, step_record, ranks)
        except (OSError, threading.BrokenBarrierError) as error:
            team.barrier.abort()  # as the death of a process ends what the others wait for
            return type(error).__name__
        return "written"

    assert team.run(work) == ["BrokenBarrierError", "BrokenBarrierError", "OSError"]
    assert live_steps(run_dir) == {}
    drop_steps_from(run_dir, 0)
    assert not list(run_dir.glob(".writing-*"))


def test_more_ranks_than_groups(tmp_path: Path, step_record: StepRecord, settings: RunConfig) -> None:
    one, many = tmp_path / "one" / "run", tmp_path / "many" / "run"
    for path in (one, many):
        path.mkdir(parents=True)
        write_schema(path, settings)
    write_step(one, step_record)
    Threads(6).run(lambda ranks: write_step(many, step_record, ranks))
    for table in ("groups", "rollouts", "tokens", "summary", "positions", "strings"):
        pd.testing.assert_frame_equal(contents(one, table), contents(many, table), rtol=1e-12)
