"""The shipped examples: an empty lab has something to show, on every page, and three answers one press away."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from streamlit.testing.v1 import AppTest

from app import data, examples
from app.pages.tokens import VIEWS
from app.urls import PAGES
from core.cli.examples import MOST_BYTES, size
from core.config import load, read_run
from core.runs import list_runs
from core.runs.folders import REPO
from core.store import check, open_runs
from core.store.queries.landmarks import strongest_push
from tests.app.conftest import texts
from tests.synthetic import make_run

SHIPPED = REPO / "runs" / "examples"
IDS = sorted(path.name for path in SHIPPED.glob("example-*"))
TINY = {"steps": 3, "prompts": 2, "group_size": 2}
TEXTS = ("config.yaml", "status.json", "schema.json", "log.txt")


@pytest.fixture
def shipped(no_runs: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of runs, with the shipped examples beside it."""
    monkeypatch.setattr("core.runs.folders.EXAMPLES", SHIPPED)
    data.refresh()
    return no_runs


def links(at: AppTest) -> list[tuple[str, str]]:
    """(page, query) of every link to a page."""
    found = (re.search(r'page: "(\w+)"(?:.*query_string: "([^"]*)")?', str(link.proto), re.DOTALL)
             for link in at.get("page_link"))  # fmt: skip
    return [(match[1], match[2] or "") for match in found if match]


def test_there_are_small_whole_runs_of_six_methods() -> None:
    infos = [info for info in list_runs(SHIPPED, examples=False) if info.id in IDS]
    methods = [info.method for info in infos]
    assert set(methods) == {"grpo", "psr", "nsr", "a3po", "adora_amplify", "adora_attenuate"}
    assert sum(methods.count(method) >= 2 for method in set(methods)) >= 2
    assert all((info.state, info.step, info.model) == ("finished", 100, "embedded") for info in infos)
    assert len({info.experiment for info in infos}) == 1 and len({info.created for info in infos}) == len(infos)
    assert sum(size(SHIPPED / name) for name in IDS) <= MOST_BYTES == 15 * 10**6


def test_they_are_what_their_configs_train() -> None:
    wanted = [run for path in sorted(SHIPPED.glob("*.yaml")) for run in load(path).expand("recorded-examples")]
    found = [read_run(SHIPPED / name / "config.yaml") for name in IDS]
    order = {"key": lambda run: (run.method.name, run.seed)}
    assert sorted(found, **order) == sorted(wanted, **order)


def test_one_of_them_keeps_the_promise() -> None:
    report = check(SHIPPED / "example-a3po-s0")
    assert report.problems == []
    assert {0, 40, 100} <= set(report.recomputed)


@pytest.mark.parametrize("name", IDS)
def test_nothing_in_it_tells_of_a_machine(name: str) -> None:
    place = re.compile(r"(?:^|[\s\"'=:])(?:/|~/|[A-Z]:\\)\w+[/\\]|host|boot_id|\bpid\b")
    for file in TEXTS:
        assert not place.search((SHIPPED / name / file).read_text(encoding="utf-8")), file
    for file in (SHIPPED / name / "tables").glob("*.parquet"):
        columns = [field.name for field in pq.read_schema(file) if str(field.type) == "string"]
        for column in pq.read_table(file, columns=columns).columns:
            assert not [text for text in column.unique().to_pylist() if text and place.search(text)]


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ("runs", "launch", "imports", "compare")])
@pytest.mark.parametrize("name", IDS)
def test_every_page_opens_on_it(shipped: Path, open_page, page: str, name: str) -> None:
    at = open_page(page, run=name)
    assert not at.exception and not at.error and not at.warning
    assert "no step yet" not in texts(at)


@pytest.mark.parametrize("view", list(VIEWS))
@pytest.mark.parametrize("name", ["example-a3po-s0", "example-grpo-s1"])
def test_every_view_of_the_tokens_opens_on_it(shipped: Path, open_page, view: str, name: str) -> None:
    at = open_page("tokens", run=name, view=view)
    assert not at.exception and not at.error and not at.warning


@pytest.mark.parametrize(
    ("page", "method"),
    [("tokens", "a3po"), ("favorability", "adora-attenuate"), ("polarity", "grpo"), ("whatif", "grpo")],
)
def test_without_a_run_of_ones_own_a_page_shows_the_example_that_suits_it(shipped, open_page, page, method) -> None:
    at = open_page(page)
    assert not at.exception
    assert at.query_params["run"] == f"example-{method}-s0"
    make_run(shipped, "mine", **TINY)
    data.refresh()
    assert open_page(page).query_params["run"] == "mine"


@pytest.mark.parametrize("page", ["tokens", "whatif"])
def test_a_link_to_a_step_without_tokens_leads_to_the_same_prompt_where_it_has_some(shipped, open_page, page) -> None:
    name, kept = "example-grpo-s0", (0, 1, 2, 5, 10, 20, 30, 40, 50, 60, 70, 77, 80, 90)
    with open_runs([SHIPPED / name]) as lab:
        visits = {(row["step"], row["group"]): row["prompt_id"] for row in lab.rows(
            "SELECT step, \"group\", prompt_id FROM groups WHERE split = 'train'")}  # fmt: skip
    again = {prompt for (step, _), prompt in visits.items() if step in kept}
    step, group = next(
        place for place, prompt in visits.items() if place[0] > 40 and place[0] not in kept and prompt in again
    )
    at = open_page(page, run=name, split="train", step=step, group=group)
    assert not at.exception and not at.warning
    assert any(f"step {step} is none of them" in info.value for info in at.info)
    found = int(at.query_params["step"]), int(at.query_params["group"])
    assert found[0] in kept and visits[found] == visits[step, group]
    never = next(place for place, prompt in visits.items() if place[0] not in kept and prompt not in again)
    at = open_page(page, run=name, split="train", step=never[0], group=never[1])
    assert not at.exception
    nearest = min(kept, key=lambda there: abs(there - never[0]))
    assert not at.warning and at.query_params["step"] == str(nearest)
    assert any(f"the nearest that is kept, step {nearest}." in info.value for info in at.info)


def test_newest_rollouts_are_of_a_step_that_has_tokens(shipped: Path, open_page) -> None:
    at = open_page("live", run="example-grpo-s0")
    assert "**Newest rollouts** · step 90" in texts(at)


def test_compare_and_live_open_on_all_of_them(shipped: Path, open_page) -> None:
    at = open_page("compare")
    assert not at.exception and not at.warning
    assert at.query_params["experiment"] == "recorded-examples"
    live = open_page("live")
    assert not live.exception and not live.warning
    drawn = next(box.value for box in live.multiselect if box.key == "url:run")
    assert len({read_run(SHIPPED / run / "config.yaml").method.name for run in drawn}) == 6


def test_the_first_page_asks_three_questions_and_the_quick_start_stays_the_first_to_press(shipped, open_page) -> None:
    at = open_page("runs")
    assert not at.exception
    said = texts(at)
    for question in ("Which method kept entropy?", "Which prompts did ADORA hold back at step 40?", "push hardest"):
        assert question in said
    primary = [one.label for one in at.button if one.proto.type == "primary"]
    assert primary == ["Start the Quick start"]
    found = links(at)
    assert ("compare", "experiment=recorded-examples&metric=entropy") in found
    assert ("favorability", "run=example-adora-attenuate-s0&step=40") in found


def test_the_links_lead_to_the_answers(shipped: Path, open_page) -> None:
    infos = [info for info in data.runs() if info.example]
    entropy, held, pushed = examples.questions(infos)
    at = open_page(entropy.page, **entropy.params)
    assert not at.exception and not at.warning and "ntropy" in texts(at)
    with open_runs([SHIPPED / "example-adora-attenuate-s0"]) as lab:
        weights = [row["weight"] for row in lab.step(lab.runs[0], held.params["step"]).rows(
            "SELECT weight FROM groups WHERE split = 'train' AND kept")]  # fmt: skip
    down = sum(weight < 1 for weight in weights)
    assert 0 < down < len(weights) and held.hint.startswith(f"{down} of {len(weights)} prompts")
    at = open_page(held.page, **held.params)
    assert not at.exception and not at.warning and "Step 40" in texts(at)
    with open_runs([SHIPPED / "example-a3po-s0"]) as lab:
        place = strongest_push(lab, lab.runs[0])
    keys = ("step", "group", "rollout", "position")
    assert [pushed.params[key] for key in keys] == [getattr(place, key) for key in keys]
    at = open_page(pushed.page, **pushed.params)
    assert not at.exception and not at.warning
    assert [at.query_params[key] for key in keys] == [str(pushed.params[key]) for key in keys]


def test_examples_stand_apart_from_ones_own_runs_and_cannot_be_changed(shipped: Path, open_page) -> None:
    at = open_page("runs")
    (apart,) = [one for one in at.expander if "recorded example" in one.label]
    assert apart.proto.expanded and len(apart.get("progress")) == len(IDS)
    assert texts(at).count(":gray-badge[example]") == len(IDS)
    assert not [one.key for one in at.button if one.key and one.key.startswith(("delete", "resume", "extend", "stop"))]
    make_run(shipped, "mine", **TINY)
    data.refresh()
    at = open_page("runs")
    (apart,) = [one for one in at.expander if "recorded example" in one.label]
    (asked,) = [one for one in at.expander if "Three questions" in one.label]
    assert not apart.proto.expanded and not asked.proto.expanded
    assert len(at.get("progress")) == len(IDS) + 1
    assert "delete:mine" in [one.key for one in at.button]
    found = open_page("runs", find="nsr")
    assert len(found.get("progress")) == 1 and "example-nsr-s0" in texts(found)


def test_a_damaged_example_asks_nothing_and_breaks_no_first_page(shipped, open_page, tmp_path, monkeypatch) -> None:
    folder = tmp_path / "damaged"
    for name in ("example-a3po-s0", "example-adora-attenuate-s0"):
        shutil.copytree(SHIPPED / name, folder / name)
    (folder / "example-a3po-s0" / "tables" / "tokens.parquet").unlink()
    monkeypatch.setattr("core.runs.folders.EXAMPLES", folder)
    data.refresh()
    at = open_page("runs")
    assert not at.exception
    assert "hold back at step" in texts(at) and "push hardest" not in texts(at)
    broken = open_page("tokens", run="example-a3po-s0")
    assert not broken.exception
    assert any("copy the whole folder" in error.value for error in broken.error)
