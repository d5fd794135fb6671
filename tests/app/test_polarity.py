"""The Polarity page in every state, through AppTest: what it says, and that its numbers are the store's."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from core.store import open_runs
from tests.app.conftest import texts
from tests.synthetic import make_run

FIGURES = 5


def html(at: AppTest) -> str:
    return "\n".join(element.value if hasattr(element, "value") else element.proto.body for element in at.get("html"))


def cell(page: str, test_id: str) -> list[float | None]:
    row = re.search(rf"<tr data-testid='{test_id}'>(.*?)</tr>", page).group(1)
    return [float(text) if text else None for text in re.findall(r"data-value='([^']*)'", row)]


def test_no_runs(no_runs, open_page):
    at = open_page("polarity")
    assert not at.exception and "There is no run yet" in texts(at)
    assert at.header[0].value == "What do the right and the wrong answers each teach?"


@pytest.mark.parametrize("state", ["finished", "sealed", "running", "stopped", "failed", "garbage"])
def test_every_state_shows_all_figures(states, open_page, state):
    at = open_page("polarity", run=state, dark=state == "sealed")
    assert not at.exception and not at.error
    assert len(at.get("plotly_chart")) == FIGURES
    assert len(at.get("html")) == 3 + 1  # its tables, and the style of every page


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


def test_probes_have_no_mass(states, open_page):
    at = open_page("polarity", run="finished", split="probe")
    assert "Probes are not trained" in texts(at) and len(at.get("plotly_chart")) == FIGURES - 1
    assert "no mass" in html(at) and "window-mass" not in html(at)


def test_chosen_step_and_field_live_in_the_address(states, open_page):
    at = open_page("polarity", run="finished", step=2, field="entropy")
    assert "step 2" in texts(at) and "Distribution of entropy" in texts(at)
    assert "step=2&amp;group=" in html(at)


@pytest.mark.parametrize(
    "choice", [{"steps": "abc"}, {"steps": ["99", "-4"]}, {"step": "77"}, {"field": "mood"}, {"split": "eval"}]
)
def test_an_impossible_choice_still_shows_the_page(states, open_page, choice):
    at = open_page("polarity", run="finished", **choice)
    assert not at.exception and len(at.get("plotly_chart")) == FIGURES


def test_a_prompt_leads_to_its_tokens(states, open_page):
    at = open_page("polarity", run="finished", step=2)
    link = re.search(r"<tr data-testid='group-1'>.*?href='tokens\?([^']*)'", html(at)).group(1)
    choices = dict(pair.split("=") for pair in link.split("&amp;"))
    there = open_page("tokens", **choices)
    assert not there.exception and there.query_params["group"] == "1" and there.query_params["step"] == "2"


def test_one_step_is_enough(tmp_path: Path, monkeypatch, open_page):
    make_run(tmp_path, "one", steps=1, prompts=2, group_size=4, state="running")
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    at = open_page("polarity", run="one")
    assert not at.exception and "one step so far" in texts(at)


def test_whole_run_figures_do_without_tokens(tmp_path: Path, monkeypatch, open_page):
    path = make_run(tmp_path, "shared", steps=4, prompts=2, group_size=4)
    for file in path.glob("steps/*/tokens.parquet"):
        file.unlink()
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    at = open_page("polarity", run="shared")
    assert not at.exception and len(at.get("plotly_chart")) == FIGURES
    assert "No step of this run kept its tokens" in texts(at)
    at = open_page("tokens", run="shared")
    assert not at.exception and "hold no tokens" in texts(at)
