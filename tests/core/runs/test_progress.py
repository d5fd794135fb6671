"""Several runs as one bar and one time left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from core.runs import RunInfo, get_run
from core.runs.progress import progress
from tests.synthetic import make_run


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> RunInfo:
    root = tmp_path_factory.mktemp("progress")
    make_run(root, "r", steps=2, prompts=2, group_size=2)
    return replace(get_run(root, "r"), step=0, total=100, eta_s=None, step_s=None, label="GRPO")


def unknown(path: Path) -> None:
    return None


def test_what_runs_says_its_own_and_what_waits_goes_at_its_methods_pace(one: RunInfo) -> None:
    infos = [
        replace(one, id="a", state="finished", step=100, step_s=1.0),
        replace(one, id="b", state="finished", step=100, step_s=3.0, label="NSR"),
        replace(one, id="c", state="running", step=40, step_s=1.0, eta_s=66.0),
        replace(one, id="d", state="queued", label="NSR"),
        replace(one, id="e", state="queued", label="PSR"),
    ]
    now = progress(infos, unknown)
    assert (now.done, now.total) == (240, 500)
    assert now.eta_s == 66 + 300 + 100  # PSR has no pace: the median of 1, 3 and 1
    assert [[info.id for info in part] for part in (now.finished, now.working, now.queued, now.short)] == [
        ["a", "b"], ["c"], ["d", "e"], [],
    ]  # fmt: skip
    assert now.live


def test_before_the_first_step_the_estimate_says(one: RunInfo) -> None:
    infos = [replace(one, id="a", state="loading"), replace(one, id="b", state="queued")]
    assert progress(infos, lambda path: 50.0).eta_s == 100
    assert progress(infos, unknown).eta_s is None


def test_what_ended_early_is_not_waited_for(one: RunInfo) -> None:
    infos = [replace(one, id="a", state="failed", step=5), replace(one, id="b", state="finished", step=100)]
    now = progress(infos, unknown)
    assert (now.done, now.total, now.share, now.eta_s, now.live) == (105, 105, 1.0, 0.0, False)
    assert [info.id for info in now.short] == ["a"]


def test_no_run_is_no_progress() -> None:
    assert progress([]).share == 0
