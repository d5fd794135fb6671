"""How long a run will take."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.config import parse_run
from core.runs import estimate
from core.runs.create import create_runs
from core.runs.status import read_status, write_status
from core.runs.timing import LOAD_S, estimate_of, work
from tests.core.runs.conftest import experiment


def test_it_grows_with_what_is_sampled(root: Path) -> None:
    base = estimate(parse_run({}), root)
    assert base is not None
    assert 15 < base < 120
    for more in ({"steps": 200}, {"group_size": 16}, {"updates": {"epochs": 3}}, {"evaluate": {"every": 1}}):
        assert (estimate(parse_run(more), root) or 0) > 1.3 * base
    assert (estimate(parse_run({"evaluate": {"every": 0}}), root) or 0) < base


def test_nothing_is_made_up_for_an_unknown_model(root: Path) -> None:
    assert estimate(parse_run({"model": "/some/where"}), root) is None


def test_finished_runs_of_the_same_kind_teach_it(root: Path) -> None:
    (path,) = create_runs(root, experiment(steps=10))
    before = estimate(parse_run({"device": "cpu"}), root)
    status = read_status(path)
    assert status is not None
    write_status(path, {**vars(status), "state": "finished", "step_s": 2.0})
    ran = experiment(steps=10).run
    wanted = parse_run({"device": "cpu", "steps": 30, "group_size": 4})
    assert estimate(wanted, root) == pytest.approx(LOAD_S + 20 * work(wanted) / work(ran))
    assert estimate(parse_run({"device": "cpu"}), root) != before


def test_of_a_folder_without_a_config_nothing_is_known(root: Path) -> None:
    root.mkdir()
    (root / "x").mkdir()
    assert estimate_of(root / "x") is None
