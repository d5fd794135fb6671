"""The task on the Launch page: a file with its columns and bad rows, difficulty, weights, and a line to try it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
import yaml

from app.views.comparison import trait_words
from app.views.tokens import rollout_title
from core.config import parse, parse_run
from core.models.catalog import EMBEDDED_PATH
from core.runs import create_runs
from core.runs.folders import run_info
from core.tasks import get_task
from core.tasks.own_function import ONLY_THERE
from tests.app.conftest import texts
from tests.app.launch_form import launched, widget
from tests.core.runs.conftest import experiment
from tests.needs import need_gym, need_math

HOSTILE = "<b>x</b> ![i](http://e.x/i) $$ :smile: \u202e"


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    rows = [{"id": n, "question": f"{n % 10}+{n // 10}=?", "result": n % 10 + n // 10} for n in range(60)]
    path = tmp_path / "sums.jsonl"
    path.write_text("\n".join([*map(json.dumps, rows), "not json", json.dumps({"question": HOSTILE, "result": "x"})]))
    return path


def of_file(path: Path, *more: str) -> list[str]:
    columns = [f"task.file.path={path}", "task.file.prompt=question", "task.file.answer=result"]
    return ["task.name=file", *columns, "task.verify.kind=numeric", *more]


def test_a_file_is_chosen_step_by_step(no_runs, open_page, sums):
    at = open_page("launch", preset="grpo")
    widget(at.selectbox, "draft:task.name").set_value("file").run()
    assert len(at.error) == 1 and "name a" in at.error[0].value and widget(at.button, "start").disabled
    assert at.error[0].value.startswith("**Dataset file** (task\\.file\\.path) is empty")
    path = widget(at.text_input, "draft:task.file.path")
    assert path.placeholder and "starts in the folder that the lab was started in" in path.help
    widget(at.text_input, "draft:task.file.path").set_value(str(sums)).run()
    assert not at.error and "were chosen by their names" in texts(at)
    columns = widget(at.selectbox, "draft:task.file.prompt")
    assert (columns.value, widget(at.selectbox, "draft:task.file.answer").value) == ("question", "result")
    assert list(columns.options) == ["id", "question", "result"]
    assert "take smollm2-135m" in " ".join(one.value.lower() for one in at.warning)
    told = "**Verifier and reward:** the same text as the answer (exact); "
    assert any(one.label.startswith(told) for one in at.expander)
    columns.set_value("id").run()
    assert not at.exception and "were chosen by their names" not in texts(at)
    widget(at.selectbox, "draft:task.file.prompt").set_value("question").run()
    assert not at.exception
    widget(at.selectbox, "draft:task.verify.kind").set_value("numeric").run()
    assert not at.exception and not at.error
    task = launched(at).run.task
    assert (task.file.path, task.file.prompt, task.file.answer) == (str(sums), "question", "result")
    assert parse(yaml.safe_load(at.code[1].value)).run.task == task
    again = open_page("launch", preset="grpo", set=at.query_params["set"])
    assert launched(again).run.task == task


def test_columns_without_a_telling_name_are_asked_for_once_and_by_their_label(no_runs, open_page, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("eins;zwei\n" + "".join(f"{n}+0;{n}\n" for n in range(60)))
    at = open_page("launch", preset="grpo", set=["task.name=file", f"task.file.path={path}"])
    assert len(at.error) == 1
    assert at.error[0].value.startswith("Choose the **Prompt column** and the **Answer column**: ")
    assert texts(at).replace("\\", "").count("its columns are 'eins', 'zwei'") == 1
    column = widget(at.selectbox, "draft:task.file.prompt")
    assert list(column.options) == ["eins", "zwei"] and column.value is None
    column.set_value("eins").run()
    assert not at.exception and at.error[0].value.startswith("Choose the **Answer column**: ")
    widget(at.selectbox, "draft:task.file.answer").set_value("zwei").run()
    assert not at.exception
    task = launched(at).run.task.file
    assert (task.prompt, task.answer) == ("eins", "zwei")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("task.file.template=x", "**Prompt template** (task.file.template): must have {prompt}"),
        ("task.file.held_out=2", "**Held out** (task.file.held_out): must be at most 0.9"),
        ("prompts_per_step=90", "**Prompts a step** (prompts_per_step) is 90, but the task 'file' has only"),
    ],
)
def test_an_error_has_the_label_of_its_field(no_runs, open_page, sums, change, words):
    at = open_page("launch", preset="grpo", set=of_file(sums, change))
    assert [one.value.replace("\\", "").startswith(words) for one in at.error] == [True]


def test_one_column_is_chosen_by_its_name_and_the_other_asked_for(no_runs, open_page, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("Question text,zwei\n1+1,2\n")
    at = open_page("launch", preset="grpo", set=["task.name=file", f"task.file.path={path}"])
    assert widget(at.selectbox, "draft:task.file.prompt").value == "Question text"
    assert "The prompt column was chosen by its name" in texts(at)
    assert [one.value.partition(":")[0] for one in at.error] == ["Choose the **Answer column**"]


def test_a_column_of_a_link_that_the_file_lacks_stays_offered_beside_its_own(no_runs, open_page, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("eins,zwei\n1+1,2\n")
    of_link = ["task.name=file", f"task.file.path={path}", "task.file.prompt=drei", "task.file.answer=zwei"]
    at = open_page("launch", preset="grpo", set=of_link)
    column = widget(at.selectbox, "draft:task.file.prompt")
    assert list(column.options) == ["eins", "zwei", "drei"] and column.value == "drei"
    assert len(at.error) == 1 and at.error[0].value.startswith("**Prompt column** (task\\.file\\.prompt): ")


@pytest.mark.parametrize(
    "name", ["prompt\x85x", "prompt\u2028", "prompt \x7f", "prompt \ufffe", "prompt \ufeff", HOSTILE]
)
def test_a_column_is_chosen_whatever_characters_its_name_has(no_runs, open_page, tmp_path, name):
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"answer": n, name: f"{n}+0"}) + "\n" for n in range(60)))
    at = open_page("launch", preset="grpo", set=["task.name=file", f"task.file.path={path}"])
    widget(at.selectbox, "draft:task.file.prompt").set_value(name).run()
    assert not at.exception and not at.error and launched(at).run.task.file.prompt == name
    assert "\u202e" not in texts(at)


@pytest.mark.parametrize("name", ["prompt \ud800", "prompt " + "x" * 3000])
def test_a_column_that_no_config_can_name_is_not_offered(no_runs, open_page, tmp_path, name):
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"answer": 1, "question": "1+0", name: "1"}))
    at = open_page("launch", preset="grpo", set=["task.name=file", f"task.file.path={path}"])
    assert not at.exception and "Something went wrong" not in texts(at)
    assert widget(at.selectbox, "draft:task.file.prompt").value == "question"
    assert name not in widget(at.selectbox, "draft:task.file.prompt").options


def test_the_embedded_model_may_read_a_file_of_its_own_sums(no_runs, open_page, tmp_path):
    def warned(*more: str) -> bool:
        at = open_page("launch", preset="grpo", set=["task.name=file", f"task.file.path={path}", *more])
        assert not at.exception and not at.error
        return any("The embedded model has seen" in one.value for one in at.warning)

    path = tmp_path / "a.jsonl"
    own = get_task("embedded")
    prompts = [*own.train_pool(60, 0), *own.held_out(20)]
    rows = [{"prompt": prompt.text, "answer": prompt.answer} for prompt in prompts]
    path.write_text("\n".join(map(json.dumps, rows)))
    assert not warned()
    assert warned("task.file.template=What is {prompt}")
    assert not any("embedded model has seen" in one.value for one in open_page("launch", preset="grpo").warning)


def test_a_learning_rate_for_a_larger_model_is_a_press_away(no_runs, open_page, tmp_path):
    model = shutil.copytree(EMBEDDED_PATH, tmp_path / "model")
    at = open_page("launch", preset="grpo", set=[f"model={model}"])
    assert any("larger models want a tenth" in one.value for one in at.warning)
    widget(at.button, "lr").click().run()
    assert launched(at).run.optimizer.lr == 1e-4 and not any(one.key == "lr" for one in at.button)


def test_rows_are_shown_split_and_counted(no_runs, open_page, sums):
    at = open_page("launch", preset="grpo", set=of_file(sums))
    assert not at.exception and not at.error
    said = texts(at)
    assert "held out" in said and "2\u00a0rows left out" in said
    held = int(re.search(r"(\d+)\u00a0prompts\*\* held out", said)[1])
    assert held < 64 and f"evaluated every 10\u00a0steps on {held} held-out prompts" in said
    assert "| not JSON | 1 | line 61 |" in said and "| the answer is no number | 1 | line 62 |" in said
    shown = at.dataframe[0].value
    assert list(shown.columns) == ["question", "result", "id"]
    assert shown["question"].tolist() == [f"{n}+0=?" for n in range(5)]
    assert "<b>" not in said and "![i]" not in said
    sums.write_text(sums.read_text().replace("0+0=?", "0+0 ?"))
    assert at.run().dataframe[0].value["question"][0] == "0+0 ?", "a file that was written anew is read anew"


def test_a_row_that_the_preview_lacks_is_counted(no_runs, open_page, tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("question;result\n1+1\n" + "".join(f"{n}+0;{n}\n" for n in range(60)))
    at = open_page("launch", preset="grpo", set=of_file(path))
    assert not at.exception and not at.error and len(at.dataframe[0].value) == 4
    assert "**1\u00a0row left out**" in texts(at)
    assert "| not as many fields as the first line | 1 | line 2 |" in texts(at)


def test_a_hostile_file_stays_text(no_runs, open_page, tmp_path):
    path = tmp_path / "h.jsonl"
    path.write_text("\n".join(json.dumps({"question": f"{HOSTILE} {n}", "result": HOSTILE}) for n in range(60)))
    at = open_page("launch", preset="grpo", set=of_file(path, "task.verify.kind=exact"), **{"try": HOSTILE})
    assert not at.exception
    said = texts(at)
    assert "<b>x" not in said and "](http" not in said and "\u202e" not in said
    assert "\u202e" not in "".join(at.dataframe[0].value["question"])


def test_a_response_can_be_tried(no_runs, open_page, sums):
    weights = ["task.reward.format=0.5", "task.reward.length=0.1"]
    at = open_page("launch", preset="grpo", set=of_file(sums, *weights))
    prompt, answer = next(box for box in at.selectbox if box.key == "url:asked"), at.caption
    answer = next(caption.value for caption in at.caption if caption.value.startswith("The answer: ")).split()[-1]
    assert prompt.options[0].endswith("=?")
    widget(at.text_area, "url:try").set_value(rf"so \boxed{{{answer}}}").run()
    assert "✓ right, correctness 1**; reward 1.5 = correct 1 + format 0.5, less what its tokens cost" in texts(at)
    widget(at.text_area, "url:try").set_value("nothing").run()
    assert "× wrong, correctness 0**; reward 0 = correct 0 + format 0" in texts(at)
    assert "try" in at.query_params


def test_the_parts_of_a_reward_are_shown():
    rollout = {"rollout": 1, "correct": True, "truncated": False, "length": 3, "mean_advantage": 0.1, "kept": True}
    several = pd.Series({**rollout, "reward": 1.1, "parts": {"correct": 1.0, "format": 0.2, "length": -0.1}})
    assert "reward 1.1 (correct 1, format 0.2, length −0.1), 3" in rollout_title(several, True)
    for parts in ({"correct": 1.0}, None):
        assert "reward 1, 3" in rollout_title(pd.Series({**rollout, "reward": 1.0, "parts": parts}), True)
    assert trait_words("part_format") == "reward: its part format"
    assert trait_words("formed") == "answers of the right form"


def test_weights_and_verifiers_go_into_the_config(no_runs, open_page):
    at = open_page("launch", preset="grpo")
    assert "the task’s own; reward = 1 × correct" in "".join(one.label for one in at.expander)
    widget(at.number_input, "draft:task.reward.format").set_value(0.2).run()
    widget(at.text_input, "draft:task.reward.format_pattern").set_value("<answer>").run()
    assert launched(at).run.task.reward.model_dump() == {
        "correct": 1.0, "format": 0.2, "format_pattern": "<answer>", "length": 0.0,
    }  # fmt: skip
    widget(at.selectbox, "draft:task.verify.kind").set_value("regex").run()
    assert "pattern" in at.error[0].value
    widget(at.text_input, "draft:task.verify.pattern").set_value(r"(\d+)$").run()
    assert not at.error and launched(at).run.task.verify.pattern == r"(\d+)$"
    widget(at.text_input, "draft:task.verify.pattern").set_value("1").run()
    assert not at.error and launched(at).run.task.verify.pattern == "1"
    widget(at.text_input, "draft:task.verify.pattern").set_value("(").run()
    assert not at.exception and "is no regular expression" in at.error[0].value


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("file", "task.file=3"), ("file", "task.file.path=[1]"), ("file", "task.file.path=/no/such.csv"),
        ("file", "task.file.path=/etc/passwd"), ("file", "task.verify=x"), ("embedded", "task.reward.correct=lots"),
        ("knights_knaves", "task.generator.width=9"), ("knights_knaves", "task.generator={people: 2, width: 4}"),
        ("embedded", "task.name=[1]"), ("countdown", "task.generator=x"), ("embedded", "task=3"),
    ],
)  # fmt: skip
def test_nonsense_in_the_address_never_breaks_the_page(no_runs, open_page, name, change):
    at = open_page("launch", preset="grpo", set=[f"task.name={name}", change], asked="x")
    assert not at.exception
    assert "Something went wrong" not in texts(at)
    assert "root:" not in texts(at) and not [frame for frame in at.dataframe if "root:" in str(frame.value)]


def test_a_generated_task_shows_what_its_difficulty_looks_like(no_runs, open_page, tmp_path, monkeypatch):
    need_gym()
    monkeypatch.setenv("ADVANTAGE_LAB_CACHE", str(tmp_path))
    at = open_page("launch", preset="grpo", set="task.name=arithmetic")
    assert not at.exception and not at.error
    widget(at.number_input, "draft:task.generator.digits").set_value(6).run()
    assert launched(at).run.task.generator.digits == 6
    assert any(re.search("[0-9]{3}", prompt) for prompt in at.dataframe[0].value["prompt"])
    assert not [one for one in at.number_input if one.key == "draft:task.generator.people"]


def test_a_package_that_is_missing_is_named_with_its_command(no_runs, open_page, monkeypatch):
    monkeypatch.setattr("core.tasks.generators.importlib.util.find_spec", lambda name: None)
    for change in ("task.name=countdown", "task.verify.kind=math"):
        at = open_page("launch", preset="grpo", set=change)
        assert not at.exception
        assert "pip install" in at.error[0].value and widget(at.button, "start").disabled


def test_formulas_can_be_tried(no_runs, open_page):
    need_math()
    at = open_page("launch", preset="grpo", set="task.verify.kind=math", **{"try": "no answer"})
    assert not at.exception and "gave an answer 0" in texts(at)


def test_a_config_that_names_code_is_not_started(no_runs, open_page, tmp_path, monkeypatch):
    (tmp_path / "own_code_of_a_page.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    code = ["task.verify.kind=function", "task.verify.function=own_code_of_a_page:f"]
    for name in ("embedded", "file"):
        at = open_page("launch", preset="grpo", set=[*code, f"task.name={name}"], **{"try": "x"})
        assert not at.exception
        assert len(at.error) == 1 and "names Python code" in at.error[0].value
        assert widget(at.button, "start").disabled
    assert not (tmp_path / "ran").exists()


def test_no_callback_starts_or_resumes_code(no_runs, monkeypatch):
    from app import actions

    said: list[tuple[str, str]] = []
    monkeypatch.setattr(actions, "flash", lambda sentence, tone: said.append((sentence, tone)))
    monkeypatch.setattr("core.runs.control._spawn", lambda *_, **__: pytest.fail("a page started code"))
    code = {"verify": {"kind": "function", "function": "os:getcwd"}}
    actions.start(experiment(task=code))
    assert parse_run({"task": code}).task.verify.function == "os:getcwd"
    (path,) = create_runs(no_runs, experiment(task=code), code=True)
    (path / "status.json").write_text('{"state": "stopped", "total": 5}')
    actions.resume(run_info(path))
    monkeypatch.setattr(actions.st, "session_state", {"steps": 9})
    (path / "status.json").write_text('{"state": "finished", "total": 5, "step": 5}')
    actions.extend(run_info(path), "steps")
    assert [tone for _, tone in said] == ["bad"] * 3
    assert all(ONLY_THERE.split()[1] in sentence for sentence, _ in said)
