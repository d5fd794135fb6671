"""Which folders are runs, and what they say of themselves."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from core.config import dump, parse_run
from core.runs import RunError, folders, get_run, list_runs, runs_root
from core.runs.folders import is_run_id, new_id, slug
from core.runs.status import Status, write_status
from core.store import StoreError, open_runs


def make(folder: Path, created: float = 1.0, **settings: object) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(dump(parse_run(settings)))
    write_status(folder, Status(state="finished", step=2, total=2, created=created, metrics={"reward": 0.25}))
    return folder


@pytest.fixture(autouse=True)
def examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(folders, "EXAMPLES", tmp_path / "shipped")
    return tmp_path / "shipped"


def test_ids_are_readable_sortable_unique_and_safe() -> None:
    ids = [new_id("adora_amplify", 3) for _ in range(200)]
    assert all(is_run_id(id_) for id_ in ids)
    assert len(set(ids)) > 190
    assert "-adora_amplify-s3-" in ids[0]
    assert ids[0][:8] in (time.strftime("%Y%m%d", time.gmtime(time.time() - ago)) for ago in (0, 60))
    assert is_run_id(new_id("../../etc/passwd\x00", 1))


@pytest.mark.parametrize(
    "name", ["presets", "examples", "", ".hidden", "a/b", "..", "a\x00", "a b", "-x", "ü", "x" * 121]
)
def test_names_that_are_no_run(name: str) -> None:
    assert not is_run_id(name)


def test_slugs_are_ascii_and_never_empty() -> None:
    assert slug("Quick start: GRPO & friends!") == "quick-start-grpo-friends"
    assert slug("../..") == slug("東京") == "run"
    assert len(slug("a" * 300)) == 40


def test_the_folder_of_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path / "env"))
    assert runs_root() == tmp_path / "env"
    assert runs_root(tmp_path / "given") == tmp_path / "given"
    monkeypatch.delenv("ADVANTAGE_LAB_RUNS")
    assert runs_root() == folders.REPO / "runs"


def test_newest_first_and_examples_last(root: Path, examples: Path) -> None:
    make(root / "old", created=10)
    make(root / "new", created=20)
    make(examples / "shipped-one", created=30)
    assert [(run.id, run.example) for run in list_runs(root)] == [("new", False), ("old", False), ("shipped-one", True)]
    assert [run.id for run in list_runs(root, examples=False)] == ["new", "old"]


def test_a_run_hides_the_example_of_its_id(root: Path, examples: Path) -> None:
    make(root / "same")
    make(examples / "same")
    (run,) = list_runs(root)
    assert not run.example
    assert get_run(root, "same").path == root / "same"


def test_what_is_not_a_run_is_not_listed(root: Path) -> None:
    make(root / "run")
    make(root / ".new-half")
    make(root / "presets" / "x")
    (root / "empty").mkdir()
    (root / "file").write_text("")
    (root / "presets" / "config.yaml").write_text("steps: 1")
    assert [run.id for run in list_runs(root, examples=False)] == ["run"]


def test_the_examples_own_folder_lists_examples(examples: Path) -> None:
    make(examples / "example")
    assert [run.example for run in list_runs(examples)] == [get_run(examples, "example").example] == [True]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_that_may_not_be_read_breaks_no_list(root: Path) -> None:
    make(root / "open")
    shut = make(root / "shut")
    shut.chmod(0)
    try:
        assert [run.id for run in list_runs(root)] == ["open"]
        with pytest.raises(StoreError, match="may not be read by this user"):
            open_runs([shut])
    finally:
        shut.chmod(0o700)


def test_no_folder_no_runs(tmp_path: Path) -> None:
    assert list_runs(tmp_path / "nowhere", examples=False) == []


def test_a_linked_run_is_listed(root: Path, tmp_path: Path) -> None:
    make(tmp_path / "far" / "run")
    root.mkdir()
    (root / "link").symlink_to(tmp_path / "far" / "run")
    (root / "dangling").symlink_to(tmp_path / "gone")
    assert [run.id for run in list_runs(root, examples=False)] == ["link"]


def test_a_run_says_what_lists_need(root: Path) -> None:
    settings = {"name": "mine", "method": {"name": "a3po"}, "seed": 4, "experiment": "e-1", "imported": True}
    (run,) = list_runs(make(root / "r", **settings).parent, examples=False)
    assert (run.name, run.method, run.seed, run.experiment, run.imported) == ("mine", "a3po", 4, "e-1", True)
    assert (run.model, run.reward, run.pass_at_1, run.step, run.total) == ("embedded", 0.25, None, 2, 2)
    assert run.host_is_here
    assert not run.live


@pytest.mark.parametrize("content", ["", "- 1", "method: [1]\nseed: x\nname: 3\nsteps: true", "a: [", "\x00"])
def test_a_broken_config_breaks_no_list(root: Path, content: str) -> None:
    make(root / "r")
    (root / "r" / "config.yaml").write_text(content)
    (run,) = list_runs(root, examples=False)
    assert (run.method, run.seed, run.state) == ("?", 0, "finished")


def test_a_changed_config_is_read_again(root: Path) -> None:
    make(root / "r", seed=1)
    assert list_runs(root, examples=False)[0].seed == 1
    (root / "r" / "config.yaml").write_text(dump(parse_run({"seed": 23})))
    assert list_runs(root, examples=False)[0].seed == 23


def test_an_imported_run_without_status_counts_as_finished(root: Path) -> None:
    path = make(root / "r", imported=True, steps=9)
    (path / "status.json").unlink()
    (run,) = list_runs(root, examples=False)
    assert (run.state, run.step, run.total, run.error) == ("finished", 9, 9, "")


def test_an_unknown_run_names_the_nearest(root: Path) -> None:
    make(root / "grpo-one")
    with pytest.raises(RunError, match=r"'grpo-onne': no such run in .*did you mean grpo-one"):
        get_run(root, "grpo-onne")
    for hostile in ("../runs", "", "presets", "a\x00b"):
        with pytest.raises(RunError, match="no such run"):
            get_run(root, hostile)
