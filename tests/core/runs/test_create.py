"""Nothing is created that could not run; what is created is whole."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from core.config import ConfigError, read_run
from core.models.catalog import EMBEDDED_PATH
from core.runs import RunError, create_runs, list_runs, start
from core.runs import create as create_module
from core.runs.status import read_status
from tests.core.runs.conftest import experiment
from tests.needs import need_smollm2


def test_folders_are_whole_when_they_appear(root: Path) -> None:
    paths = create_runs(root, experiment(methods=["grpo", "psr"], name="Two ../methods", look_for="watch"))
    assert [path.parent for path in paths] == [root, root]
    for path, method in zip(paths, ("grpo", "psr"), strict=True):
        assert sorted(child.name for child in path.iterdir()) == ["config.yaml", "status.json"]
        config, status = read_run(path / "config.yaml"), read_status(path)
        assert status is not None
        assert (config.method.name, status.state, status.total) == (method, "queued", 5)
        assert (status.experiment_name, status.look_for) == ("Two ../methods", "watch")
        assert config.experiment is not None
        assert "/" not in config.experiment
    assert not list(root.glob(".*"))


def test_a_run_alone_belongs_to_no_experiment(root: Path) -> None:
    (path,) = create_runs(root, experiment(name="mine", method="a3po"))
    (info,) = list_runs(root, examples=False)
    assert (info.experiment, info.experiment_name, info.name) == (None, "", "mine")
    assert info.label.startswith("A3PO")
    assert path.name.split("-")[2] == "a3po"


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"model": "no-such-org/no-such-model"}, r"^model\b.*no-such-model"),
        ({"model": "/no/such/folder"}, r"^model\b.*/no/such/folder"),
        ({"task": {"name": "riddles"}}, r"^task\.name: .*riddles.*embedded"),
        ({"imported": True}, "^imported: "),
        ({"sampling": {"max_new_tokens": 256}}, r"^sampling\.max_new_tokens is 256, .* at most 256 tokens"),
        (
            {"sampling": {"max_new_tokens": 250}},
            r"^sampling\.max_new_tokens is 250, but the model embedded reads at most 256 tokens and the prompt "
            r"'[0-9+-]+=\?' takes 1[0-9]: lower it to 24[0-9]$",
        ),
        ({"lora": {"targets": ["q_proj", "query"]}}, r"^lora\.targets: .* no linear layer 'query'; choose .*q_proj"),
        ({"lora": {"targets": "query"}}, r"^lora\.targets: .*'query'"),
    ],
)
def test_what_is_missing_is_named_and_nothing_made(root: Path, settings: dict, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        start(root, experiment(**settings))
    assert not root.exists()


def test_cuda_without_a_gpu_is_refused(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(create_module, "has_cuda", lambda: False)
    with pytest.raises(ConfigError, match=r"^device is cuda, but this machine shows no NVIDIA GPU"):
        start(root, experiment(device="cuda"))
    assert not root.exists()


def test_a_full_disk_is_noticed_before(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=50 * 2**20))
    with pytest.raises(RunError, match=r"not enough disk space in .*2 such runs need up to \d+ MB, 50 MB are free"):
        start(root, experiment(seeds=[0, 1]))
    assert not root.exists()


@pytest.mark.parametrize("targets", ["all-linear", "q_proj", ["self_attn.q_proj", "lm_head"], r".*\.q_proj"])
def test_layers_that_the_model_has_are_taken(root: Path, targets: object) -> None:
    assert create_runs(root, experiment(lora={"targets": targets}))


def test_refills_and_probes_need_space_too() -> None:
    def needed(**settings: object) -> int:
        return create_module.bytes_needed(experiment(**settings).expand(None)[0])

    plain = {"group_size": 4, "evaluate": {"every": 0}}
    assert needed(method="dapo", **plain) == 5 * needed(method="grpo", **plain)
    assert needed(method="dapo", **plain, task={"pool_size": 8}) == needed(method="grpo", **plain)
    probed = {"steps": 10, "group_size": 16, "prompts_per_step": 1}
    exams = {"every": 1, "prompts": 8, "rollouts": 2, "k": 2}
    with_probes = needed(**probed, evaluate={**exams, "probes": 8})
    assert with_probes - needed(**probed, evaluate={**exams, "probes": 0}) == 11 * 8 * 16 * 72 * 140


def test_the_longest_response_that_fits_is_taken(root: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        create_runs(root, experiment(sampling={"max_new_tokens": 255}))
    fits = int(str(caught.value).rpartition(" ")[2])
    assert create_runs(root, experiment(sampling={"max_new_tokens": fits}))
    with pytest.raises(ConfigError, match=f"lower it to {fits}"):
        create_runs(root, experiment(sampling={"max_new_tokens": fits + 1}))


def test_a_tokenizer_that_is_none_is_named(root: Path, tmp_path: Path) -> None:
    model = shutil.copytree(EMBEDDED_PATH, tmp_path / "model")
    (model / "tokenizer.json").write_text("{}")
    with pytest.raises(ConfigError, match=r"^model: .*tokenizer\.json is not a tokenizer, or damaged"):
        create_runs(root, experiment(model=str(model)))
    assert not root.exists()


@pytest.mark.parametrize("place", ["a file", "under a file"])
def test_locks_without_a_place_are_noticed_before(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ADVANTAGE_LAB_LOCKS", str(tmp_path / "file" / ("x" if place == "under a file" else "")))
    with pytest.raises(RunError, match=r"file.*: .*; set ADVANTAGE_LAB_LOCKS to a folder of yours"):
        start(root, experiment())
    assert not root.exists()


@pytest.mark.parametrize(
    ("taken", "settings"),
    [
        (80_821_855, {"steps": 3, "prompts_per_step": 2, "group_size": 2, "sampling": {"max_new_tokens": 16}}),
        (141_991_000, {"steps": 20, "prompts_per_step": 8, "group_size": 8, "sampling": {"max_new_tokens": 32}}),
    ],
)
def test_the_disk_of_a_larger_model_counts_its_checkpoints(taken: int, settings: dict) -> None:
    """`taken` is what such runs took, measured."""
    need_smollm2()
    run = experiment(model="smollm2-135m", **settings).run
    assert taken <= create_module.disk_bytes(run) < 3 * taken


def test_more_steps_need_more_space() -> None:
    few, many = (create_module.bytes_needed(experiment(steps=n).run) for n in (10, 1000))
    assert 50 * few < many < 200 * few


def test_a_folder_that_cannot_be_written_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match=r"file/runs: cannot make a run folder there"):
        create_runs(tmp_path / "file" / "runs", experiment())
