"""The Polarity page in every state, through AppTest: what it says, and that its numbers are the store's."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from streamlit.testing.v1 import AppTest

from app.words import number
from core.store import open_runs
from tests.app.conftest import texts
from tests.synthetic import make_run

FIGURES = {"answers": 3, "strings": 0, "entropy": 3, "distributions": 2, "step": 0, "boundary": 2}
TABLES = {"answers": 1, "strings": 2, "entropy": 0, "distributions": 0, "step": 2, "boundary": 0}
"""Figures and tables of each part of the page."""


def body(block: object) -> str:
    return block.value if hasattr(block, "value") else block.proto.body


def html(at: AppTest) -> str:
    return "\n".join(map(body, at.get("html")))


def cell(page: str, test_id: str) -> list[float | None]:
    row = re.search(rf"<tr data-testid='{test_id}'>(.*?)</tr>", page).group(1)
    return [float(text) if text else None for text in re.findall(r"data-value='([^']*)'", row)]


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of enough steps for a scale."""
    root = tmp_path_factory.mktemp("long")
    make_run(root, "long", steps=12, prompts=2, group_size=4)
    return root


def test_no_runs(no_runs, open_page):
    at = open_page("polarity")
    assert not at.exception and "There is no run yet" in texts(at)
    assert at.header[0].value == "What do the right and the wrong answers each teach?"


@pytest.mark.parametrize("state", ["finished", "sealed", "running", "stopped", "failed", "garbage"])
def test_every_state_shows_its_answers(states, open_page, state):
    at = open_page("polarity", run=state, dark=state == "sealed")
    assert not at.exception and not at.error
    assert len(at.get("plotly_chart")) == FIGURES["answers"]
    assert len(at.get("html")) == TABLES["answers"] + 1  # and the style of every page


@pytest.mark.parametrize("part", [part for part in FIGURES if part != "answers"])
def test_every_part_draws_its_own(states, open_page, part):
    at = open_page("polarity", run="finished", part=part)
    assert not at.exception and not at.error
    assert len(at.get("plotly_chart")) == FIGURES[part]
    assert sum("<tr data-testid=" in body(block) for block in at.get("html")) == TABLES[part]


def test_where_only_right_answers_push_nothing_is_contested(states, open_page):
    at = open_page("polarity", run="sealed", part="strings")
    assert not at.exception and "Wrong answers push nothing." in texts(at)
    assert "right-answers-reinforced-0" in html(at) and "contested-0" not in html(at)


@pytest.mark.parametrize(("state", "words"), [("queued", "queued and has no step yet"), ("empty", "has no step yet")])
def test_a_run_without_a_step_says_what_it_waits_for(states, open_page, state, words):
    at = open_page("polarity", run=state)
    assert not at.exception and words in texts(at) and not at.get("plotly_chart")


def test_window_numbers_are_the_stores(states, open_page):
    at = open_page("polarity", run="finished", steps=[1, 3])
    lab = open_runs([states / "finished"])
    where = "split = 'train' AND step BETWEEN 1 AND 3"
    length = lab.df(
        f"SELECT polarity, count(*) AS n, avg(length) AS length FROM rollouts WHERE {where} GROUP BY 1 ORDER BY 1"
    )
    assert cell(html(at), "window-rollouts") == length["n"].tolist()
    assert cell(html(at), "window-length") == pytest.approx(length["length"].tolist())
    tokens = lab.df(
        "SELECT polarity, avg(entropy) AS entropy, avg(exp(sampler_logprob)) AS p, "
        "sum(loss_weight * abs(advantage)) FILTER (t.kept) / 3 AS mass "
        'FROM tokens t JOIN rollouts r USING (step, split, "group", rollout) '
        f"WHERE {where} GROUP BY 1 ORDER BY 1"
    )
    assert cell(html(at), "window-entropy") == pytest.approx(tokens["entropy"].tolist(), rel=1e-6)
    assert cell(html(at), "window-probability") == pytest.approx(tokens["p"].tolist(), rel=1e-6)
    assert cell(html(at), "window-mass") == pytest.approx(tokens["mass"].tolist(), rel=1e-5)
    assert "steps 1 to 3" in texts(at)


def test_the_window_moves_by_its_slider_and_by_the_address(states, open_page):
    at = open_page("polarity", run="finished")
    at.select_slider[0].set_range(1, 2).run()
    assert at.query_params["steps"] == ["1", "2"] and "steps 1 to 2" in texts(at)
    at.query_params["steps"] = ["3", "3"]
    at.run()
    assert at.select_slider[0].value == (3, 3) and "step 3" in texts(at)
    assert not at.exception


def test_positives_only_is_named(states, open_page):
    at = open_page("polarity", run="sealed")
    assert "Only the right answers teach" in at.info[0].value


def test_probes_have_no_mass_and_nothing_pushes_their_entropy(states, open_page):
    at = open_page("polarity", run="finished", split="probe")
    assert "Probes are not trained" in texts(at) and len(at.get("plotly_chart")) == FIGURES["answers"] - 1
    assert "window-mass" not in html(at)
    at = open_page("polarity", run="finished", split="probe", part="entropy")
    assert "Probes are not trained, so no advantage pushes their entropy" in texts(at)
    at = open_page("polarity", run="finished", split="probe", part="step")
    assert "no mass" in html(at) and "cell-predicted" not in html(at) and "cell-came" in html(at)
    at = open_page("polarity", run="finished", split="probe", part="strings")
    assert "it is what the method would push" in texts(at)


@pytest.mark.parametrize(
    ("choice", "part"), [({"step": 2}, "step"), ({"field": "entropy"}, "distributions"), ({}, "answers")]
)
def test_a_link_to_a_step_or_a_field_opens_its_part(states, open_page, choice, part):
    at = open_page("polarity", run="finished", **choice)
    assert len(at.get("plotly_chart")) == FIGURES[part] and not at.exception
    at = open_page("polarity", run="finished", part="answers", **choice)
    assert len(at.get("plotly_chart")) == FIGURES["answers"]


def test_chosen_step_and_field_live_in_the_address(states, open_page):
    at = open_page("polarity", run="finished", part="step", step=2)
    assert "step 2" in texts(at) and "step=2&amp;group=" in html(at)
    at = open_page("polarity", run="finished", part="distributions", field="entropy")
    assert "Median entropy of a token" in texts(at) and "Distribution of entropy" in texts(at)


@pytest.mark.parametrize(
    ("part", "choice"),
    [
        ("answers", {"steps": "abc"}),
        ("strings", {"steps": ["99", "-4"]}),
        ("step", {"step": "77"}),
        ("distributions", {"field": "mood"}),
        ("answers", {"split": "eval"}),
    ],
)
def test_an_impossible_choice_still_shows_the_page(states, open_page, part, choice):
    at = open_page("polarity", run="finished", part=part, **choice)
    assert not at.exception and len(at.get("plotly_chart")) == FIGURES[part]


def test_an_unknown_part_is_the_first(states, open_page):
    at = open_page("polarity", run="finished", part="moods")
    assert "is not among" in at.warning[0].value and len(at.get("plotly_chart")) == FIGURES["answers"]


@pytest.mark.parametrize("field", ["length", "reward"])
def test_whole_answers_have_a_distribution_too(states, open_page, field):
    at = open_page("polarity", run="finished", part="distributions", field=field, steps=[0, 5])
    lab = open_runs([states / "finished"])
    right = lab.rows(
        f"SELECT count(*) AS n, quantile_disc({field}, 0.5) AS half FROM rollouts WHERE split = 'train' AND correct"
    )[0]
    assert not at.exception and len(at.get("plotly_chart")) == 2
    words = at.info[0].value.replace("\u00a0", " ")
    assert f"**{number(right['half'], 'tokens' if field == 'length' else '')}".replace("\u00a0", " ") in words
    assert f"in right answers (n = {right['n']} answers;" in words and f"Distribution of {field}" in texts(at)


def test_a_prompt_leads_to_its_tokens(states, open_page):
    at = open_page("polarity", run="finished", part="step", step=2)
    link = re.search(r"<tr data-testid='group-1'>.*?href='tokens\?([^']*)'", html(at)).group(1)
    choices = dict(pair.split("=") for pair in link.split("&amp;"))
    there = open_page("tokens", **choices)
    assert not there.exception and there.query_params["group"] == "1" and there.query_params["step"] == "2"


def test_what_came_in_the_cells_is_the_stores(states, open_page):
    page = html(open_page("polarity", run="finished", part="step", step=2))
    tokens = open_runs([states / "finished"]).df(
        'SELECT r.polarity, "group", rollout, entropy_after::DOUBLE - entropy AS came '
        'FROM tokens t JOIN rollouts r USING (step, split, "group", rollout) '
        "WHERE step = 2 AND split = 'train' ORDER BY sampler_logprob, position"
    )
    answers = tokens.groupby(["polarity", "group", "rollout"])["came"]
    low = answers.apply(lambda came: came.head(max(1, int(0.2 * len(came)))).sum())
    exact = (low.groupby("polarity").sum() / len(tokens)).tolist()
    assert cell(page, "cell-came-probability-low") == pytest.approx(exact, rel=1e-5)
    assert "cell-toward-" in page and "cell-predicted-" not in page  # six steps give no scale


def test_enough_steps_give_a_scale(long, monkeypatch, open_page):
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(long))
    at = open_page("polarity", run="long", part="entropy")
    words = "\n".join(box.value for kind in (at.info, at.warning) for box in kind)
    assert not at.exception and "of 12** steps" in words and "n = 12 steps" in words
    few = open_page("polarity", run="long", part="step", step=3)
    assert not few.exception and "cell-came-" in html(few)


def test_few_steps_show_the_direction_alone(states, open_page):
    at = open_page("polarity", run="finished", part="entropy")
    assert "with fewer than 10 steps nothing more is claimed" in texts(at)


def test_strings_lead_to_where_they_stand(states, open_page):
    at = open_page("polarity", run="finished", part="strings", steps=[0, 5])
    lab = open_runs([states / "finished"])
    top = lab.rows(
        "SELECT token, sum(t.advantage * (1 - exp(sampler_logprob::DOUBLE))) AS push FROM tokens t "
        "JOIN rollouts r USING (step, split, \"group\", rollout) WHERE split = 'train' AND t.kept AND r.polarity = 1 "
        "GROUP BY 1 ORDER BY 2 DESC LIMIT 1"
    )[0]
    first = re.search(r"<tr data-testid='right-answers-reinforced-0' data-value='([^']*)'>.*?href='([^']*)'", html(at))
    assert float(first[1]) == pytest.approx(top["push"], rel=1e-5)
    link = [pair.split("=") for pair in first[2].removeprefix("tokens?").split("&amp;")]
    choices = {name: [value for other, value in link if other == name] for name, _ in link}
    there = open_page("tokens", **choices)
    assert not there.exception and "tokens" in there.query_params["find"]
    assert there.query_params["steps"] == ["0", "5"] and "right" in there.query_params["answers"]


def test_the_boundary_is_that_of_the_exams(states, open_page):
    at = open_page("polarity", run="finished", part="boundary")
    lab = open_runs([states / "finished"])
    first, last = lab.rows("SELECT pass_at_1 FROM evals ORDER BY step")[:: len(lab.rows("SELECT 1 FROM evals")) - 1]
    change = abs(last["pass_at_1"] - first["pass_at_1"])
    assert f"From step 0 to 6 pass@1 {'rose' if last['pass_at_1'] > first['pass_at_1'] else 'fell'} by" in texts(at)
    assert f"{change:.3g}" in texts(at) and "16 held-out prompts × 8 rollouts" in texts(at)


def test_a_run_without_evaluations_says_so(tmp_path, monkeypatch, open_page):
    make_run(tmp_path, "off", steps=2, prompts=2, group_size=4, evaluate={"every": 0})
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    at = open_page("polarity", run="off", part="boundary")
    assert not at.exception and "no held-out evaluation: evaluate.every is 0" in texts(at)


def test_runs_of_an_earlier_version_say_what_they_lack(tmp_path, monkeypatch, open_page):
    """Their summary has no log-prob × advantage, and they have no strings; the rest is there."""
    path = make_run(tmp_path, "old", steps=3, prompts=2, group_size=4)
    for file in path.glob("steps/*/summary.parquet"):
        table = pq.read_table(file)
        later = pc.is_in(table["field"], pa.array(["logprob", "logprob_advantage", "entropy_change", "agreed"]))
        pq.write_table(table.filter(pc.invert(later)), file)
    for file in path.glob("steps/*/strings.parquet"):
        file.unlink()
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    for part in ("entropy", "strings"):
        at = open_page("polarity", run="old", part=part)
        assert not at.exception and "recorded by an earlier version of the lab" in texts(at), part
    at = open_page("polarity", run="old", part="step")
    assert not at.exception and "cell-came-" in html(at)


def test_one_step_is_enough(tmp_path: Path, monkeypatch, open_page):
    make_run(tmp_path, "one", steps=1, prompts=2, group_size=4, state="running")
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    at = open_page("polarity", run="one")
    assert not at.exception and "one step so far" in texts(at)
    at = open_page("polarity", run="one", part="distributions")
    assert not at.exception and len(at.get("plotly_chart")) == 1  # nothing moves yet
    at = open_page("polarity", run="one", part="boundary")
    assert not at.exception and "One evaluation so far, at step 0" in texts(at)


def test_whole_run_figures_do_without_tokens(tmp_path: Path, monkeypatch, open_page):
    path = make_run(tmp_path, "shared", steps=4, prompts=2, group_size=4)
    for file in path.glob("steps/*/tokens.parquet"):
        file.unlink()
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    for part in ("answers", "strings", "entropy", "distributions"):
        at = open_page("polarity", run="shared", part=part)
        assert not at.exception and len(at.get("plotly_chart")) == FIGURES[part]
    at = open_page("polarity", run="shared", part="step")
    assert "No step of this run kept its tokens" in texts(at)
    at = open_page("tokens", run="shared")
    assert not at.exception and "This run's tokens were never recorded" in texts(at)
