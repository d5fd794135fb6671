"""`core export verl`, `core export trl` as commands: what is written, what is said, what is refused.

`tests/verl` puts the exports into verl's own hands.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.config import parse_run
from core.exporters.adapter import ExportError
from core.exporters.cluster import REPO, closure, copy_lab, one_run
from core.exporters.twins import UNKNOWN, code, leaves
from core.exporters.verl import export_verl
from core.exporters.verl_settings import hydra, verl_settings
from core.importers.base import Report
from core.importers.formats.verl import FORMAT
from core.models.packaged import SMOLLM2
from core.tasks import get_task
from core.tasks.base import POOL_SEED
from tests.core.shell import Shell
from tests.synthetic import make_run


@pytest.fixture
def core(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def texts(folder: Path) -> dict[str, str]:
    """Every file that is text."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    binary = (".parquet", ".safetensors")
    return {str(path.relative_to(folder)): path.read_text("utf-8") for path in files if path.suffix not in binary}


@pytest.mark.parametrize("trainer", ["verl", "trl"])
def test_the_command_writes_a_folder_and_says_what_has_no_twin(core: Shell, trainer: str, tmp_path: Path) -> None:
    out = tmp_path / "mine" / "export"
    assert core("export", trainer, "a3po", "-o", str(out), "--set", "steps=7", "--set", "methods=[a3po]") == 0
    script = out / ("run.sh" if trainer == "verl" else "train.py")
    assert ("total_training_steps=7" if trainer == "verl" else "'max_steps': 14") in script.read_text()
    for setting in ("evaluate.k", "checkpoint.exact", "record.after_update"):
        assert f"  {setting}: " in core.out and f"- `{setting}`" in (out / "README.md").read_text()
    assert f"python -m core import {out}/" in core.out
    assert not [path for path in out.parent.iterdir() if path != out]


@pytest.mark.parametrize("trainer", ["verl", "trl"])
def test_nothing_names_a_place_on_this_machine(core: Shell, trainer: str, tmp_path: Path) -> None:
    """Not the file of the task's prompts either: they are in the export."""
    data = tmp_path / "private-place" / "sums.jsonl"
    data.parent.mkdir()
    data.write_text("".join(json.dumps({"prompt": f"{n} + 1 = ?", "answer": str(n + 1)}) + "\n" for n in range(64)))
    out = tmp_path / "export"
    settings = ["task.name=file", f"task.file.path={data}", "task.verify.kind=numeric", "task.pool_size=16"]
    words = [word for setting in settings for word in ("--set", setting)]
    assert core("export", trainer, "smoke", "-o", str(out), *words) == 0
    for name, text in texts(out).items():
        assert "private-place" not in text and str(REPO) not in text and str(tmp_path) not in text, name
    train = out / "data" / ("train.parquet" if trainer == "verl" else "train.jsonl")
    assert b"private-place" not in train.read_bytes()


def test_the_prompts_are_the_runs_own(tmp_path: Path) -> None:
    own = {"model": "of/nobody", "system_prompt": "Add."}
    config = parse_run(own | {"task": {"pool_size": 20}, "evaluate": {"prompts": 5, "probes": 2}})
    export_verl(config, tmp_path / "e")
    task = get_task(config.task)
    for name, prompts in (("train", task.train_pool(20, POOL_SEED)), ("held_out", task.held_out(5))):
        rows = pq.read_table(tmp_path / "e" / "data" / f"{name}.parquet").to_pylist()
        assert [row["extra_info"]["prompt"] for row in rows] == [prompt.text for prompt in prompts]
        assert [row["reward_model"]["ground_truth"] for row in rows] == [prompt.answer for prompt in prompts]
        assert rows[0]["prompt"][0] == {"role": "system", "content": "Add."}


def test_the_copy_of_the_lab_is_whole_and_small(tmp_path: Path) -> None:
    """It is imported where nothing else of the lab can be found, and judges as the lab does."""
    copy_lab(tmp_path)
    found = closure(("core.advantage", "core.tasks"))
    assert {"core.advantage.methods.a3po", "core.tasks.embedded", "core.config_tasks"} <= found
    assert not (tmp_path / "core" / "train").exists() and not (tmp_path / "core" / "store").exists()
    code = """
import sys
from core.advantage import build
from core.config_tasks import TaskSettings
from core.tasks import get_task, make_verifier
import core
assert core.__file__.startswith(sys.argv[1]), core.__file__
task = get_task(TaskSettings(name="embedded"))
prompt = task.train_pool(1, 0)[0]
assert task.verify(prompt, "\\\\boxed{" + prompt.answer + "}").reward == 1
for kind in ("exact", "numeric", "choice"):
    make_verifier(TaskSettings(name="file", verify={"kind": kind}))
print(build("a3po").label)
"""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    command = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "A3PO" in done.stdout


def test_every_setting_of_a_run_is_known(tmp_path: Path) -> None:
    config = parse_run({})
    _, fates = verl_settings(config, 128, 20)
    assert [fate.setting for fate in fates] == [name for name, _ in leaves(config)]
    assert not [fate.setting for fate in fates if fate.why == UNKNOWN]


def test_a_run_is_exported_by_its_own_settings(core: Shell, tmp_path: Path) -> None:
    make_run(tmp_path / "runs", "20260101-000000-grpo-s0-aaaa", steps=1, prompts=2, group_size=4)
    out = tmp_path / "e"
    where = ("--runs", str(tmp_path / "runs"))
    assert core("export", "verl", "aaaa", "-o", str(out), *where) == 0, core.err
    assert json.loads((out / "lab.json").read_text())["method"]["name"] == "grpo"
    assert core("export", "verl", "aaaa", "-o", str(tmp_path / "f"), *where, "--set", "seed=1") == 2
    assert "--set changes a config, but this is a run" in core.err


def test_several_runs_are_refused_with_what_to_write(core: Shell, tmp_path: Path) -> None:
    assert core("export", "trl", "quickstart", "-o", str(tmp_path / "e")) == 2
    assert "an export is one: choose it with --set methods=[NAME] --set seeds=[0]" in core.err
    words = ("--set", "methods=[grpo]", "--set", "seeds=[0]")
    assert core("export", "trl", "quickstart", "-o", str(tmp_path / "e"), *words) == 0


def test_a_name_that_is_nothing_and_a_folder_that_is_full(core: Shell, tmp_path: Path) -> None:
    assert core("export", "verl", "no_such_thing", "-o", str(tmp_path / "e")) == 2
    assert "no_such_thing: no such config file, and no preset of that name" in core.err
    (tmp_path / "mine.txt").write_text("mine")
    assert core("export", "verl", "grpo", "-o", str(tmp_path)) == 2
    assert "is already there and not empty" in core.err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_imported_run_is_refused(tmp_path: Path) -> None:
    run = make_run(tmp_path, "20260101-000000-grpo-s0-aaaa", steps=1, prompts=2, group_size=4)
    text = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(text.replace("imported: false", "imported: true"))
    with pytest.raises(ExportError, match="was imported"):
        one_run(str(run), [], lambda _: None)


def test_models_go_by_a_name_that_others_have(tmp_path: Path) -> None:
    for model, there in (("embedded", "model"), (SMOLLM2.name, SMOLLM2.origin), ("a/b", "a/b")):
        keys, _ = verl_settings(parse_run({"model": model}), 128, 20)
        assert keys["actor_rollout_ref.model.path"] == there


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "null"), (True, "true"), (0.5, "0.5"), (3, "3"), ("null", "'null'"), ("plain-name_2", "plain-name_2"),
        ("it's", "'it\\'s'"), ("${x}", "'\\${x}'"), ("a b", "'a b'"), ("", "''"), (["a", "b c"], "[a,'b c']"),
        ("7", "'7'"), ("end\\", "'end\\\\'"),
    ],
)  # fmt: skip
def test_values_for_hydra(value: object, written: str) -> None:
    assert hydra(value) == written


@pytest.mark.parametrize(
    ("text", "written"),
    [("a3po", "`a3po`"), ("a `b`", "`` a `b` ``"), ("``x`` | y\n<b>", "``` ``x`` \\| y <b> ```")],
)
def test_names_of_a_persons_own_in_the_readme(text: str, written: str) -> None:
    assert code(text) == written


def test_a_method_whose_loss_verl_lacks_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="lp_reg"):
        export_verl(parse_run({"method": "lp_reg"}), tmp_path / "e")
    assert not list(tmp_path.iterdir())
    with pytest.raises(ExportError, match="polarity_by"):
        verl_settings(parse_run({"polarity_by": "sign"}), 128, 20)


def dumped(folder: Path, **own: object) -> pa.Table:
    """What the verl reader takes of one row of a dump of ours."""
    row = {"input": "1+2=?", "output": "3", "gts": "3", "score": 1.0, "step": 1, "uid": "u0_0_0", "acc": True}
    (folder / "1.jsonl").write_text(json.dumps(row | own) + "\n")
    report = Report()
    tables = list(FORMAT.read(FORMAT.sniff(folder), report, {}))
    assert not tables or len(tables[0]) == 1
    return tables[0] if tables else pa.Table.from_pylist([{"refused": next(iter(report.refused))}])


def test_a_dump_comes_back_with_the_tokens_that_the_trainer_added(tmp_path: Path) -> None:
    own = {
        "length": 2, "truncated": False, "token_ids": [5, 1], "tokens": ["3", "<eos>"], "token_advantage": [0.5, 1.0],
        "kept": [True, False], "trainer_logprob": [-0.1, -0.2], "sampler_logprob": [-0.1, None], "entropy": [0.3, 0.4],
    }  # fmt: skip
    (row,) = dumped(tmp_path, **own).to_pylist()
    assert (row["group"], row["reward"], row["correct"], row["length"], row["truncated"]) == ("u0", 1.0, True, 2, False)
    assert (row["token_ids"], row["tokens"], row["kept"]) == ([5, 1], ["3", "<eos>"], [True, False])
    assert row["token_advantage"] == [0.5, 1.0]
    assert not row["traits"]


def test_rows_of_a_dump_without_our_columns_or_with_torn_ones(tmp_path: Path) -> None:
    (row,) = dumped(tmp_path, length=2).to_pylist()
    assert row["length"] is None and dict(row["traits"]) == {"length": 2.0}
    (row,) = dumped(tmp_path, token_advantage=[0.5, 1.0], token_ids=[5]).to_pylist()
    assert row == {"refused": "its lists of tokens have different lengths"}
