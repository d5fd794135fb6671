"""A query kept up to date: the same rows as asking anew, without reading again what was read."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pandas as pd
import pytest

from core.store import open_runs, seal
from core.store.queries import favorability, polarity, tokens
from core.store.queries.by_step import ByStep
from tests.synthetic import make_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return make_run(tmp_path, "run", steps=6, prompts=3, group_size=4, state="running")


def take_away(run: Path, away: Path, *steps: int) -> None:
    for step in steps:
        shutil.move(run / "steps" / f"step={step:06d}", away / f"step={step:06d}")


def give_back(run: Path, away: Path, *steps: int) -> None:
    for step in steps:
        shutil.move(away / f"step={step:06d}", run / "steps" / f"step={step:06d}")


def same(follower: ByStep, query, run: Path) -> None:
    with open_runs([run]) as lab:
        pd.testing.assert_frame_equal(
            follower.read(lab, "run"), query(lab, "run"), check_dtype=False, check_index_type=False
        )


@pytest.mark.parametrize(
    "query",
    [
        polarity.answers_by_step,
        polarity.fields_by_step,
        tokens.group_index,
        favorability.groups,
        favorability.shares,
        favorability.rollouts,
    ],
)
def test_new_steps_are_added(run, tmp_path, query):
    take_away(run, tmp_path, 3, 4, 5)
    follower = ByStep(query)
    same(follower, query, run)
    give_back(run, tmp_path, 3)
    same(follower, query, run)
    give_back(run, tmp_path, 4, 5)
    same(follower, query, run)
    assert follower.full_reads == 1


def test_a_resume_takes_steps_away_and_writes_them_anew(run, tmp_path):
    follower = ByStep(polarity.answers_by_step)
    same(follower, polarity.answers_by_step, run)
    take_away(run, tmp_path, 4, 5)
    same(follower, polarity.answers_by_step, run)
    other = make_run(tmp_path, "other", steps=6, prompts=3, group_size=4, seed=9, state="running")
    shutil.move(other / "steps" / "step=000004", run / "steps" / "step=000004")
    os.utime(run / "steps" / "step=000004")
    same(follower, polarity.answers_by_step, run)
    assert follower.full_reads == 1


def test_sealing_and_extending(run):
    follower = ByStep(polarity.fields_by_step)
    same(follower, polarity.fields_by_step, run)
    status = json.loads((run / "status.json").read_text(encoding="utf-8"))
    (run / "status.json").write_text(json.dumps(status | {"state": "finished"}), encoding="utf-8")
    seal(run)
    same(follower, polarity.fields_by_step, run)
    shutil.rmtree(run / "steps")
    same(follower, polarity.fields_by_step, run)
    with open_runs([run]) as lab:
        assert follower.read(lab, "run")["step"].nunique() == 6


def test_starts_from_nothing(run, tmp_path):
    take_away(run, tmp_path, *range(6))
    follower = ByStep(polarity.answers_by_step)
    same(follower, polarity.answers_by_step, run)
    give_back(run, tmp_path, 0, 1)
    same(follower, polarity.answers_by_step, run)
