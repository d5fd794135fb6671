"""From a dataset file to a trained run, and a reward of one's own: through the command line, on the embedded model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from core.cli import main
from core.config import read_run
from core.runs import list_runs
from core.store import open_runs

SHORT = [
    "steps=3", "prompts_per_step=4", "group_size=4", "threads=1", "sampling.max_new_tokens=40", "overlong.buffer=8",
    "evaluate={every: 2, prompts: 4, rollouts: 4, k: 4, probes: 1}",
]  # fmt: skip
DATA = ["task.name=file", "task.file={path: sums.csv, prompt: question, answer: result}"]
NUMERIC = ["task.verify={kind: numeric, read: boxed}", "task.reward={format: 0.2, length: 0.1}"]
WITH_PROMPTS = 'rollouts r JOIN groups g USING (run, step, split, "group")'
OWN = """
def score(prompt, answer, response):
    return {"correct": float(answer in response), "calm": 0.05 * ("!" not in response)}
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of a person's own, with a dataset and a function, from which they call the lab."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path / "runs"))
    monkeypatch.setenv("ADVANTAGE_LAB_LOCKS", str(tmp_path / "locks"))
    rows = [f"{a}+{b}=?,{a + b}" for a in range(1, 9) for b in range(1, 9)]
    (tmp_path / "sums.csv").write_text("question,result\n" + "\n".join(rows) + "\n=?,\n")
    (tmp_path / "rewards_of_mine.py").write_text(OWN)
    return tmp_path


def run(*settings: str) -> int:
    return main(["run", "smoke", *[word for setting in (*SHORT, *settings) for word in ("--set", setting)]])


def only_run(folder: Path) -> Path:
    (info,) = list_runs(folder / "runs", examples=False)
    assert info.state == "finished", info.error
    return info.path


def test_a_dataset_file_trains_and_its_parts_are_stored(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*DATA, *NUMERIC) == 0
    path = only_run(here)
    assert read_run(path / "config.yaml").task.file.path == str(here / "sums.csv")
    assert main(["check", path.name]) == 0
    with open_runs([path]) as lab:
        rows = lab.rows(f"SELECT r.*, prompt, answer FROM {WITH_PROMPTS}")
        sides = {split: {r["prompt"] for r in rows if r["split"] == split} for split in ("train", "eval")}
        metrics = lab.rows("SELECT traits FROM metrics")
    assert sides["train"] and sides["eval"] and not sides["train"] & sides["eval"]
    for row in rows:
        parts, a_b = dict(row["parts"]), row["prompt"].removesuffix("=?").split("+")
        assert parts.keys() == {"correct", "format", "length", "overlong"}
        assert sum(parts.values()) == pytest.approx(row["reward"], abs=1e-6)
        assert parts["correct"] == row["correctness"] and parts["format"] == 0.2 * dict(row["traits"])["formed"]
        assert row["answer"] == str(sum(map(int, a_b)))
        assert not row["correct"] or rf"\boxed{{{row['answer']}" in row["text"]
    assert any(row["correct"] for row in rows) and not all(row["correct"] for row in rows)
    assert all({"part_correct", "part_length", "formed"} <= dict(row["traits"]).keys() for row in metrics)
    capsys.readouterr()


def test_a_run_does_not_go_on_with_other_prompts(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*DATA, *NUMERIC) == 0
    path = only_run(here)
    (here / "sums.csv").write_text("question,result\n" + "\n".join(f"{n}+9=?,{n + 9}" for n in range(60)))
    assert main(["resume", path.name, "--to", "5"]) == 1
    assert "cannot go on exactly as before: prompts was" in (path / "log.txt").read_text()
    shutil.rmtree(path)
    capsys.readouterr()


def test_a_function_of_ones_own_is_the_reward(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = ["task.verify={kind: function, function: 'rewards_of_mine:score'}"]
    assert run(*DATA, *own) == 0
    with open_runs([only_run(here)]) as lab:
        rows = lab.rows(f"SELECT r.*, answer FROM {WITH_PROMPTS}")
    for row in rows:
        parts = dict(row["parts"])
        assert row["correctness"] == float(row["answer"] in row["text"]) == parts["correct"]
        assert parts["calm"] == pytest.approx(0.05 * ("!" not in row["text"]))
    assert main(["resume", only_run(here).name, "--to", "4"]) == 0
    assert json.loads((only_run(here) / "status.json").read_text())["step"] == 4
    capsys.readouterr()
