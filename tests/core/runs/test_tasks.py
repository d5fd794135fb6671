"""Runs on a user's own file or function: checked before they exist, found again by their process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from core.config import ConfigError, read_run
from core.runs import RunError, check_resume, create_runs, launch, resume, start
from tests.core.runs.conftest import experiment

CODE = {"name": "embedded", "verify": {"kind": "function", "function": "os:getcwd"}}
NO_PAGE = r"^task\.verify\.function names Python code, which no page starts or resumes: run this config with python -m"


@pytest.fixture
def sums(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "sums.jsonl"
    path.parent.mkdir()
    rows = [{"prompt": f"{a}+{b}=?", "answer": a + b} for a in range(8) for b in range(8)]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_a_run_keeps_the_whole_path_of_its_file(root: Path, sums: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(sums.parent)
    task = {"name": "file", "file": {"path": "sums.jsonl"}, "verify": {"kind": "numeric"}}
    (path,) = create_runs(root, experiment(task=task))
    assert read_run(path / "config.yaml").task.file.path == str(sums)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"task": {"name": "file"}}, r"^task\.file\.path is empty"),
        ({"task": {"name": "file", "file": {"path": "/no/such.csv"}}}, r"^task\.file\.path: there is no file /no/such"),
        ({"task": {"name": "sums"}, "prompts_per_step": 300}, r"^prompts_per_step is 300, but .* only 1\d\d distinct"),
    ],
)
def test_what_is_missing_is_named_and_nothing_made(root: Path, settings: dict, words: str) -> None:
    if "prompts_per_step" in settings:
        settings["task"]["pool_size"] = 300
    with pytest.raises(ConfigError, match=words):
        start(root, experiment(**settings))
    assert not root.exists()


def test_a_file_without_held_out_prompts_is_not_evaluated(root: Path, tmp_path: Path) -> None:
    texts = [f"{n}=?" for n in range(60)]
    from core.tasks.file import is_held_out

    rows = [{"prompt": text, "answer": 1} for text in texts if not is_held_out(text, 0.2)]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = {"name": "file", "file": {"path": str(tmp_path / "a.jsonl")}}
    with pytest.raises(ConfigError, match=r"^evaluate\.every is \d+, but the task 'file' has no held-out prompt"):
        create_runs(root, experiment(task=task))
    assert create_runs(root, experiment(task=task, evaluate={"every": 0}))


def test_code_is_for_the_command_line_alone(root: Path) -> None:
    with pytest.raises(ConfigError, match=NO_PAGE):
        start(root, experiment(task=CODE))
    assert not root.exists()
    (path,) = create_runs(root, experiment(task=CODE), code=True)
    for attempt in (launch, resume, check_resume):
        (path / "status.json").write_text('{"state": "stopped", "total": 5}')
        with pytest.raises((RunError, ConfigError), match=NO_PAGE):
            attempt(path)
    assert check_resume(path, code=True).task.verify.function == "os:getcwd"
    (path / "status.json").write_text('{"state": "finished", "total": 5, "step": 5}')
    with pytest.raises(ConfigError, match=NO_PAGE):
        resume(path, extend_to=9)
    assert read_run(path / "config.yaml").steps == 5
