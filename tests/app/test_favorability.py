"""The Favorability page in every state, and that what it says is what the store holds."""

from __future__ import annotations

import functools
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs

import pandas as pd
import pyarrow.parquet as pq
import pytest
from streamlit.testing.v1 import AppTest

from app.views import sureness
from app.words import share
from core.counterfactual import Spec
from core.stats.classes import class_rule, make_rule
from core.store import open_runs
from core.store.open import StepLab
from core.store.queries import favorability as queries
from tests.app.conftest import texts
from tests.synthetic import make_run

CHARTS = 9
"""Grid, criteria, sureness, group sizes, label changes, two of mass, shares, transitions; a run with weights has one
more, one of a single step has no label changes and what depends on them."""


@pytest.fixture(scope="module")
def adora(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("adora")
    make_run(root, "attenuate", method="adora_attenuate", steps=12, prompts=4, group_size=4)
    make_run(root, "amplify", method={"name": "a3po", "also": ["adora_amplify"]}, steps=3, prompts=4, group_size=4)
    return root


@pytest.fixture
def visits(adora: Path) -> pd.DataFrame:
    frame = queries.visits(open_runs([adora / "attenuate"]), "attenuate")
    return frame.assign(held=frame["weight"] < 0.5)


def html(at: AppTest) -> str:
    """All tables of a page."""
    return "\n".join(element.proto.body for element in at.get("html"))


def test_no_runs(no_runs, open_page):
    at = open_page("favorability")
    assert not at.exception and "There is no run yet" in texts(at)
    assert at.header[0].value == "Which prompts count right now, and how sure is that?"


@pytest.mark.parametrize("state", ["finished", "sealed", "running", "stopped", "failed", "garbage"])
def test_every_state_shows_all_figures(states, open_page, state):
    at = open_page("favorability", run=state, dark=state == "sealed")
    assert not at.exception and not at.error and not at.warning
    assert len(at.get("plotly_chart")) == (CHARTS if state != "garbage" else CHARTS - 3)  # of which no prompt came back
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
    held = int((visits[visits["step"] == 7]["weight"] < 0.5).sum())
    assert f"Step 7: ADORA attenuate **held back {held} of 4\u00a0prompts** (weight 0.1, beside 1" in said and held
    for name, count in now.items():
        assert f"{count} {name}" in said
    assert "an unfavorable prompt weighs 0.1" in said
    assert len(at.get("plotly_chart")) == CHARTS + 1
    before, after = sureness.transitions(visits)
    changes = (visits["label"].to_numpy()[before] != visits["label"].to_numpy()[after]).sum()
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
    assert "Step 3:" in texts(at) and {(lab, step) for _, lab, step in asked} == {("Lab", None)}
    asked.clear()
    at.run()
    assert asked == []
    shutil.move(newest, run / "steps/step=000004")
    at = open_page("favorability", run="grows")
    assert "Step 4:" in texts(at)
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


def test_the_step_s_prompts_are_listed_with_their_evidence_and_their_tokens(adora, monkeypatch, open_page, visits):
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(adora))
    at = open_page("favorability", run="attenuate", step=7)
    table = html(at)
    now = visits[visits["step"] == 7]
    rows = re.findall(r"data-testid='prompt-(\d+)' data-held='(\d)'", table)
    held = {int(group): flag == "1" for group, flag in rows}
    assert held == {int(row.group): row.weight < 0.5 for row in now.itertuples()} and 0 < sum(held.values()) < 4
    assert [flag for _, flag in rows] == sorted((flag for _, flag in rows), reverse=True)
    for group in held:
        assert f"tokens?run=attenuate&amp;step=7&amp;group={group}" in table
    row = now[now["group"] == next(group for group, was in held.items() if was)].iloc[0]
    assert f"{row['correct']} of 4" in table and f"≤ {row['mean_wrong_length']:.3g}" in table
    first = next(int(group) for group, flag in rows if flag == "1" and not now.set_index("group")["equal"][int(group)])
    assert at.query_params["group"] == str(first)  # the first that was held back and had something to teach


def test_moving_a_threshold_recounts_every_group_and_stays_in_the_address(adora, monkeypatch, open_page, visits):
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(adora))
    at = open_page("favorability", run="attenuate", step=7, variant="adora_amplify", combine="all", weight=3)
    at.slider(key="url:tau").set_value(0.3).run()
    assert at.query_params["tau"] == "0.3" and not at.exception
    rollouts = queries.rollouts(open_runs([adora / "attenuate"]), "attenuate")
    longest = rollouts[rollouts["correct"]].groupby(["step", "group"])["length"].max()
    wrong = rollouts[~rollouts["correct"] & ~rollouts["truncated"]].groupby(["step", "group"])["length"].mean()
    hard = rollouts.groupby(["step", "group"])["correct"].mean() <= 0.3
    favorable = (longest.reindex(hard.index) > wrong.reindex(hard.index)) & hard
    cells = re.findall(r"data-testid='favorable'>(\d+)", html(at))
    assert [int(cell) for cell in cells] == [
        int((visits[visits["step"] == 7]["label"] == "favorable").sum()), int(favorable[7].sum()),
        int((visits["label"] == "favorable").sum()), int(favorable.sum()),
    ]  # fmt: skip
    assert "τ = 0.3" in texts(at) and "a favorable prompt weighs 3" in texts(at)
    link = next(element.proto for element in at.get("page_link") if "every token" in element.proto.label)
    sent = parse_qs(link.query_string)
    assert sent["m"][0] == "trained" and class_rule(Spec.parse(sent["m"][1]).build()) == make_rule(
        "adora_amplify", weight=3, tau=0.3, combine="all"
    )
    at.button(key="favorability:recorded").click().run()
    assert not {"variant", "tau", "combine", "weight"} & at.query_params.keys() and "As recorded: " in texts(at)


def test_mass_is_that_of_the_window_in_the_address(adora, monkeypatch, open_page, visits):
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(adora))
    held = visits[visits["mass"] > 0].groupby("step")["held"].mean()
    step = int(held[(held > 0) & (held < 1)].index[0])  # one where weights move mass
    for window, part in (("run", visits), ("step", visits[visits["step"] == step])):
        at = open_page("favorability", run="attenuate", step=step, window=window)
        mine = part[part["label"] == "unfavorable"]
        before, after = (share(mine[name].sum() / part[name].sum()) for name in ("base_mass", "mass"))
        assert f"**{before} → {after}** of the mass" in texts(at) and before != after


def test_an_earlier_run_without_mass_shows_one_step_from_its_tokens(tmp_path, monkeypatch, open_page):
    new, old, bare = (
        make_run(tmp_path, name, method="adora_attenuate", steps=4, prompts=4) for name in ("n", "o", "b")
    )
    for file in [*old.glob("steps/*/rollouts.parquet"), *bare.glob("steps/*/rollouts.parquet")]:
        pq.write_table(pq.read_table(file).drop_columns(["mass", "base_mass"]), file)
    for file in bare.glob("steps/*/tokens.parquet"):
        pq.write_table(pq.read_table(file).slice(0, 0), file)
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    pages = [open_page("favorability", run=path.name, step=1, window="step") for path in (new, old, bare)]
    said = [[line for line in texts(at).splitlines() if "Before → after" in line] for at in pages]
    assert len(said[0]) == 1 and said[0] == said[1] and not said[2]
    assert ["earlier version" in texts(at) for at in pages] == [False, True, True]
    assert "kept no tokens" in texts(pages[2]) and not any(at.exception or at.error for at in pages)
