"""A reward of several parts, and a function of the user's own, which nothing but the command line may import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from core.config import ConfigError, parse_run
from core.config_tasks import TaskSettings
from core.tasks import Prompt, TaskError, get_task, names_code
from core.tasks.embedded import EmbeddedTask

GOOD, PROMPT = r"15-3 so 12 then \boxed{12}", Prompt("7+8-3=?", "12")


def task(trusted: bool = False, **settings: object):
    return get_task(TaskSettings(**settings), trusted=trusted)


def test_a_task_of_the_lab_stays_itself_unless_its_reward_or_verifier_is_changed():
    assert isinstance(task(), EmbeddedTask)
    for change in ({"reward": {"format": 0.5}}, {"verify": {"kind": "numeric"}}):
        changed = task(**change)
        assert changed.train_pool(9, 0) == EmbeddedTask().train_pool(9, 0)
        assert changed.held_out(9) == EmbeddedTask().held_out(9)
        assert changed.verify(PROMPT, GOOD).correctness == 1


def test_parts_are_weighed_and_sum_to_the_reward_and_correctness_is_not_weighed():
    weighed = task(reward={"correct": 2, "format": 0.5})
    right = weighed.verify(PROMPT, GOOD)
    assert (right.reward, right.correctness, right.parts) == (2.5, 1, {"correct": 2, "format": 0.5})
    assert right.traits["steps"] == 2 and right.traits["formed"] == 1
    wrong = weighed.verify(PROMPT, r"\boxed{3}")
    assert (wrong.reward, wrong.correctness, wrong.parts) == (0.5, 0, {"correct": 0, "format": 0.5})
    none = weighed.verify(PROMPT, r"12 \boxed{}")
    assert (none.reward, none.parts, none.traits["formed"]) == (0, {"correct": 0, "format": 0}, 0)


def test_the_form_can_be_a_pattern_of_weight_0():
    counted = task(reward={"format_pattern": r"^<think>.*</think>"})
    verdict = counted.verify(PROMPT, rf"<think>hm</think> {GOOD}")
    assert (verdict.reward, verdict.parts["format"], verdict.traits["formed"]) == (1, 0, 1)
    assert counted.verify(PROMPT, GOOD).traits["formed"] == 0
    with pytest.raises(TaskError, match=r"^task\.reward\.format_pattern: .* is no regular expression"):
        task(reward={"format_pattern": "("})


def test_a_form_that_takes_too_long_is_none_and_counted():
    slow = task(reward={"format": 1, "format_pattern": r"^(([a-z])+.)+[A-Z]([a-z])+$"})
    verdict = slow.verify(PROMPT, "a" * 8000)
    assert (verdict.parts["format"], verdict.traits["timed_out"]) == (0, 1)


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Write a module of a user's own; its name is new each time."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(code: str) -> str:
        name = f"own_rewards_{tmp_path.name}_{len(list(tmp_path.iterdir()))}".replace("-", "_")
        (tmp_path / f"{name}.py").write_text(code)
        return name

    return write


def own(name: str, trusted: bool = True, **more: object):
    return task(trusted, verify={"kind": "function", "function": name}, **more)


def test_a_function_of_ones_own_gives_a_number_or_parts(module):
    name = module(
        "def number(prompt, answer, response):\n    return answer in response\n"
        "def parts(prompt, answer, response):\n    return {'correct': 0.5, 'short': len(response) / 10}\n"
    )
    verdict = own(f"{name}:number").verify(PROMPT, GOOD)
    assert (verdict.reward, verdict.correctness, verdict.parts) == (1, 1, {"correct": 1})
    verdict = own(f"{name}:parts", reward={"correct": 2}).verify(PROMPT, "x" * 5)
    assert (verdict.reward, verdict.correctness, verdict.parts) == (1.5, 0.5, {"correct": 1, "short": 0.5})


@pytest.mark.parametrize(
    ("code", "function", "words"),
    [
        ("", "f", r"has no function f$"),
        ("f = 3", "f", r"has no function f$"),
        ("1 / 0", "f", r"cannot be imported \(ZeroDivisionError: division by zero\); start the run in its folder"),
        ("import nothing_of_this_name", "f", "cannot be imported"),
    ],
)
def test_what_cannot_be_had_is_one_sentence(module, code, function, words):
    with pytest.raises(TaskError, match=rf"^task\.verify\.function: .*{words}"):
        own(f"{module(code)}:{function}")


@pytest.mark.parametrize("name", ["", "os", "os.getcwd", "os:", ":f", "os:a.b", "os:f()", "../x:f", "os: f"])
def test_it_is_named_as_module_and_function(name):
    with pytest.raises(TaskError, match=r"^task\.verify\.function is .*: write module:function"):
        own(name)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("raise KeyError('x')", r"failed on the response .*KeyError"),
        ("return None", "returned None: return a finite number"),
        ("return 'nan'", "returned 'nan'"),
        ("return float('nan')", "returned nan"),
        ("return {'short': 1}", r"returned \{.*with correct among them"),
        ("return {'correct': 1, 2: 3}", "returned"),
    ],
)
def test_a_function_that_fails_is_told(module, body, words):
    name = module(f"def f(prompt, answer, response):\n    {body}\n")
    with pytest.raises(TaskError, match=rf"^task\.verify\.function: {name}:f {words}"):
        own(f"{name}:f").verify(PROMPT, GOOD)


def test_unless_trusted_nothing_is_imported(module, tmp_path):
    name = module(f"open({str(tmp_path / 'ran')!r}, 'w')\ndef f(prompt, answer, response):\n    return 1\n")
    settings = TaskSettings(verify={"kind": "function", "function": f"{name}:f"})
    assert names_code(settings) and not names_code(TaskSettings())
    with pytest.raises(TaskError, match=r"^task\.verify\.function names Python code, which no page starts or resumes"):
        get_task(settings)
    assert not (tmp_path / "ran").exists()
    get_task(settings, trusted=True)
    assert (tmp_path / "ran").exists()


def test_texts_that_yaml_reads_as_numbers_stay_texts():
    assert parse_run({"task": {"file": {"prompt": 1, "answer": 2.5}}}).task.file.model_dump(
        include={"prompt", "answer"}
    ) == {"prompt": "1", "answer": "2.5"}
    assert parse_run({"task": {"verify": {"pattern": 1.0}}}).task.verify.pattern == "1"


@pytest.mark.parametrize(
    ("task", "words"),
    [
        ({"file": {"held_out": 1}}, r"^task\.file\.held_out: must be at most 0\.9"),
        ({"file": {"template": "{question}"}}, r"^task\.file\.template: must have \{prompt\}"),
        ({"verify": {"kind": "magic"}}, r"^task\.verify\.kind: must be 'auto', 'exact'"),
        ({"verify": {"tolerance": -1}}, r"^task\.verify\.tolerance: must be at least 0"),
        ({"reward": {"format": -1}}, r"^task\.reward\.format: must be at least 0"),
        ({"reward": {"formatt": 1}}, r"^task\.reward\.formatt: no such setting; did you mean format\?"),
        ({"generator": {"people": 2, "width": 4}}, r"^task\.generator: width is 4, but 2 people have only 3 different"),
        ({"verify": {"pattern": True}}, r"^task\.verify\.pattern: must be text"),
    ],
)
def test_settings_that_cannot_be_are_one_sentence(task, words):
    with pytest.raises(ConfigError, match=words):
        parse_run({"task": task})


def test_tasks_load_neither_torch_nor_what_is_optional():
    code = "import core.tasks, sys; print(*{m.partition('.')[0] for m in sys.modules})"
    root = Path(__file__).parents[3]
    loaded = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert not set(loaded.stdout.split()) & {"torch", "sympy", "math_verify", "reasoning_gym", "pyarrow", "duckdb"}


def test_a_config_from_before_means_the_same():
    old = parse_run({"task": {"name": "sums", "pool_size": 64}})
    assert old.task == TaskSettings(name="sums", pool_size=64)
    assert get_task(old.task).name == "sums" and old.task.reward.plain
