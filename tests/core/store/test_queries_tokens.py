"""The Tokens page's SQL: what there is to choose from, and one group whole."""

from __future__ import annotations

import pytest

from core.store import Lab, open_runs
from core.store.queries import tokens as query
from tests.synthetic import make_run


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    root = tmp_path_factory.mktemp("tokens")
    live = make_run(root, "live", method="a3po", steps=5, prompts=3, group_size=4, state="running")
    (live / "steps" / "step=000002" / "tokens.parquet").unlink()
    return open_runs([live, make_run(root, "sealed", steps=4, prompts=3, group_size=4, sealed=True)])


def test_only_steps_with_tokens_can_be_chosen(lab):
    assert query.steps_with_tokens(lab, "live") == {0, 1, 3, 4}
    assert query.steps_with_tokens(lab, "sealed") == {0, 1, 2, 3, 4}  # the last holds the final probes


@pytest.mark.parametrize("run", ["live", "sealed"])
def test_a_group_comes_whole_and_in_order(lab, run):
    tokens = query.group_tokens(lab, run, 3, "train", 1)
    rollouts = query.group_rollouts(lab, run, 3, "train", 1)
    assert rollouts["rollout"].tolist() == [0, 1, 2, 3]
    assert tokens.groupby("rollout").size().tolist() == rollouts["length"].tolist()
    assert tokens["position"].tolist() == [t for n in rollouts["length"] for t in range(n)]
    assert set(tokens["split"]) == {"train"} and set(tokens["run"]) == {run}


def test_factor_columns_are_those_of_the_runs(lab):
    assert query.group_tokens(lab, "live", 3, "train", 0)["f_a3po"].notna().all()
    assert query.group_tokens(lab, "sealed", 3, "train", 0)["f_a3po"].isna().all()


def test_groups_of_a_step_and_of_the_run(lab):
    groups = query.group_list(lab, "sealed", 1, "train")
    assert groups["group"].tolist() == [0, 1, 2]
    index = query.group_index(lab, "sealed")
    assert index["step"].is_monotonic_increasing and set(index["split"]) == {"train", "probe"}
    here = index[(index["step"] == 1) & (index["split"] == "train")]
    assert here["prompt_id"].tolist() == groups["prompt_id"].tolist()
    assert here["correct"].tolist() == groups["correct"].tolist()


def test_updates_of_a_step(lab):
    assert query.step_updates(lab, "sealed", 1) == 1
    assert query.step_updates(lab, "sealed", 99) is None
