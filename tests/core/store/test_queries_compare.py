"""The Compare page's queries over runs of different methods, live and sealed."""

from __future__ import annotations

import shutil

import pandas as pd
import pytest

from core.store import Lab, open_runs
from core.store.queries import compare as queries
from core.store.queries.by_step import ByStep
from tests.synthetic import make_run

RUNS = ["a", "b", "queued"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    root = tmp_path_factory.mktemp("compare")
    make_run(root, "a", method="grpo", steps=5, prompts=3, group_size=4, sealed=True)
    make_run(root, "b", method="a3po", steps=3, prompts=3, group_size=4, seed=1, state="running")
    make_run(root, "queued", state="queued")
    return open_runs([root / name for name in RUNS])


def test_metrics_and_evals_of_a_run_in_order(lab: Lab) -> None:
    assert queries.metrics(lab, "a")["step"].tolist() == [0, 1, 2, 3, 4]
    assert queries.evals(lab, "a")["step"].tolist() == [0, 4, 5]
    assert queries.metrics(lab, "b")["step"].tolist() == [0, 1, 2] and queries.evals(lab, "b")["step"].tolist() == [0]
    assert set(queries.metrics(lab, "a")["traits"].iloc[0]) == {"self_check"}
    assert queries.metrics(lab, "b")["run"].unique().tolist() == ["b"]
    for query in (queries.metrics, queries.evals, queries.probes):
        assert query(lab, "queued").empty


@pytest.mark.parametrize("query", [queries.metrics, queries.evals, queries.probes])
def test_whole_run_questions_are_kept_up_to_date_step_by_step(tmp_path, query) -> None:
    make_run(tmp_path, "r", steps=9, prompts=3, group_size=4)
    kept = tmp_path / "kept"
    shutil.move(tmp_path / "r" / "steps" / "step=000008", kept)
    follower = ByStep(query)
    with open_runs([tmp_path / "r"]) as lab:
        before = len(follower.read(lab, "r"))
    shutil.move(kept, tmp_path / "r" / "steps" / "step=000008")
    with open_runs([tmp_path / "r"]) as lab:
        pd.testing.assert_frame_equal(follower.read(lab, "r"), query(lab, "r"))
        assert len(query(lab, "r")) > before and follower.full_reads == 1


def test_the_exam_prompt_by_prompt_is_the_recorded_pass_rate(lab: Lab) -> None:
    exam = queries.exam(lab, "a", 5)
    recorded = queries.evals(lab, "a").set_index("step").loc[5]
    assert len(exam) == exam["prompt_id"].nunique() == recorded["prompts"]
    assert exam["pass_rate"].mean() == pytest.approx(recorded["pass_at_1"])
    assert (exam["n"] == recorded["rollouts"]).all()
    assert queries.exam(lab, "a", 1).empty
    assert exam["prompt_id"].tolist() == queries.exam(lab, "b", 0)["prompt_id"].tolist()


def test_probe_rollouts_and_tokens_of_one_group(lab: Lab) -> None:
    probes = pd.concat([queries.probes(lab, run) for run in ("a", "b")])
    assert probes[probes["step"] == 0].groupby("prompt_id")["run"].nunique().tolist() == [2, 2]
    group = int(probes[(probes["run"] == "b") & (probes["step"] == 0)]["group"].iloc[1])
    rollouts, tokens = queries.probe_rollouts(lab, "b", 0, group), queries.probe_tokens(lab, "b", 0, group)
    assert rollouts["rollout"].tolist() == [0, 1, 2, 3]
    assert tokens.groupby("rollout").size().tolist() == rollouts["length"].tolist()
    assert rollouts["correct"].sum() == probes.query("run == 'b' and step == 0 and group == @group")["correct"].iloc[0]
    assert queries.probe_tokens(lab, "a", 4, 99).empty
