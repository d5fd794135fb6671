"""The Polarity page's SQL against the same sums in numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from core.stats.covariance import Sums, contribution
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


@pytest.mark.parametrize("field", query.ROLLOUT_FIELDS)
def test_rollout_values_count_every_answer(lab, field):
    got = query.rollout_values(lab, "live", field)
    exact = lab.df(
        f"SELECT step, polarity, count(*) AS n, sum({field}) AS total FROM rollouts "
        "WHERE run = 'live' AND split = 'train' GROUP BY ALL ORDER BY step, polarity"
    )
    got["total"] = got["value"] * got["n"]
    by = got.groupby(["step", "polarity"], as_index=False).sum()
    for name in ("step", "polarity", "n", "total"):
        assert np.allclose(by[name], exact[name]), name
    assert got.groupby(["step", "polarity"])["value"].apply(lambda values: values.is_monotonic_increasing).all()


def test_no_other_column_of_rollouts_can_be_asked_for(lab):
    with pytest.raises(ValueError, match="not a field"):
        query.rollout_values(lab, "live", "length) FROM rollouts --")


def test_exams_are_the_evaluations_prompt_by_prompt(lab):
    got = query.exams(lab, "live")
    rates = got.assign(rate=got["correct"] / got["n"]).groupby("step")["rate"].mean()
    exact = lab.df("SELECT step, pass_at_1 FROM evals WHERE run = 'live' ORDER BY step").set_index("step")["pass_at_1"]
    assert len(exact) and rates.to_dict() == pytest.approx(exact.to_dict())


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


TOKENS = (
    'SELECT r.step, t."group", t.rollout, position, r.polarity, trainer_logprob::DOUBLE AS l, '
    "if(t.kept, t.advantage::DOUBLE, 0) AS a, t.entropy::DOUBLE AS h, t.entropy_after::DOUBLE - t.entropy AS change, "
    "sampler_logprob AS p, t.kept AS kept "
    "FROM tokens t JOIN rollouts r USING (run, step, split, \"group\", rollout) WHERE run = ? AND split = 'train' "
    'ORDER BY r.step, t."group", t.rollout, position'
)


@pytest.mark.parametrize("run", ["live", "sealed"])
def test_covariances_are_over_all_tokens_of_a_step(lab, run):
    """A token that was not trained on has an advantage of 0, and the mean log-prob is minus the mean entropy."""
    got, tokens = query.covariances(lab, run), lab.df(TOKENS, [run])
    assert (got["trained"] == got["products"]).all() and (got["tokens"] == got["n"]).all()
    assert got["trained"].sum() == tokens["kept"].sum() < got["changed"].sum() == len(tokens)
    for step, part in got.groupby("step"):
        every = tokens[tokens["step"] == step]
        sums = Sums(*(part[name].to_numpy(float) for name in ("n", "entropy", "advantage", "product")))
        exact = ((every["l"] + every["h"].mean()) * every["a"]).mean()
        assert contribution(sums, sums.total()).sum() == pytest.approx(exact, rel=1e-4)
        for polarity, side in every.groupby("polarity"):
            row = part[part["polarity"] == polarity].iloc[0]
            assert row["entropy_change"] == pytest.approx(side["change"].sum(), rel=1e-4)
            assert row["n"] == len(side)


def test_a_cell_adds_the_terms_of_its_own_tokens_to_the_covariance(lab):
    tokens = lab.df(TOKENS, ["live"])
    tokens = tokens[tokens["step"] == 2]
    assert 0 < tokens["kept"].sum() < len(tokens)  # a group that was sampled anew is among them
    tokens["term"] = (tokens["l"] + tokens["h"].mean()) * tokens["a"] / len(tokens)
    term = change = 0.0
    for _, part in tokens[tokens["polarity"] == -1].groupby(["group", "rollout"]):
        high = part.sort_values(["p", "position"], ascending=[False, True]).head(max(1, int(0.2 * len(part))))
        term, change = term + high["term"].sum(), change + high["change"].sum()
    cell = query.cells(lab, "live", 2).set_index(["polarity", "metric", "end"]).loc[(-1, "probability", "high")]
    names = ("n", "entropy", "advantage", "product")
    part, whole = (Sums(*(np.array(float(cell[f"{of}{name}"])) for name in names)) for of in ("", "all_"))
    assert contribution(part, whole) == pytest.approx(term, rel=1e-6)
    assert contribution(whole, whole) == pytest.approx(tokens["term"].sum(), rel=1e-6)
    assert cell["entropy_change"] == pytest.approx(change, rel=1e-6)
    assert cell["all_entropy_change"] == pytest.approx(tokens["change"].sum(), rel=1e-6)
    assert cell["all_changed"] == cell["all_n"] == len(tokens) and cell["changed"] == cell["tokens"]
    assert cell["all_trained"] == tokens["kept"].sum()
    by_step = query.covariances(lab, "live").groupby("step").sum().loc[2]  # the whole is that of the run's curve
    for name in names:
        assert cell[f"all_{name}"] == pytest.approx(by_step[name], rel=1e-6), name


@pytest.mark.parametrize("run", ["live", "sealed"])
def test_strings_are_ranked_by_their_push_over_the_window(lab, run):
    got = query.strings(lab, run, 1, 2, most=3)
    exact = lab.df(
        "SELECT r.polarity, token_id, token, count(*) AS tokens, count_if(t.kept) AS trained, "
        "sum(t.advantage * (1 - exp(sampler_logprob::DOUBLE))) FILTER (t.kept) AS push, "
        "avg(after_logprob::DOUBLE - trainer_logprob) AS change "
        'FROM tokens t JOIN rollouts r USING (run, step, split, "group", rollout) '
        "WHERE run = ? AND split = 'train' AND step BETWEEN 1 AND 2 GROUP BY ALL",
        [run],
    ).fillna({"push": 0.0})
    top = []
    for polarity in (-1, 1):
        side = exact[exact["polarity"] == polarity].sort_values("push")
        top += [(polarity, token) for token in side[side["push"] < 0]["token_id"].head(3)]
        top += [(polarity, token) for token in side[side["push"] > 0]["token_id"].tail(3)]
    ranked = got[got["rank"].notna()]
    assert set(zip(ranked["polarity"], ranked["token_id"], strict=True)) == set(top) and len(top) >= 3
    both = got.merge(exact, on=["polarity", "token_id", "token"], suffixes=("", "_exact"))
    assert len(both) == len(got)
    for name in ("tokens", "trained", "push", "change"):
        assert np.allclose(both[name], both[f"{name}_exact"], rtol=1e-5), name
    assert set(got["token_id"]) == {token for _, token in top}
    assert query.strings(lab, run, 90, 99).empty


def test_a_step_that_is_not_there_is_empty(lab):
    assert query.cells(lab, "live", 99).empty and query.group_masses(lab, "live", 99).empty
