"""Following a run while it is written, and its newest rollouts."""

from __future__ import annotations

import shutil

import pytest

from core.config import read_run
from core.store import StoreError, drop_steps_from, open_runs, seal, write_step
from core.store.queries.live import AT_ONCE, Follower, newest_rollouts
from tests.synthetic import make_run, records


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path, "live", steps=4, prompts=3, group_size=4, state="running")


def later_steps(run, upto):
    return records(read_run(run / "config.yaml"), upto, final=False)


def test_only_new_steps_are_read(run):
    follower = Follower(run)
    first = follower.read()
    assert list(first.metrics["step"]) == [0, 1, 2, 3]
    assert list(first.evals["step"]) == [0]
    assert first.last_step == 3
    assert follower.read() is first
    assert follower.steps_read == 4
    for record in later_steps(run, 6)[4:]:
        write_step(run, record)
    second = follower.read()
    assert list(second.metrics["step"]) == [0, 1, 2, 3, 4, 5]
    assert list(second.evals["step"]) == [0, 4]
    assert second.version == first.version + 1
    assert follower.steps_read == 6


def test_values_are_those_of_the_store(run):
    curves = Follower(run).read()
    with open_runs([run]) as lab:
        rows = lab.rows("SELECT step, reward, entropy, traits FROM metrics ORDER BY step")
    assert [row["reward"] for row in rows] == list(curves.metrics["reward"])
    assert [dict(row["traits"])["self_check"] for row in rows] == list(curves.metrics["traits.self_check"])
    assert "self_check" in curves.traits()
    share = curves.metrics["mass_positive_share"]
    both = curves.metrics["mass_positive"] + curves.metrics["mass_negative"]
    assert list(share) == pytest.approx(list(curves.metrics["mass_positive"] / both))


def test_steps_that_a_resume_dropped_and_wrote_anew_are_read_again(run):
    follower = Follower(run)
    follower.read()
    drop_steps_from(run, 2)
    assert list(follower.read().metrics["step"]) == [0, 1]
    record = later_steps(run, 3)[2]
    record.metrics["reward"] = 0.123
    write_step(run, record)
    curves = follower.read()
    assert list(curves.metrics["step"]) == [0, 1, 2]
    assert curves.metrics["reward"].iloc[2] == 0.123


def test_a_step_replaced_between_two_reads_is_noticed(run):
    follower = Follower(run)
    follower.read()
    record = later_steps(run, 2)[1]
    record.metrics["reward"] = 0.456
    write_step(run, record)
    assert follower.read().metrics["reward"].iloc[1] == 0.456


def test_sealing_changes_nothing(tmp_path):
    run = make_run(tmp_path, "done", steps=5, prompts=3, group_size=4)
    follower = Follower(run)
    live = follower.read()
    seal(run)
    both = follower.read()
    shutil.rmtree(run / "steps")
    sealed = follower.read()
    for curves in (both, sealed):
        assert curves.metrics[live.metrics.columns].equals(live.metrics)
        assert list(curves.evals["pass_at_1"]) == list(live.evals["pass_at_1"])


def test_many_unseen_steps_are_read_at_once(tmp_path):
    run = make_run(tmp_path, "long", steps=AT_ONCE + 4, prompts=2, group_size=2, state="running")
    follower = Follower(run)
    assert len(follower.read().metrics) == AT_ONCE + 4
    assert follower.steps_read == 0


def test_a_run_without_a_step_gives_empty_frames(tmp_path):
    run = make_run(tmp_path, "new", steps=3, state="queued")
    curves = Follower(run).read()
    assert len(curves.metrics) == len(curves.evals) == 0
    assert curves.last_step is None
    assert curves.traits() == []


def test_newest_rollouts_take_turns_between_groups(run):
    with open_runs([run]) as lab:
        frame = newest_rollouts(lab, "live", 3, count=6)
        mean = lab.rows(
            "SELECT avg(advantage) AS a FROM tokens "
            "WHERE split = 'train' AND step = 3 AND \"group\" = ? AND rollout = ?",
            [int(frame["group"].iloc[0]), int(frame["rollout"].iloc[0])],
        )[0]["a"]
    assert len(frame) == 6
    assert set(frame["group"]) == {0, 1, 2}
    assert frame["advantage"].iloc[0] == pytest.approx(mean)
    assert frame["prompt"].str.endswith("=?").all()


def test_a_damaged_file_is_said_and_read_again_once_it_is_mended(run):
    follower = Follower(run)
    file = sorted(run.glob("steps/*/metrics.parquet"))[-1]
    whole = file.read_bytes()
    file.write_bytes(whole[:40])
    with pytest.raises(StoreError, match="damaged"):
        follower.read()
    file.write_bytes(whole)
    assert list(follower.read().metrics["step"]) == [0, 1, 2, 3]
