"""The Favorability page in every state, and that what it says is what the store holds."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from app.palette import DARK, LIGHT
from app.views import favorability as views
from app.views import sureness
from core.advantage import build
from core.stats.classes import OBSERVED, class_rule
from core.stats.labels import Flips, simulate
from core.store import open_runs
from core.store.open import StepLab
from core.store.queries import favorability as queries
from tests.app.conftest import texts
from tests.synthetic import make_run

CHARTS = 5
"""Grid, criteria, sureness, transitions, shares; a run with weights has one more."""


@pytest.fixture(scope="module")
def adora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("adora")
    make_run(root, "attenuate", method="adora_attenuate", steps=12, prompts=4, group_size=4)
    make_run(root, "amplify", method={"name": "a3po", "also": ["adora_amplify"]}, steps=3, prompts=4, group_size=4)
    return root


@pytest.fixture
def visits(adora: Path) -> pd.DataFrame:
    return queries.visits(open_runs([adora / "attenuate"]), "attenuate")


def stays(visits: pd.DataFrame) -> int:
    """Pairs of consecutive visits with the same label."""
    labels = [part["label"].to_numpy() for _, part in visits.groupby("prompt_id")]
    return sum(int((own[1:] == own[:-1]).sum()) for own in labels)


def test_no_runs(no_runs, open_page):
    at = open_page("favorability")
    assert not at.exception and "There is no run yet" in texts(at)
    assert at.header[0].value == "Which prompts count right now, and how sure is that?"


@pytest.mark.parametrize("state", ["finished", "sealed", "running", "stopped", "failed", "garbage"])
def test_every_state_shows_all_figures(states, open_page, state):
    at = open_page("favorability", run=state, dark=state == "sealed")
    assert not at.exception and not at.error and not at.warning
    assert len(at.get("plotly_chart")) >= CHARTS - 1  # a single step has no transitions
    assert "only observed" in texts(at)


@pytest.mark.parametrize("state", ["queued", "empty"])
def test_a_run_without_a_step_leads_to_the_live_page(states, open_page, state):
    at = open_page("favorability", run=state)
    assert not at.exception and "has no step yet" in texts(at) and not at.get("plotly_chart")


def test_the_first_line_counts_what_the_store_holds(adora, monkeypatch, open_page, visits):
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(adora))
    at = open_page("favorability", run="attenuate", step=7)
    now = visits[visits["step"] == 7]["label"].value_counts()
    said = texts(at)
    assert "Step 7: of 4" in said
    for name, count in now.items():
        assert f"{count} {name}" in said
    assert "trains with these classes" in said and "an unfavorable prompt weighs 0.1" in said
    assert len(at.get("plotly_chart")) == CHARTS + 1
    changes = len(sureness.transitions(visits)[0]) - stays(visits)
    assert f"**{changes}\u00a0label change" in said and "G = 4" in said


def test_choices_come_from_the_address(adora, monkeypatch, open_page, visits):
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(adora))
    choices = {"by": "step", "sort": "pass", "rows": "all", "scope": "run", "check": 1}
    at = open_page("favorability", run="attenuate", step=5, group=2, **choices)
    assert not at.exception and not at.warning
    row = visits[(visits["step"] == 5) & (visits["group"] == 2)].iloc[0]
    assert at.selectbox(key="url:group").value == "2"
    assert f"correct **{row.correct} of {row.n}**" in texts(at) and f"class **{row.label}**" in texts(at)
    assert "made-up prompts" in texts(at)
    link = next(element.proto for element in at.get("page_link") if "token by token" in element.proto.label)
    assert "step=5" in link.query_string and "group=2" in link.query_string and "run=attenuate" in link.query_string


def test_another_group_is_chosen_from_the_keyboard(adora, monkeypatch, open_page):
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(adora))
    at = open_page("favorability", run="attenuate", step=5)
    at.selectbox(key="url:group").select("3").run()
    assert at.query_params["group"] == "3" and at.query_params["step"] == "5"


def test_a_running_run_is_read_one_new_step_at_a_time(tmp_path, monkeypatch, open_page):
    run = make_run(tmp_path, "grows", steps=5, prompts=3, group_size=4, state="running")
    newest = tmp_path / "later"
    shutil.move(run / "steps/step=000004", newest)
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    asked = []
    for name in ("groups", "shares", "rollouts"):
        monkeypatch.setattr(queries, name, noted(getattr(queries, name), asked))
    at = open_page("favorability", run="grows")
    assert "Step 3: of 3" in texts(at) and {(lab, step) for _, lab, step in asked} == {("Lab", None)}
    asked.clear()
    at.run()
    assert asked == []
    shutil.move(newest, run / "steps/step=000004")
    at = open_page("favorability", run="grows")
    assert "Step 4: of 3" in texts(at)
    assert not at.exception and sorted(asked) == [(name, "StepLab", 4) for name in ("groups", "rollouts", "shares")]


def noted(query: Callable, asked: list) -> Callable:
    """The query, which notes what it was asked of."""

    @functools.wraps(query)
    def asking(lab, run):
        asked.append((query.__name__, type(lab).__name__, getattr(lab, "step", None) if type(lab) is StepLab else None))
        return query(lab, run)

    return asking


def test_bad_addresses_get_a_sentence(adora, monkeypatch, open_page):
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(adora))
    at = open_page("favorability", run="attenuate", step=99, group="x", sort="luck")
    assert not at.exception
    assert len(at.warning) == 3


def test_a_rule_under_another_method_counts_as_trained(adora, monkeypatch, open_page):
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(adora))
    at = open_page("favorability", run="amplify")
    assert "a favorable prompt weighs 2" in texts(at) and "τ = 0.5" in texts(at)


def test_rows_are_sorted_as_asked(visits):
    by_class = views.prompt_rows(visits, "favorable")
    assert by_class["favorable"].is_monotonic_decreasing
    assert views.prompt_rows(visits, "pass")["pass_rate"].is_monotonic_increasing
    assert views.prompt_rows(visits, "last")["last_step"].is_monotonic_decreasing
    restless = views.prompt_rows(visits, "changes")
    assert restless["changes"].is_monotonic_decreasing
    assert restless["changes"].sum() == len(sureness.transitions(visits)[0]) - stays(visits)
    one = visits[visits["prompt_id"] == by_class["prompt_id"].iloc[0]]
    assert by_class["favorable"].iloc[0] == (one["label"] == "favorable").mean()
    assert by_class["pass_rate"].iloc[0] == pytest.approx(one["correct"].sum() / one["n"].sum())


def test_a_visit_that_was_not_trained_says_so(visits):
    shown = visits.assign(kept=[i % 2 == 0 for i in range(len(visits))])
    words = [text for trace in views.grid(shown, views.prompt_rows(shown), LIGHT).data for text in trace.text or ()]
    assert sum(", not trained<br>" in text for text in words) == (~shown["kept"]).sum() > 0


@pytest.mark.parametrize("by", ["visit", "step"])
def test_the_grid_has_a_square_for_every_visit(visits, by):
    rows = views.prompt_rows(visits)
    fig = views.grid(visits, rows, LIGHT, by, chosen=(5, 2))
    squares = {trace.name: trace for trace in fig.data if trace.showlegend}
    assert sum(len(trace.x) for trace in squares.values()) == len(visits)
    for name, trace in squares.items():
        assert len(trace.x) == (visits["label"] == name).sum()
        assert {tuple(pair) for pair in trace.customdata} <= set(zip(visits["step"], visits["group"], strict=True))
    hatch = [trace for trace in fig.data if trace.name == "unfavorable" and not trace.showlegend]
    assert len(hatch) == 1 and len(hatch[0].x) == len(squares["unfavorable"].x)
    mark = next(trace for trace in fig.data if trace.name == "chosen")
    expected = visits[(visits["step"] == 5) & (visits["group"] == 2)].iloc[0]
    assert mark.x[0] == expected[by] and rows["prompt_id"].iloc[mark.y[0]] == expected["prompt_id"]


def test_hostile_prompts_stay_text(visits):
    evil = visits.assign(prompt="<b>x</b> <a href='http://evil'>y</a> $$z$$")
    fig = views.grid(evil, views.prompt_rows(evil), LIGHT)
    drawn = fig.to_json()
    assert "<a href" not in drawn and "<b>x" not in drawn and "&lt;b&gt;" in drawn


def test_criteria_split_at_tau_and_by_the_diagonal(visits):
    fig = views.criteria(visits, LIGHT, 0.5)
    points = sum(len(trace.x) for trace in fig.data if trace.mode == "markers")
    assert points == len(visits) - views.without_lengths(visits)
    favorable = next(trace for trace in fig.data if trace.name == "favorable")
    assert np.all(np.array(favorable.y) > np.array(favorable.x))
    scale = views.pass_rate_scale(LIGHT, 0.5)
    assert [place for place, _ in scale] == [0.0, 0.5, 0.5, 1.0] and scale[1][1] != scale[2][1]
    assert len(views.pass_rate_scale(DARK, None)) == 2


def test_relative_weights_are_over_the_kept_mean(visits):
    relative = views.relative_weights(visits)
    one = visits[visits["step"] == 4]
    row = relative[(relative["step"] == 4) & (relative["label"] == one["label"].iloc[0])].iloc[0]
    assert row["relative"] == pytest.approx(row["weight"] / one["weight"].mean())


def test_transition_counts_sum_to_the_pairs(visits):
    before, after = sureness.transitions(visits)
    counts = views.transition_counts(sureness.labels(visits), before, after)
    assert counts.sum() == len(before) == len(visits) - visits["prompt_id"].nunique()
    assert np.trace(counts) == stays(visits)


def test_arrays_keep_each_visits_rollouts(adora, visits):
    rollouts = queries.rollouts(open_runs([adora / "attenuate"]), "attenuate")
    arrays = sureness.to_visits(visits, rollouts)
    assert arrays.size.tolist() == visits["n"].tolist()
    assert arrays.passed.tolist() == visits["correct"].tolist()
    rule = class_rule(build("adora_attenuate"))
    shape = (len(visits), 4)
    again = rule.labels(arrays.correct.reshape(shape), arrays.length.reshape(shape), arrays.truncated.reshape(shape))
    assert again.tolist() == sureness.labels(visits).tolist()
    sure = simulate(arrays, OBSERVED, np.array([0, 1]), draws=8)
    fig = sureness.bars(visits.iloc[:2], sure, LIGHT)
    assert fig.data[0].x == pytest.approx(sure.probability[:, 0])


def test_long_runs_are_counted_on_whole_prompts(visits):
    some = sureness.whole_prompts(visits, most=20)
    assert 0 < len(some) <= 20
    for key, part in some.groupby("prompt_id"):
        assert len(part) == (visits["prompt_id"] == key).sum()
    assert sureness.whole_prompts(visits, most=1000) is visits


def test_latest_visits_follow_the_prompts_order(visits):
    order = views.prompt_rows(visits)["prompt_id"]
    found = sureness.latest(visits, order, 6)
    assert (found["step"] <= 6).all() and found["prompt_id"].is_unique
    for key, row in found.set_index("prompt_id").iterrows():
        assert row["step"] == visits[(visits["prompt_id"] == key) & (visits["step"] <= 6)]["step"].max()
    assert [key for key in order if key in set(found["prompt_id"])] == found["prompt_id"].tolist()


@pytest.mark.parametrize(
    ("observed", "words"),
    [(150, "luck alone can explain them"), (260, "about 110 are more than luck"), (60, "fewer than luck")],
)
def test_the_sentence_says_what_luck_explains(observed, words):
    sentence = sureness.flips_sentence(Flips(400, observed, 150.0, 9.0), 8)
    assert words in sentence and "(G = 8)" in sentence
    assert re.search(r"about \*\*150\*\* \(± 29\)", sentence)
    assert "No prompt has come back" in sureness.flips_sentence(Flips(0, 0, 0.0, 0.0), 8)
