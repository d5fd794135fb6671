"""The SQL of the whole run and of one prompt through training, against sums over the tokens by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from core.store import Lab, open_runs, schema
from core.store.queries import tokens_run as query
from tests.synthetic import make_run


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    root = tmp_path_factory.mktemp("tokens-run")
    paths: list[Path] = [
        make_run(root, "live", method="a3po", steps=5, prompts=3, group_size=4, gap=0.05),
        make_run(root, "sealed", method="psr", steps=5, prompts=3, group_size=4, seed=1, sealed=True),
    ]
    return open_runs(paths)


def tokens(lab: Lab, run: str, split: str = "train") -> pd.DataFrame:
    """Every token with its rollout's polarity and length, and each field of COUNTED as it is defined; NaN without."""
    frame = lab.df(
        "SELECT t.*, r.polarity, r.length, r.prompt_id FROM tokens t "
        'JOIN rollouts r USING (run, step, split, "group", rollout) WHERE run = ? AND split = ?',
        [run, split],
    )
    frame["probability"] = np.exp(frame["sampler_logprob"].astype(float))
    frame["advantage"] = frame["advantage"].where(frame["kept"])
    frame["base_advantage"] = frame["base_advantage"].where(frame["kept"])
    frame["push"] = frame["advantage"] * (1 - frame["probability"])
    frame["mass"] = frame["loss_weight"] * frame["advantage"].abs()
    frame["change"] = frame["after_logprob"].astype(float) - frame["trainer_logprob"]
    frame["entropy_change"] = frame["entropy_after"].astype(float) - frame["entropy"]
    asked = frame["kept"] & (frame["advantage"] != 0) & (frame["change"].abs() >= schema.UNMOVED)
    frame["agreed"] = (frame["change"] * frame["advantage"] > 0).astype(float).where(asked)
    return frame


def by_hand(frame: pd.DataFrame, keys: list[str], field: str) -> pd.DataFrame:
    there = frame[frame[field].notna()]
    return there.groupby(keys)[field].agg(n="count", sum="sum").reset_index()


@pytest.mark.parametrize("run", ["live", "sealed"])
@pytest.mark.parametrize("field", list(query.COUNTED))
def test_relative_and_absolute_places_hold_the_tokens_of_each_step(lab, run, field):
    frame = tokens(lab, run)
    frame["tenth"] = frame["position"] * 10 // frame["length"]
    for got, place in ((query.by_tenth(lab, run, field), "tenth"), (query.by_position(lab, run, field), "position")):
        exact = by_hand(frame, ["step", "polarity", place], field)
        assert frame["position"].max() < 64  # below it each position has its own bin
        assert (
            got[["step", "polarity", "bin"]].to_numpy().tolist() == exact[["step", "polarity", place]].values.tolist()
        )
        assert got["n"].tolist() == exact["n"].tolist()
        assert np.allclose(got["sum"], exact["sum"], rtol=1e-5, atol=1e-9)


def test_windows_of_steps_add_up(lab):
    each, two = (query.by_position(lab, "live", "entropy", every=every) for every in (1, 2))
    exact = each.assign(step=each["step"] // 2 * 2).groupby(["step", "polarity", "bin"])[["n", "sum"]].sum()
    assert two["step"].unique().tolist() == [0, 2, 4]
    assert np.allclose(two.set_index(["step", "polarity", "bin"]), exact)


def test_agreement_counts_tokens_that_moved_as_pushed(lab):
    got = query.agreement(lab, "live")
    exact = by_hand(tokens(lab, "live"), ["step", "polarity"], "agreed")
    assert got["pushed"].tolist() == exact["n"].tolist()
    assert got["agreed"].tolist() == exact["sum"].astype(int).tolist()
    assert 0 < got["agreed"].sum() < got["pushed"].sum()


@pytest.mark.parametrize("split", ["train", "probe"])
def test_visits_are_the_groups(lab, split):
    got = query.visits(lab, "sealed", split)
    rows = lab.rows("SELECT step, \"group\", correct FROM groups WHERE run = 'sealed' AND split = ?", [split])
    assert {(row["step"], row["group"], row["correct"]) for row in rows} == {
        *got[["step", "group", "correct"]].itertuples(index=False, name=None)
    }


@pytest.fixture(scope="module")
def probe(lab) -> str:
    return query.visits(lab, "live", "probe")["prompt_id"].iloc[0]


def test_a_prompts_answers_by_step(lab, probe):
    got = query.prompt_rollouts(lab, "live", "probe", probe)
    rows = lab.df("SELECT * FROM rollouts WHERE run = 'live' AND split = 'probe' AND prompt_id = ?", [probe])
    assert got["step"].unique().tolist() == [0, 4, 5]
    for row in got.itertuples():
        own = rows[rows["step"] == row.step]
        side = own[own["polarity"] == row.polarity]
        assert (row.rollouts, row.length) == (len(side), pytest.approx(side["length"].mean()))
        openings = Counter(text[: query.OPENING] for text in own["text"])
        assert (row.different, row.alike) == (own["text"].nunique(), max(openings.values()))
        assert row.truncated == own["truncated"].sum()


@pytest.mark.parametrize("field", ["push", "entropy"])
def test_a_prompts_tokens_by_step(lab, probe, field):
    got = query.prompt_tokens(lab, "live", "probe", probe, field)
    frame = tokens(lab, "live", "probe").fillna({"advantage": 0.0, "push": 0.0})  # dropped tokens are stored with 0
    exact = frame[frame["prompt_id"] == probe].groupby(["step", "polarity"])
    assert got["tokens"].tolist() == exact.size().tolist()
    assert np.allclose(got["entropy"], exact["entropy"].mean(), rtol=1e-5)
    assert np.allclose(got["mean_advantage"], exact["advantage"].mean(), rtol=1e-5, atol=1e-6)
    for name, q in (("low", 0.02), ("high", 0.98)):
        assert np.allclose(got[name], exact[field].quantile(q), rtol=1e-4, atol=1e-6)


def test_a_prompt_that_was_never_met_has_no_rows(lab):
    assert query.prompt_rollouts(lab, "live", "probe", "none").empty
    assert query.prompt_tokens(lab, "live", "probe", "none", "push").empty
