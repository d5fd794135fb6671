"""Curves in other tools: off unless asked for, the same numbers, never in the way of training."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from core.config import ConfigError, parse_run
from core.runs import sinks
from core.runs.create import check_machine
from core.runs.sinks import Sinks, named
from tests.needs import need_sinks

METRICS = {
    "reward": 0.5, "pass_at_1": 0.25, "time_step": 2.0, "time": 1e9, "kl": None, "loss": float("nan"), "groups_kept": 3,
    "entropy_source": "sampler", "traits": {"answered": 0.75, "said": None},
}  # fmt: skip
CURVES = {
    "train/reward": 0.5,
    "eval/pass_at_1": 0.25,
    "time/step": 2.0,
    "train/groups_kept": 3.0,
    "traits/answered": 0.75,
}


def fed(run_dir: Path, start: int = 0, steps: int = 3, **asked: object) -> list[str]:
    """What the log has of a run that fed these sinks."""
    said: list[str] = []
    run_dir.mkdir(exist_ok=True)
    feeding = Sinks(run_dir, parse_run({"log_to": asked}), said.append)
    feeding.start(start)
    for step in range(start, start + steps):
        feeding.step(step, METRICS | {"reward": step / 10})
    feeding.close()
    return said


def test_what_is_a_finite_number_has_a_curve():
    assert named(METRICS) == CURVES


def test_nothing_is_started_or_imported_unless_asked_for(tmp_path, monkeypatch):
    monkeypatch.setattr(sinks, "SINKS", {})
    before = threading.active_count()
    assert fed(tmp_path) == [] and threading.active_count() == before


def test_a_package_that_is_missing_is_said_before_anything_starts(monkeypatch):
    monkeypatch.setattr(sinks, "installed", lambda name: False)
    with pytest.raises(ConfigError, match=r"log_to\.wandb: the package wandb is not installed: pip install"):
        check_machine(parse_run({"log_to": {"wandb": True}}))
    check_machine(parse_run({}))


@pytest.mark.parametrize("project", ["", "../x", "a b", "-x", "x" * 65, "a\n"])
def test_a_project_is_a_plain_name(project):
    with pytest.raises(ConfigError, match=r"log_to\.project"):
        parse_run({"log_to": {"project": project}})


def test_a_sink_that_fails_is_left_out_and_the_others_go_on(tmp_path, monkeypatch):
    seen = []

    class Broken:
        def __init__(self, *_):
            self.left = 1

        def log(self, step, values):
            if not self.left:
                raise ConnectionError("the network\nis gone")
            self.left -= 1

        def close(self):
            raise AssertionError("it was left out")

    class Whole:
        def __init__(self, *_): ...

        def log(self, step, values):
            seen.append((step, values["train/reward"]))

        def close(self):
            seen.append("closed")

    def never(*_):
        raise OSError("no disk")

    monkeypatch.setattr(sinks, "SINKS", {"tensorboard": Broken, "wandb": Whole, "trackio": never})
    said = fed(tmp_path, tensorboard=True, wandb=True, trackio=True)
    assert seen == [(0, 0.0), (1, 0.1), (2, 0.2), "closed"]
    assert said == [
        "log_to.trackio: no disk; training goes on without it",
        "log_to.tensorboard: the network is gone; training goes on without it",
    ]


def test_a_slow_sink_holds_nothing_up(tmp_path, monkeypatch):
    held = threading.Event()

    class Slow:
        def __init__(self, *_): ...

        def log(self, step, values):
            held.wait(20)

        def close(self): ...

    monkeypatch.setattr(sinks, "SINKS", {"wandb": Slow})
    monkeypatch.setattr(sinks, "CLOSE_S", 0.1)
    monkeypatch.setattr(sinks, "WAITING", 2)
    assert fed(tmp_path, steps=9, wandb=True) in ([], ["wandb: still busy after 0.1 s, left behind"])
    held.set()


def test_tensorboard_reads_the_numbers_and_a_resumed_run_goes_on(tmp_path):
    need_sinks()
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    run = tmp_path / "run"
    assert fed(run, tensorboard=True) == []
    assert fed(run, start=2, steps=2, tensorboard=True) == []
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    assert set(events.Tags()["scalars"]) == set(CURVES)
    assert [(one.step, round(one.value, 6)) for one in events.Scalars("train/reward")] == [
        (0, 0.0), (1, 0.1), (2, 0.2), (3, 0.3),
    ]  # fmt: skip


def test_wandb_without_a_key_writes_beside_the_run(tmp_path, monkeypatch):
    need_sinks()
    for name in ("WANDB_API_KEY", "WANDB_MODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("NETRC", str(tmp_path / "no-netrc"))
    run = tmp_path / "20260101-000000-grpo-s0-abcd"
    assert fed(run, wandb=True) == []
    (file,) = run.glob("wandb/offline-run-*/*.wandb")
    assert run.name in file.name and b"train/reward" in file.read_bytes()
    assert fed(run, start=2, steps=2, wandb=True) == []
    assert len(list(run.glob(f"wandb/offline-run-*-{run.name}/*.wandb"))) == 2, "two parts of one run, for wandb sync"


def test_trackio_keeps_the_numbers_on_this_machine(tmp_path, monkeypatch):
    need_sinks()
    import trackio.sqlite_storage as storage
    import trackio.utils

    for module in [name for name in sys.modules if name.startswith("trackio")]:
        if hasattr(sys.modules[module], "TRACKIO_DIR"):
            monkeypatch.setattr(sys.modules[module], "TRACKIO_DIR", tmp_path / "trackio")
    assert tmp_path / "trackio" == trackio.utils.TRACKIO_DIR
    assert fed(tmp_path / "a-run", trackio=True, project="mine") == []
    logged = storage.SQLiteStorage.get_logs("mine", "a-run")
    assert [(row["step"], row["train/reward"]) for row in logged] == [(0, 0.0), (1, 0.1), (2, 0.2)]
    assert fed(tmp_path / "a-run", start=3, steps=2, trackio=True, project="mine") == []
    logged = storage.SQLiteStorage.get_logs("mine", "a-run")
    assert [row["step"] for row in logged] == [0, 1, 2, 3, 4], "a resumed run is the same one there"
