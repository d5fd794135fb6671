"""The Runs page, which is also home: Quick start, the list, what can be done to a run."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml

from app import actions, data
from core.runs import RunError
from core.runs.folders import REPO
from tests.app.conftest import STATES, break_status, texts
from tests.synthetic import make_run

TINY = {"steps": 3, "prompts": 2, "group_size": 2}


@pytest.fixture
def started(monkeypatch):
    """What pages start, instead of processes."""
    calls = []

    def start(root, experiment):
        calls.append(experiment)
        paths = []
        for i, config in enumerate(experiment.expand("quick-1")):
            path = make_run(root, f"quick-{i}", method=config.method.name, experiment="quick-1", state="queued", **TINY)
            break_status(path, experiment_name=experiment.name, look_for=experiment.look_for)
            paths.append(path)
        return paths

    monkeypatch.setattr("core.runs.control.start", start)
    return calls


def button(at, key):
    return next(one for one in at.button if one.key == key)


def labels(at, path: Path):
    return [one.key for one in at.button if one.key and one.key.endswith(f":{path.name}")]


def test_home_says_what_to_do_and_that_nothing_runs(no_runs, open_page):
    at = open_page("runs")
    assert not at.exception
    assert at.header[0].value == "What can I do here in five minutes, and what is running?"
    said = texts(at)
    assert "Nothing is running" in said
    assert "Quick start" in said
    assert "What to look for" in said
    assert "3\u00a0runs of 100 steps" in said
    assert "No run yet" in said
    assert button(at, "quickstart").label == "Start the Quick start"


def test_quick_start_starts_three_methods_and_leads_to_their_curves(no_runs, open_page, started):
    at = open_page("runs")
    button(at, "quickstart").click().run()
    assert not at.exception
    assert [method.name for method in started[0].methods] == ["grpo", "psr", "nsr"]
    assert at.header[0].value == "Is it learning, and is anything wrong?"
    assert at.query_params["experiment"] == "quick-1"
    back = open_page("runs")
    assert button(back, "quickstart").label == "Start another"
    assert "3\u00a0runs in the queue" in texts(back)


def test_a_start_that_fails_is_said_in_one_sentence(no_runs, open_page, monkeypatch):
    def full(root, experiment):
        raise RunError("not enough disk space <b>here</b>")

    monkeypatch.setattr("core.runs.control.start", full)
    at = open_page("runs")
    button(at, "quickstart").click().run()
    assert not at.exception
    assert any("not enough disk space" in error.value for error in at.error)
    assert "Is it learning" not in at.header[0].value


def test_every_state_is_listed_with_its_words(states, open_page):
    at = open_page("runs")
    assert not at.exception
    said = texts(at) + "".join(str(progress) for progress in at.get("progress"))
    for name in STATES:
        assert name in said
    assert len(at.get("progress")) == len(STATES)
    assert "status\\.json is missing or unreadable" in said


def test_actions_fit_the_state(states, open_page):
    at = open_page("runs")
    assert "stop:running" in labels(at, states / "running")
    assert "resume:stopped" in labels(at, states / "stopped")
    assert "resume:failed" in labels(at, states / "failed")
    assert "extend:finished" in labels(at, states / "finished")
    assert "delete:running" not in labels(at, states / "running")
    assert "delete:finished" in labels(at, states / "finished")


def test_an_imported_run_can_only_be_looked_at_or_deleted(tmp_path, no_runs, open_page):
    make_run(no_runs, "foreign", state="stopped", imported=True, **TINY)
    at = open_page("runs")
    assert labels(at, no_runs / "foreign") == ["delete:foreign"]
    assert "imported" in texts(at)


def test_delete_asks_first(no_runs, open_page):
    path = make_run(no_runs, "old", **TINY)
    at = open_page("runs")
    button(at, "delete:old").click().run()
    assert path.exists()
    assert "cannot be undone" in texts(at)
    button(at, "delete:no").click().run()
    assert path.exists()
    button(at, "delete:old").click().run()
    button(at, "delete:yes").click().run()
    assert not path.exists()
    assert "No run yet" in texts(at)


def test_stop_writes_the_stop_file(no_runs, open_page):
    path = make_run(no_runs, "far", state="running", **TINY)  # on another host: only the file is written
    at = open_page("runs")
    button(at, "stop:far").click().run()
    assert not at.exception
    assert (path / "stop").exists()


def test_extend_asks_for_more_steps(no_runs, open_page, monkeypatch):
    asked = []
    monkeypatch.setattr("core.runs.control.resume", lambda path, extend_to=None: asked.append((path.name, extend_to)))
    make_run(no_runs, "done", **TINY)
    at = open_page("runs")
    next(one for one in at.number_input if one.key == "extend-to:done").set_value(50)
    button(at, "extend:done").click().run()
    assert asked == [("done", 50)]


def test_runs_of_an_experiment_stand_together_with_links_to_all_their_curves(no_runs, open_page):
    for i, method in enumerate(("grpo", "psr")):
        path = make_run(no_runs, f"exp-{method}", method=method, experiment="exp-1", **TINY)
        break_status(path, experiment_name="Two methods", created=1000.0 + i)
    make_run(no_runs, "alone", **TINY)
    at = open_page("runs")
    assert "**Two methods** · 2\u00a0runs" in texts(at)
    links = [json.loads(json.dumps(str(link.proto))) for link in at.get("page_link")]
    assert any("experiment=exp-1" in link for link in links)
    assert any("experiment=exp-1" in link and "compare" in link for link in links)
    one = [str(link.proto) for link in open_page("runs", find="exp-psr").get("page_link")]
    assert any("experiment=exp-1" in link and "compare" in link for link in one)


def test_an_experiment_of_nine_comes_whole_into_compare(no_runs, open_page):
    for i in range(9):
        make_run(no_runs, f"exp-{i}", method=("grpo", "psr", "nsr")[i % 3], seed=i // 3, experiment="exp", **TINY)
    make_run(no_runs, "lone", experiment="lone-1", **TINY)
    links = [str(link.proto) for link in open_page("runs").get("page_link")]
    to_compare = [link.split('query_string: "')[1].split('"')[0] for link in links if 'page: "compare"' in link]
    assert sorted(to_compare) == ["experiment=exp", "run=lone"]
    at = open_page("compare", experiment="exp")
    assert not at.exception and not at.warning
    assert len(at.multiselect(key="url:experiment").value) == 1 and "3\u00a0seeds each" in texts(at)


def test_shown_commands_find_the_folder_of_the_pages(no_runs, open_page, monkeypatch):
    make_run(no_runs, "mine", **TINY)
    shown = [code.value for code in open_page("runs").code]
    assert shown == [f"python -m core show mine --runs {no_runs}"]


def test_the_folder_comes_from_the_argument_then_the_environment(no_runs, tmp_path, monkeypatch):
    assert data.root() == no_runs
    given = tmp_path / "given here"
    for words in (["--runs", str(given)], [f"--runs={given}", "--other", "3"]):
        monkeypatch.setattr(sys, "argv", ["app/main.py", *words])
        assert data.root() == given
    monkeypatch.setattr(sys, "argv", ["app/main.py"])
    monkeypatch.delenv("ADVANTAGE_LAB_RUNS")
    assert data.root() == REPO / "runs"


def test_an_argument_without_a_folder_is_one_sentence(no_runs, open_page, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["app/main.py", "--runs"])
    at = open_page("runs")
    assert not at.exception
    assert "names no folder" in at.error[0].value


def test_the_filter_lives_in_the_address(states, open_page):
    at = open_page("runs", find="nsr failed")
    assert len(at.get("progress")) == 1
    assert "**failed**" in texts(at)
    nothing = open_page("runs", find="zork <b>")
    assert "matches" in texts(nothing)
    assert not nothing.exception


def test_long_lists_are_cut_and_can_be_continued(no_runs, open_page):
    for i in range(18):
        make_run(no_runs, f"r{i:02}", state="queued", **TINY)
    at = open_page("runs")
    assert len(at.get("progress")) == 15
    button(at, "more").click().run()
    assert len(at.get("progress")) == 18
    assert at.query_params["show"] == "30"


def test_hostile_names_and_errors_are_inert(no_runs, open_page):
    path = make_run(no_runs, "evil", state="failed", error="![x](http://evil) <script>", **TINY)
    config = yaml.safe_load((path / "config.yaml").read_text())
    hostile = {"name": "<img src=x> :smile: $$a$$ \u202e", "experiment": "![x](http://evil) <script>"}
    (path / "config.yaml").write_text(yaml.safe_dump(config | hostile))
    at = open_page("runs")
    said = texts(at)
    for raw in ("<img", "<script", "![x]", ":smile:", "\u202e"):
        assert raw not in said.replace("\\<", "")
    assert "img" in said


def test_presets_lead_to_launch(no_runs, open_page):
    links = [str(link.proto) for link in open_page("runs").get("page_link")]
    assert any("preset=a3po" in link for link in links)


def test_data_is_cached_by_what_lies_on_the_disk(no_runs):
    make_run(no_runs, "one", **TINY)
    data.refresh()
    info = data.run("one")
    lab = data.lab(info)
    assert data.lab(info) is lab
    assert data.run("zork") is None
    assert actions.can_extend(info)
    assert not actions.can_resume(info)


@pytest.mark.parametrize("page", ["runs", "live", "launch", "compare"])
def test_a_file_in_place_of_the_folder_of_runs_is_said(no_runs, open_page, monkeypatch, page):
    (no_runs / "file").write_text("")
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(no_runs / "file"))
    at = open_page(page)
    assert not at.exception
    if page != "launch":  # it shows no list
        assert any("is a file\\: name the folder of runs" in error.value for error in at.error)
