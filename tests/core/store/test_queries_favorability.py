"""The Favorability page's queries against the groups and rollouts they summarise."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from core.store import Lab, open_runs
from core.store.queries import favorability as queries
from tests.synthetic import make_run


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    root = tmp_path_factory.mktemp("favorability")
    make_run(root, "one", method="dapo", steps=5, prompts=3, group_size=4)
    make_run(root, "adora", method="adora_attenuate", steps=5, prompts=3, group_size=4, sealed=True)
    return open_runs([root / "one", root / "adora"])


@pytest.mark.parametrize("run", ["one", "adora"])
def test_visits_number_each_prompts_training_groups(lab: Lab, run: str) -> None:
    visits = queries.visits(lab, run)
    groups = lab.df("SELECT * FROM groups WHERE run = ? AND split = 'train'", [run])
    assert len(visits) == len(groups)
    assert visits[["step", "group"]].apply(tuple, axis=1).is_monotonic_increasing
    for _, part in visits.groupby("prompt_id"):
        assert part["visit"].tolist() == list(range(len(part)))
    merged = visits.merge(groups, on=["step", "group"])
    assert (merged["label"] == merged["class"]).all()
    assert visits["visit"].max() > 0


@pytest.mark.parametrize("run", ["one", "adora"])
def test_visits_are_numbered_across_steps_as_a_window_over_the_run_does(lab: Lab, run: str) -> None:
    expected = lab.df(
        'SELECT row_number() OVER (PARTITION BY prompt_id ORDER BY step, "group") - 1 AS visit FROM groups '
        "WHERE run = ? AND split = 'train' ORDER BY step, \"group\"",
        [run],
    )
    groups = queries.groups(lab, run)
    assert queries.numbered(groups)["visit"].tolist() == expected["visit"].tolist()
    assert "visit" not in groups  # which may be a frame that all sessions share


def test_shares_add_up_and_mean_weight_is_of_kept_groups(lab: Lab) -> None:
    shares, visits = queries.shares(lab, "one"), queries.visits(lab, "one")
    assert shares[["favorable", "unfavorable", "uniform"]].sum(axis=1).tolist() == pytest.approx([1.0] * len(shares))
    assert shares["groups"].tolist() == visits.groupby("step").size().tolist()
    assert not visits["kept"].all()  # dynamic sampling dropped some, and they count among the groups
    adora = queries.shares(lab, "adora")
    kept = queries.visits(lab, "adora").query("kept").groupby("step")["weight"].mean()
    assert adora["mean_weight"].tolist() == pytest.approx(kept.tolist())


def test_rollouts_rebuild_the_groups_numbers(lab: Lab) -> None:
    rollouts, visits = queries.rollouts(lab, "one"), queries.visits(lab, "one")
    correct = rollouts.groupby(["step", "group"])["correct"].sum().reset_index(name="sum")
    merged = visits.merge(correct, on=["step", "group"])
    assert (merged["sum"] == merged["correct"]).all()
    right = rollouts[rollouts["correct"]].groupby(["step", "group"])["length"].max().rename("longest").reset_index()
    merged = visits.merge(right, on=["step", "group"], how="left")
    pd.testing.assert_series_equal(
        merged["longest"].astype(float), merged["longest_correct"].astype(float), check_names=False
    )


@pytest.mark.parametrize("run", ["one", "adora"])
def test_groups_bring_what_their_rollouts_had(lab: Lab, run: str) -> None:
    groups = queries.groups(lab, run).set_index(["step", "group"])
    rollouts = lab.df("SELECT * FROM rollouts WHERE run = ? AND split = 'train'", [run])
    usable = (~rollouts["correct"] & ~rollouts["truncated"]).groupby([rollouts["step"], rollouts["group"]]).sum()
    by_group = rollouts.groupby(["step", "group"])
    assert (groups["usable_wrong"] == usable).all() and usable.gt(0).any() and usable.eq(0).any()
    assert (groups["equal"] == (by_group["reward"].max() == by_group["reward"].min())).all() and groups["equal"].any()
    for name in ("mass", "base_mass"):
        assert groups[name].tolist() == pytest.approx(by_group[name].sum().tolist()) and groups[name].sum() > 0
    if run == "adora":
        down = groups[groups["weight"] < 0.5]
        assert down["mass"].tolist() == pytest.approx((0.1 * down["base_mass"]).tolist()) and down["mass"].sum() > 0


@pytest.mark.parametrize("run", ["one", "adora"])
def test_the_mass_of_one_step_is_found_in_its_tokens_too(lab: Lab, run: str) -> None:
    rollouts = queries.rollouts(lab, run)
    mine = rollouts[rollouts["step"] == 2].reset_index(drop=True)
    found = queries.step_mass(lab.step(run, 2))
    assert found[["step", "group", "correct", "length"]].equals(mine[["step", "group", "correct", "length"]])
    for name in ("mass", "base_mass"):
        assert found[name].tolist() == pytest.approx(mine[name].tolist(), rel=1e-5, abs=1e-9) and mine[name].sum() > 0


def test_a_run_without_steps_gives_empty_frames(tmp_path: Path) -> None:
    make_run(tmp_path, "queued", state="queued")
    lab = open_runs([tmp_path / "queued"])
    for query in (queries.visits, queries.shares, queries.rollouts):
        assert query(lab, "queued").empty
