import json
import shutil

import pytest
import torch

from core.config import read_run
from core.store.check import check
from core.train import checkpoint, loop
from core.train.loop import train
from core.train.reporter import TrainingError
from tests.core.train.runs import Reporter, configure, contents, rows, run

SETTINGS = {"steps": 4, "updates": {"minibatches": 2}, "evaluate": {"every": 2}}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run that never stopped."""
    return contents(run(tmp_path_factory.mktemp("whole") / "run", **SETTINGS))


class Killed(BaseException):
    pass


def killed_at(step):
    def at(done):
        if done == step:
            raise Killed

    return Reporter(at=at)


@pytest.mark.parametrize("stop_after", [0, 1, 3])
def test_a_stopped_run_resumes_to_the_same_adapter_and_tokens(whole, tmp_path, stop_after):
    path = configure(tmp_path / "run", **SETTINGS)
    assert train(path, Reporter(stop_after)) == "stopped"
    assert (path / "adapter" / "adapter_model.safetensors").is_file()
    reporter = Reporter()
    assert train(path, reporter) == "finished"
    assert reporter.start == (4, stop_after)
    assert contents(path) == whole


@pytest.mark.parametrize("every", [1, 2, 3])
def test_a_killed_run_drops_what_its_checkpoint_lacks_and_ends_the_same(whole, tmp_path, every):
    path = configure(tmp_path / "run", **SETTINGS, checkpoint={"every": every})
    with pytest.raises(Killed):
        train(path, killed_at(2))
    reporter = Reporter()
    train(path, reporter)
    start = 3 - 3 % every
    assert reporter.start == (4, start)
    assert any("resuming after" in line for line in reporter.lines)
    assert any("dropped step" in line for line in reporter.lines) == (start < 3)
    assert contents(path) == whole


def test_killed_between_the_step_and_its_checkpoint(whole, tmp_path, monkeypatch):
    path = configure(tmp_path / "run", **SETTINGS)
    save = checkpoint.save

    def dies(run_dir, state, *rest):
        if state["step"] == 3:
            raise Killed
        save(run_dir, state, *rest)

    monkeypatch.setattr(checkpoint, "save", dies)
    with pytest.raises(Killed):
        train(path, Reporter())
    monkeypatch.setattr(checkpoint, "save", save)
    (path / "steps" / "step=000002").rename(path / ".writing-step=000002")
    reporter = Reporter()
    train(path, reporter)
    assert reporter.start == (4, 2)
    assert contents(path) == whole


def test_killed_before_the_first_checkpoint(whole, tmp_path):
    path = configure(tmp_path / "run", **SETTINGS, checkpoint={"every": 4})
    with pytest.raises(Killed):
        train(path, killed_at(1))
    reporter = Reporter()
    train(path, reporter)
    assert reporter.start == (4, 0)
    assert any("dropped steps 0 to 1" in line for line in reporter.lines)
    assert contents(path) == whole


def test_killed_before_the_final_evaluation(whole, tmp_path, monkeypatch):
    path = configure(tmp_path / "run", **SETTINGS)
    with monkeypatch.context() as patched:
        patched.setattr(loop.Trainer, "finish", lambda self: (_ for _ in ()).throw(Killed()))
        with pytest.raises(Killed):
            train(path, Reporter())
    assert train(path, Reporter()) == "finished"
    assert contents(path) == whole


@pytest.mark.parametrize("optimizer", [{"name": "sgd", "lr": 0.1}, {"name": "adamw", "lr": 0.01, "warmup_steps": 6}])
def test_optimizers_and_dropout_resume_exactly(tmp_path, optimizer):
    settings = {"optimizer": optimizer, "lora": {"r": 4, "dropout": 0.2}, "evaluate": {"every": 0}}
    expected = contents(run(tmp_path / "whole", **settings))
    path = configure(tmp_path / "run", **settings)
    train(path, Reporter(stop_after=2))
    train(path, Reporter())
    assert contents(path) == expected


def test_extending_a_finished_run_goes_on_with_its_schedule(tmp_path):
    method = {"name": "a3po", "set": {"rho_positive": 3}}
    settings = {"method": method, "evaluate": {"every": 2}}
    expected = contents(run(tmp_path / "long", **settings, steps=5, schedule_steps=3))
    path = run(tmp_path / "run", **settings, steps=3)
    assert rows(path, 3, "rollouts", split="eval")
    reporter = Reporter()
    run(configure(path, **settings, steps=5), reporter)
    assert reporter.start == (5, 3)
    assert contents(path) == expected
    assert read_run(path / "config.yaml").schedule_steps == 3
    assert check(path).ok


def test_fewer_steps_than_are_done_is_an_error(tmp_path):
    path = run(tmp_path / "run", evaluate={"every": 0}, steps=2)
    with pytest.raises(TrainingError, match=r"steps is 1, but the run has done 2"):
        train(configure(path, evaluate={"every": 0}, steps=1), Reporter())


def test_another_torch_machine_or_thread_count_is_refused_unless_told(tmp_path):
    path = configure(tmp_path / "run", evaluate={"every": 0}, threads=None)
    train(path, Reporter(stop_after=1))
    state = path / "checkpoint" / "step=1" / "state.json"
    stored = json.loads(state.read_text())
    assert stored["environment"]["threads"] == torch.get_num_threads()
    stored["environment"]["torch"] = "1.0"
    state.write_text(json.dumps(stored))
    with pytest.raises(TrainingError, match=r"torch was 1\.0, now .*checkpoint\.exact: false"):
        train(path, Reporter())
    settings = {"evaluate": {"every": 0}, "checkpoint": {"exact": False}, "threads": 1}
    reporter = Reporter()
    train(configure(path, **settings), reporter)
    assert reporter.start == (3, 1)


def test_the_stored_thread_count_is_used_where_none_is_given(tmp_path):
    path = configure(tmp_path / "run", evaluate={"every": 0}, threads=2)
    train(path, Reporter(stop_after=1))
    torch.set_num_threads(1)
    train(configure(path, evaluate={"every": 0}, threads=None), Reporter(stop_after=0))
    assert torch.get_num_threads() == 2
    with pytest.raises(TrainingError, match="threads was 2, now 1"):
        train(configure(path, evaluate={"every": 0}, threads=1), Reporter())


def test_two_checkpoints_are_kept_and_latest_names_the_newest(tmp_path):
    path = run(tmp_path / "run", steps=4, evaluate={"every": 0})
    folder = path / "checkpoint"
    assert sorted(p.name for p in folder.iterdir()) == ["LATEST", "step=3", "step=4"]
    assert (folder / "LATEST").read_text().strip() == "step=4"
    assert {p.suffix for p in (folder / "step=4").iterdir()} == {".safetensors", ".json"}


def test_a_broken_checkpoint_is_named(tmp_path):
    path = run(tmp_path / "run", steps=1, evaluate={"every": 0})
    good = path / "checkpoint" / "step=1"
    (good / "adapter.safetensors").write_bytes(b"nothing")
    with pytest.raises(TrainingError, match=r"checkpoint/step=1 cannot be read"):
        train(path, Reporter())
    for content in ("[]", '{"step": "x"}', "["):
        (good / "state.json").write_text(content)
        with pytest.raises(TrainingError, match=r"checkpoint/step=1 cannot be read .* older one in checkpoint/LATEST"):
            train(path, Reporter())
    shutil.rmtree(good)
    with pytest.raises(TrainingError, match=r"LATEST names 'step=1', which is no checkpoint"):
        train(path, Reporter())


def test_another_lora_shape_is_named(tmp_path):
    path = run(tmp_path / "run", steps=1, evaluate={"every": 0})
    with pytest.raises(TrainingError, match=r"step=1: .* set lora back"):
        train(configure(path, steps=2, evaluate={"every": 0}, lora={"r": 2}), Reporter())
