"""The Compare page's queries over runs of different methods, live and sealed."""

from __future__ import annotations

import pytest

from core.store import Lab, open_runs
from core.store.queries import compare as queries
from tests.synthetic import make_run

RUNS = ["a", "b", "queued"]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    root = tmp_path_factory.mktemp("compare")
    make_run(root, "a", method="grpo", steps=5, prompts=3, group_size=4, sealed=True)
    make_run(root, "b", method="a3po", steps=3, prompts=3, group_size=4, seed=1, state="running")
    make_run(root, "queued", state="queued")
    return open_runs([root / name for name in RUNS])


def test_metrics_and_evals_of_all_runs_in_order(lab: Lab) -> None:
    metrics, evals = queries.metrics(lab, RUNS), queries.evals(lab, RUNS)
    assert metrics[["run", "step"]].apply(tuple, axis=1).tolist() == [("a", s) for s in range(5)] + [
        ("b", s) for s in range(3)
    ]
    assert evals[["run", "step"]].apply(tuple, axis=1).tolist() == [("a", 0), ("a", 4), ("a", 5), ("b", 0)]
    assert set(metrics["traits"].iloc[0]) == {"self_check"}
    assert queries.metrics(lab, ["b"])["run"].unique().tolist() == ["b"]
    assert queries.metrics(lab, []).empty


def test_the_exam_prompt_by_prompt_is_the_recorded_pass_rate(lab: Lab) -> None:
    exam = queries.exam(lab, "a", 5)
    recorded = queries.evals(lab, ["a"]).set_index("step").loc[5]
    assert len(exam) == exam["prompt_id"].nunique() == recorded["prompts"]
    assert exam["pass_rate"].mean() == pytest.approx(recorded["pass_at_1"])
    assert (exam["n"] == recorded["rollouts"]).all()
    assert queries.exam(lab, "a", 1).empty
    assert exam["prompt_id"].tolist() == queries.exam(lab, "b", 0)["prompt_id"].tolist()


def test_probe_rollouts_and_tokens_of_one_group(lab: Lab) -> None:
    probes = queries.probes(lab, RUNS)
    assert set(probes["run"]) == {"a", "b"}
    assert probes[probes["step"] == 0].groupby("prompt_id")["run"].nunique().tolist() == [2, 2]
    group = int(probes[(probes["run"] == "b") & (probes["step"] == 0)]["group"].iloc[1])
    rollouts, tokens = queries.probe_rollouts(lab, "b", 0, group), queries.probe_tokens(lab, "b", 0, group)
    assert rollouts["rollout"].tolist() == [0, 1, 2, 3]
    assert tokens.groupby("rollout").size().tolist() == rollouts["length"].tolist()
    assert rollouts["correct"].sum() == probes.query("run == 'b' and step == 0 and group == @group")["correct"].iloc[0]
    assert queries.probe_tokens(lab, "a", 4, 99).empty
