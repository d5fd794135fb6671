"""The Polarity page's SQL against the same sums in numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from core.store import Lab, open_runs
from core.store.queries import polarity as query
from tests.synthetic import make_run


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    root = tmp_path_factory.mktemp("polarity")
    paths: list[Path] = [
        make_run(root, "live", method="a3po", steps=5, prompts=4, group_size=4, state="running"),
        make_run(root, "sealed", method="psr", steps=3, prompts=3, group_size=4, seed=1, sealed=True),
    ]
    return open_runs(paths)


@pytest.mark.parametrize("run", ["live", "sealed"])
def test_summary_agrees_with_the_tokens(lab, run):
    got = query.fields_by_step(lab, run)
    exact = lab.df(
        "SELECT step, polarity, count(*) AS tokens, avg(entropy) AS entropy, avg(exp(sampler_logprob)) AS probability, "
        "coalesce(sum(loss_weight * abs(advantage)) FILTER (t.kept), 0) AS mass, "
        "coalesce(sum(loss_weight * abs(t.base_advantage)) FILTER (t.kept), 0) AS base_mass "
        'FROM tokens t JOIN rollouts r USING (run, step, split, "group", rollout) '
        "WHERE run = ? AND split = 'train' GROUP BY ALL ORDER BY step, polarity",
        [run],
    )
    for column in exact:
        assert np.allclose(got[column], exact[column], rtol=1e-5), column


def test_answers_by_step(lab):
    got = query.answers_by_step(lab, "live")
    exact = lab.df(
        "SELECT step, polarity, count(*) AS rollouts, avg(length) AS length, avg(reward) AS reward, "
        "avg(truncated::INT) AS truncated FROM rollouts "
        "WHERE run = 'live' AND split = 'train' GROUP BY ALL ORDER BY 1, 2"
    )
    for column in exact:
        assert np.allclose(got[column], exact[column]), column
    assert (
        got["rollouts"].sum()
        == lab.rows("SELECT count(*) AS n FROM rollouts WHERE run = 'live' AND split = 'train'")[0]["n"]
    )
    right = got[got["polarity"] == 1]
    assert (right["reward"] > got[got["polarity"] == -1]["reward"].max()).all()
    assert (got["flagged"] == 0).all()


def test_histograms_count_every_token(lab):
    got = query.histograms(lab, "live", "probability")
    tokens = lab.rows("SELECT count(*) AS n FROM tokens WHERE run = 'live' AND split = 'train'")[0]["n"]
    assert got["n"].sum() == tokens
    top = lab.rows(
        "SELECT count(*) AS n FROM tokens WHERE run = 'live' AND split = 'train' AND exp(sampler_logprob) >= 0.95"
    )
    assert got.loc[got["bucket"] == 19, "n"].sum() == top[0]["n"]


def test_signal_counts_groups_apart(lab):
    got = query.answers_by_step(lab, "live").drop_duplicates("step")
    assert (got["groups"] == got["all_correct"] + got["all_wrong"] + got["mixed"]).all()
    assert (got["no_signal"] == got["all_correct"] + got["all_wrong"]).all()  # rewards here are 0 or 1
    shares = lab.df("SELECT step, no_signal_share FROM metrics WHERE run = 'live' ORDER BY step")
    assert np.allclose(got["no_signal"].to_numpy() / got["groups"].to_numpy(), shares["no_signal_share"])


def test_group_masses_sum_to_the_steps_mass(lab):
    got = query.group_masses(lab, "live", 3)
    row = lab.rows("SELECT mass_positive, mass_negative FROM metrics WHERE run = 'live' AND step = 3")[0]
    assert got["positive"].sum() == pytest.approx(row["mass_positive"], rel=1e-5)
    assert got["negative"].sum() == pytest.approx(row["mass_negative"], rel=1e-5)


def test_cells_hold_the_ranked_fifth_of_each_response(lab):
    got = query.cells(lab, "live", 2).set_index(["polarity", "metric", "end"])
    tokens = lab.df(
        'SELECT "group", rollout, r.polarity, position, sampler_logprob AS p, '
        "loss_weight * abs(advantage) * t.kept::INT AS mass "
        'FROM tokens t JOIN rollouts r USING (run, step, split, "group", rollout) '
        "WHERE run = 'live' AND step = 2 AND split = 'train'"
    )
    mass, n, best = 0.0, 0, (-1.0, None)
    for (group, rollout), part in tokens[tokens["polarity"] == 1].groupby(["group", "rollout"]):
        low = part.sort_values(["p", "position"]).head(max(1, int(0.2 * len(part))))
        mass, n = mass + low["mass"].sum(), n + len(low)
        top = low.loc[low["mass"].idxmax()]
        best = max(best, (float(top["mass"]), (group, rollout)), key=lambda pair: pair[0])
    cell = got.loc[(1, "probability", "low")]
    assert cell["tokens"] == n and cell["mass"] == pytest.approx(mass, rel=1e-5)
    assert cell["share"] == pytest.approx(n / len(tokens))
    assert cell["mass_share"] == pytest.approx(mass / tokens["mass"].sum(), rel=1e-5)
    there = tokens.set_index(["group", "rollout", "position"])["mass"]
    assert there[(cell["group"], cell["rollout"], cell["position"])] == pytest.approx(best[0])
    assert len(got) == 8


def test_a3po_moves_mass_into_its_two_cells(lab):
    got = query.cells(lab, "live", 2).set_index(["polarity", "metric", "end"])
    for key in ((1, "probability", "low"), (-1, "probability", "high")):
        assert got.loc[key, "mass"] > 1.5 * got.loc[key, "base_mass"]
    assert got.loc[(1, "probability", "high"), "mass"] == pytest.approx(
        got.loc[(1, "probability", "high"), "base_mass"], rel=1e-5
    )


def test_a_step_that_is_not_there_is_empty(lab):
    assert query.cells(lab, "live", 99).empty and query.group_masses(lab, "live", 99).empty
