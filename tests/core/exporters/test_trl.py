"""`core export trl`: the script trains with the real TRL, where there is nothing of the lab but what was written."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow.parquet as pq
import pytest

from core.advantage import Batch, build, compute
from core.cli import main
from core.config import RunConfig, parse_run
from core.exporters.adapter import ExportError
from core.exporters.trl import export_trl
from core.exporters.trl_settings import trl_settings
from core.exporters.twins import UNKNOWN
from core.importers.manifest import read_manifest
from core.store.check import check

NAME = "it's `a` \"name\"\n'''; import os #"
SMALL = {
    "steps": 2, "prompts_per_step": 4, "group_size": 4, "device": "cpu", "task": {"pool_size": 16},
    "evaluate": {"every": 1, "prompts": 4, "rollouts": 2, "k": 2, "probes": 0}, "lora": {"r": 4},
}  # fmt: skip


def train(folder: Path) -> None:
    """Run the script from elsewhere, with nothing of the lab to be found."""
    hidden = {"PYTHONPATH", "ADVANTAGE_LAB_RUNS"}
    environment = {key: value for key, value in os.environ.items() if key not in hidden} | {
        "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder.parent / "hf"), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "",
    }  # fmt: skip
    command = [sys.executable, str(folder / "train.py")]
    done = subprocess.run(
        command, cwd=folder.parent, env=environment, capture_output=True, text=True, timeout=400, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two steps of two updates each, with A3PO: its advantages differ from token to token."""
    folder = tmp_path_factory.mktemp("trl") / "export"
    config = parse_run(SMALL | {"method": "a3po", "name": NAME, "updates": {"minibatches": 2}})
    export_trl(config, folder)
    train(folder)
    return folder


def logged(folder: Path) -> list[dict[str, list[Any]]]:
    """The columns of each file of completions, in order."""
    return [pq.read_table(path).to_pydict() for path in sorted((folder / "output" / "completions").glob("*.parquet"))]


def batch_of(rows: dict[str, list[Any]], step: int, lab: dict[str, Any]) -> Batch:
    """What the lab's rules see of a file."""
    length = np.array(rows["length"])

    def padded(name: str) -> np.ndarray:
        return np.array([np.pad(each, (0, length.max() - len(each))) for each in rows[name]], dtype=float)

    return Batch(
        group=np.array([int(each) for each in rows["group"]]), reward=np.array(rows["reward"]),
        correct=np.array(rows["correct"]), length=length, truncated=np.array(rows["truncated"]),
        max_length=lab["max_length"], step=step, total_steps=lab["total_steps"], minibatches=lab["minibatches"],
        sampler_logprob=padded("trainer_logprob"), trainer_logprob=padded("trainer_logprob"), entropy=padded("entropy"),
    )  # fmt: skip


def test_two_steps_train_an_adapter_and_log_their_completions(trained: Path) -> None:
    names = [path.name for path in sorted((trained / "output" / "completions").glob("*.parquet"))]
    assert names == ["completions_00002.parquet", "completions_00004.parquet"]  # TRL's names count updates
    assert (trained / "output" / "adapter" / "adapter_model.safetensors").is_file()
    adapter = json.loads((trained / "output" / "adapter" / "adapter_config.json").read_text())
    assert (adapter["r"], adapter["lora_alpha"], adapter["lora_dropout"]) == (4, 32, 0.0)
    for step, rows in enumerate(logged(trained)):
        assert set(rows["step"]) == {step}
        assert len(rows["prompt"]) == 16 and len(set(rows["prompt"])) == 4
        assert [rows["prompt"][i] for i in range(0, 16, 4)] == [rows["prompt"][i] for i in range(3, 16, 4)]
        assert set(rows["reward"]) <= {0.0, 1.0}
        assert rows["correct"] == [reward >= 0.5 for reward in rows["reward"]]


def test_its_advantages_are_the_labs(trained: Path) -> None:
    lab = json.loads((trained / "lab.json").read_text())
    assert json.loads((trained / "output" / "completions" / "lab.json").read_text()) == lab
    apart = 0
    for step, rows in enumerate(logged(trained)):
        trace = compute(build("a3po"), batch_of(rows, step, lab))
        for place, length in enumerate(rows["length"]):
            expected = trace.advantage[place, :length]
            np.testing.assert_allclose(rows["token_advantage"][place], expected, rtol=1e-5, atol=1e-5)
            assert rows["kept"][place] == trace.kept[place, :length].tolist()
            assert rows["advantage"][place] == pytest.approx(expected.mean(), abs=1e-5)
            apart += len({round(float(each), 4) for each in expected}) > 1
    assert apart, "no answer whose tokens were told apart: nothing was compared"


def test_training_moved_the_adapter_and_evaluated(trained: Path) -> None:
    from safetensors.numpy import load_file

    weights = load_file(trained / "output" / "adapter" / "adapter_model.safetensors")
    moved = [name for name, values in weights.items() if "lora_B" in name and np.abs(values).max() > 0]
    assert len(moved) == len(weights) // 2
    history = json.loads((trained / "output" / "checkpoint-4" / "trainer_state.json").read_text())["log_history"]
    assert [entry["step"] for entry in history if "eval_reward" in entry] == [2, 4]


def test_a_reward_by_length_a_kl_and_reinforce_train_too(tmp_path: Path) -> None:
    """And what the log calls the reward has what a length costs."""
    over = {"buffer": 70, "factor": 0.5}
    own = {"method": "grpo", "loss": {"objective": "reinforce", "kl": 0.01}, "overlong": over, "steps": 1}
    config = parse_run(SMALL | own | {"evaluate": {"every": 0}, "updates": {"epochs": 2}})
    folder = tmp_path / "export"
    export_trl(config, folder)
    train(folder)
    (rows,) = logged(folder)
    lost = [-0.5 * min(1.0, max(0, length - 2) / 70) for length in rows["length"]]
    right = np.array(rows["correct"], dtype=float)
    np.testing.assert_allclose(rows["reward"], right + lost, atol=1e-6)
    trace = compute(build("grpo"), batch_of(rows, 0, json.loads((folder / "lab.json").read_text())))
    for place, length in enumerate(rows["length"]):
        np.testing.assert_allclose(rows["token_advantage"][place], trace.advantage[place, :length], atol=1e-5)
    assert len(rows["ref_logprob"][0]) == rows["length"][0]


def test_every_setting_is_known_and_all_of_them_are_written_down(tmp_path: Path) -> None:
    config = parse_run({"name": NAME})
    fates = export_trl(config, tmp_path / "export")
    assert not [fate.setting for fate in fates if fate.why == UNKNOWN]
    assert all(fate.why for fate in fates if fate.twin is None)
    text = (tmp_path / "export" / "README.md").read_text()
    assert all(f"`{fate.setting}`" in text for fate in fates)


def test_the_script_is_python_whatever_the_run_is_called(tmp_path: Path) -> None:
    config = parse_run({"model": "it's/\"a\"\\model'''", "lora": {"targets": ["q_proj"]}, "name": NAME})
    export_trl(config, tmp_path / "export")
    space: dict[str, Any] = {"__name__": "read"}
    code = (tmp_path / "export" / "train.py").read_text().replace("from lab_trl import train", "")
    exec(compile(code, "train.py", "exec"), space)
    assert space["MODEL"] == config.model and space["LORA"]["target_modules"] == ["q_proj"]
    assert space["ARGUMENTS"] == trl_settings(config)[0]


@pytest.mark.parametrize("method", ["kl_cov", "lp_reg"])
def test_a_term_of_the_loss_is_refused(method: str, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match=f"method: {method} is a term of the loss"):
        export_trl(parse_run({"method": method}), tmp_path / "export")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ({"polarity_by": "sign"}, "polarity_by"),
        ({"method": "cispo", "loss": {"aggregation": "sequence_mean"}}, "loss.aggregation"),
        ({"processes": 3, "group_size": 4, "prompts_per_step": 4}, "processes is 3"),
    ],
)
def test_what_trl_cannot_have_is_refused_by_its_field(own: dict[str, Any], words: str) -> None:
    with pytest.raises(ExportError, match=words):
        trl_settings(parse_run(own))


def test_batches_make_whole_minibatches() -> None:
    for own in ({}, {"updates": {"minibatches": 4, "epochs": 2}}, {"processes": 2}, {"batch_tokens": 300}):
        config: RunConfig = parse_run(own)
        found, _ = trl_settings(config)
        update = found["per_device_train_batch_size"] * found["gradient_accumulation_steps"] * config.processes
        assert update == config.prompts_per_step * config.group_size // config.updates.minibatches
        step = found["per_device_train_batch_size"] * found["steps_per_generation"] * config.processes
        assert step == config.prompts_per_step * config.group_size
        assert found["max_steps"] == config.steps * config.updates.minibatches * config.updates.epochs


def test_what_it_logged_comes_back_with_groups_rewards_and_each_tokens_advantage(trained: Path, tmp_path: Path) -> None:
    """Through `core import`, into a run that passes `check`."""
    assert main(["import", str(trained / "output"), "--runs", str(tmp_path)]) == 0
    (run,) = (path for path in tmp_path.iterdir() if path.is_dir() and not path.name.startswith("."))
    assert not check(run).problems
    manifest = read_manifest(run)
    assert manifest and manifest.convention == "lab.json" and "recomputed so, 100" in manifest.sentence
    with duckdb.connect(run / "rollouts.duckdb", read_only=True) as store:
        stored = store.execute(
            'SELECT step, "group", any_value(reward), list(tokens.imported_advantage ORDER BY position), '
            "list(trainer_logprob ORDER BY position), list(token_id ORDER BY position) "
            'FROM rollouts JOIN tokens USING (step, split, "group", rollout) GROUP BY step, "group", rollout'
        ).fetchall()
    given = {
        (step, tuple(ids), reward): (advantage, logprob)
        for rows in logged(trained)
        for step, ids, reward, advantage, logprob in zip(
            rows["step"], rows["token_ids"], rows["reward"], rows["token_advantage"], rows["trainer_logprob"],
            strict=True,
        )
    }  # fmt: skip
    assert len(stored) == 32
    assert len({(step, group) for step, group, *_ in stored}) == 8
    for step, _, reward, advantage, logprob, ids in stored:
        expected = given[step, tuple(ids), reward]
        np.testing.assert_allclose(advantage, expected[0], rtol=1e-6)
        np.testing.assert_allclose(logprob, expected[1], rtol=1e-6)
