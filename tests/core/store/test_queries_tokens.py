"""The Tokens page's SQL: what there is to choose from, and one group whole."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.store import Lab, open_runs
from core.store.queries import tokens as query
from core.store.schema import UNMOVED
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


def pushed_by_hand(lab: Lab, run: str, step: int) -> pd.DataFrame:
    """The pushed tokens of a step, worked out with pandas."""
    where = "WHERE run = ? AND step = ? AND split = 'train'"
    tokens = lab.df(f"SELECT * FROM tokens {where}", [run, step])
    polarity = lab.df(f'SELECT "group", rollout, polarity FROM rollouts {where}', [run, step])
    tokens = tokens.merge(polarity, on=["group", "rollout"])
    tokens = tokens[tokens["kept"] & (tokens["advantage"] != 0)].copy()
    tokens["change"] = tokens["after_logprob"] - tokens["trainer_logprob"]
    tokens["sure"] = np.searchsorted(query.SURE, np.exp(tokens["sampler_logprob"]), side="right")
    moved = tokens["change"].abs() >= UNMOVED
    tokens["along"] = np.where(moved, np.sign(tokens["change"]) * np.sign(tokens["advantage"]), 0)
    return tokens


@pytest.mark.parametrize(("run", "step"), [("live", 3), ("sealed", 1)])
def test_moves_count_every_pushed_token_once(lab, run, step):
    want, got = pushed_by_hand(lab, run, step), query.step_moves(lab, run, step)
    assert len(want) > 20 and got["pushed"].sum() == got["known"].sum() == len(want)
    assert (got["agreed"] + got["against"] + got["still"]).tolist() == got["known"].tolist()
    for row in got.itertuples():
        cell = want[(want["polarity"] == row.polarity) & (want["sure"] == row.sure)]
        counts = [int((cell["along"] == way).sum()) for way in (1, -1, 0)]
        assert [row.pushed, row.agreed, row.against, row.still] == [len(cell), *counts]
        assert row.median_change == pytest.approx(cell["change"].abs().median(), rel=1e-5)
    assert got["against"].sum() > 0


def test_changes_are_the_medians_of_both_polarities(lab):
    want, got = pushed_by_hand(lab, "sealed", 1), query.step_changes(lab, "sealed", 1)
    assert got["known"].tolist() == want.groupby("sure").size().tolist()
    assert got["median_change"].tolist() == pytest.approx(
        want.groupby("sure")["change"].apply(lambda c: c.abs().median())
    )


def test_contrary_tokens_are_those_that_moved_furthest_against_their_advantage(lab):
    want = pushed_by_hand(lab, "live", 3)
    want = want[want["along"] == -1]
    got = query.contrary_tokens(lab, "live", 3, limit=5)
    assert got["change"].abs().tolist() == pytest.approx(sorted(want["change"].abs(), reverse=True)[:5])
    assert (np.sign(got["change"]) == -np.sign(got["advantage"])).all()
    first = got.iloc[0]
    same = want[(want["group"] == first["group"]) & (want["rollout"] == first["rollout"])]
    assert first["token"] == same.set_index("position")["token"][first["position"]]


def test_a_step_without_log_probs_after_the_update_has_pushes_but_no_moves(tmp_path):
    path = make_run(tmp_path, "bare", steps=1, prompts=3, group_size=4)
    file = path / "steps" / "step=000000" / "tokens.parquet"
    table = pq.read_table(file)
    place = table.schema.get_field_index("after_logprob")
    field = table.schema.field(place)
    pq.write_table(table.set_column(place, field, pa.nulls(len(table), field.type)), file)
    with open_runs([path]) as bare:
        moves = query.step_moves(bare, "bare", 0)
        assert moves["pushed"].sum() > 0 and moves["known"].sum() == 0
        assert query.step_changes(bare, "bare", 0).empty and query.contrary_tokens(bare, "bare", 0).empty
