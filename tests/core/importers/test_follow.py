"""A run that its trainer is still writing: importing again takes up what is new, and nothing twice."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from core.config import read_run
from core.importers import work as working
from core.importers.formats import all_formats, find
from core.importers.manifest import read_manifest
from core.importers.write import Imported, bring_in
from core.runs import get_run, list_runs
from core.store import StoreError, check, open_runs
from tests.core.importers.formats.reading import write_lines
from tests.core.importers.tables import TABLES, found, step, write


@pytest.fixture
def files(tmp_path: Path) -> Path:
    return tmp_path / "files"


def take(root: Path, files: Path, **more: Any) -> Imported:
    return bring_in(root, TABLES, found(files), **more)


def rows(path: Path, query: str) -> list[dict[str, Any]]:
    with open_runs([path]) as lab:
        return lab.rows(query)


def everything(path: Path) -> dict[str, list[dict[str, Any]]]:
    """All that a run stores, but for where and when."""
    tables = {
        "groups": 'step, split, "group"', "rollouts": 'step, split, "group", rollout', "metrics": "step",
        "tokens": 'step, "group", rollout, position', "summary": "ALL", "strings": "ALL",
    }  # fmt: skip
    return {
        table: [
            {k: v for k, v in row.items() if k != "run"} for row in rows(path, f"SELECT * FROM {table} ORDER BY {by}")
        ]
        for table, by in tables.items()
    }


def test_new_steps_join_the_same_run(root: Path, files: Path) -> None:
    write(files, "0.parquet", **step(0, [[1, 0], [0, 0]]))
    first = take(root, files)
    again = take(root, files)
    assert (again.path, again.followed, again.new_steps, again.report.taken) == (first.path, True, 0, 0)
    write(files, "1.parquet", **step(1, [[1, 0, 1], [0, 1, 0]]))
    write(files, "2.parquet", **step(4, [[1, 1, 0]]))
    more = take(root, files)
    assert (more.path, more.followed, more.new_steps, more.report.taken) == (first.path, True, 2, 9)
    info = get_run(root, more.path.name)
    assert (info.step, info.total, info.state, info.sealed) == (3, 3, "finished", True)
    assert info.created == pytest.approx(first.manifest.imported, abs=5)
    assert read_run(more.path / "config.yaml").steps == 5
    assert [row["step"] for row in rows(more.path, "SELECT step FROM metrics ORDER BY step")] == [0, 1, 4]
    assert (more.manifest.steps, more.manifest.rollouts, more.manifest.compared) == (3, 13, 13)
    assert check(more.path).problems == []
    assert len(list_runs(root)) == 1
    assert read_manifest(more.path) == more.manifest


def test_in_parts_or_at_once_the_run_is_the_same(root: Path, files: Path, tmp_path: Path) -> None:
    """With a last step that was half there, and token texts that get numbers."""
    texts = {"tokens": [["a", "b"], ["b"], ["c", "a", "d"]], "sampler_logprob": [[-1, -2], [-3], [-1, -1, -1]]}
    write(files, "0.parquet", **step(0, [[1, 0, 1]], **texts))
    write(files, "1-rank0.parquet", **step(1, [[1, 0, 0]], group=["a"] * 3, **texts))
    first = take(root, files)
    texts = {"tokens": [["e", "b"], ["b"], ["a"]], "sampler_logprob": [[-1, -2], [-3], [-1]]}
    late = step(1, [[0, 0, 1]], group=["a", "b", "b"], text=["x", "y", "z"], **texts)
    late["prompt"] = ["prompt 1.0", "prompt 1.1", "prompt 1.1"]
    write(files, "1-rank1.parquet", **late)
    write(files, "2.parquet", **step(2, [[1, 0, 1]], **texts))
    second = take(root, files)
    assert (second.path, second.new_steps, second.report.taken) == (first.path, 2, 6)
    sizes = rows(second.path, 'SELECT n FROM groups WHERE step = 1 ORDER BY "group"')
    assert [row["n"] for row in sizes] == [4, 2], "what came late found its group"
    assert check(second.path).problems == []
    whole = take(tmp_path / "other runs", files)
    assert everything(second.path) == everything(whole.path)
    assert second.manifest.lacks == whole.manifest.lacks


def test_a_file_that_is_written_anew_takes_the_place_of_its_rows(root: Path, files: Path) -> None:
    write(files, "0.parquet", **step(0, [[1, 0]]))
    write(files, "1.parquet", **step(1, [[1, 0]]))
    first = take(root, files)
    write(files, "1.parquet", **step(1, [[1, 0], [1, 1], [0, 0]]))
    second = take(root, files)
    assert (second.path, second.new_steps) == (first.path, 1)
    assert rows(second.path, "SELECT count(*) AS n FROM rollouts WHERE step = 1") == [{"n": 6}]
    os.utime(files / "1.parquet", ns=(1, 1))
    third = take(root, files)
    assert (third.new_steps, third.report.refused) == (0, {}), "read again, and nothing is new in it"


def test_new_files_with_nothing_to_take_change_nothing(root: Path, files: Path) -> None:
    write(files, "0.parquet", **step(0, [[1, 0]]))
    first = take(root, files)
    before = everything(first.path)
    write(files, "1.parquet", **step(1, [[float("inf"), float("inf")]]))
    write(files, "2.parquet", **step(0, [[1, 0]]))
    second = take(root, files)
    assert (second.path, second.new_steps, second.report.taken) == (first.path, 0, 0)
    assert second.report.refused == {"the reward is not a finite number": 2, "the same rollout is there twice": 2}
    assert everything(first.path) == before


def test_what_comes_long_after_its_step_is_refused(root: Path, files: Path) -> None:
    for number in range(6):
        write(files, f"{number}.parquet", **step(number, [[1, 0]]))
    take(root, files)
    write(files, "late.parquet", **step(0, [[1, 1]], text=["new", "newer"]))
    write(files, "6.parquet", **step(6, [[1, 0]]))
    made = take(root, files)
    assert made.new_steps == 1
    assert made.report.refused == {"its step was imported before, and more than that is new since": 2}
    assert rows(made.path, "SELECT count(*) AS n FROM rollouts") == [{"n": 14}]


def test_files_begun_anew_other_names_and_other_conventions_are_other_runs(root: Path, files: Path) -> None:
    write(files, "0.parquet", **step(0, [[1, 0], [0, 1], [1, 1]]))
    first = take(root, files)
    named = take(root, files, name="another")
    other = take(root, files, wanted="rloo")
    assert read_run(other.path / "config.yaml").method.name == "rloo"
    assert len({first.path, named.path, other.path}) == 3
    assert take(root, files, wanted="rloo").path == other.path
    assert take(root, files, name="another").path == named.path
    shutil.rmtree(files)
    write(files, "0.parquet", **step(0, [[1, 0]]))
    assert take(root, files).path not in (first.path, named.path, other.path)


@pytest.mark.parametrize("longer", [0, 1, 500])
def test_lines_of_another_training_in_the_same_file_are_another_run(root: Path, files: Path, longer: int) -> None:
    """Also where the file has its old size or more by then: what was read ends with other bytes."""

    def rollouts(word: str, steps: int) -> list[dict[str, Any]]:
        return [
            {"input": "2+3?", "output": f"{word} {at}", "gts": "5", "score": float(at % 2), "step": number}
            for number in range(steps)
            for at in range(4)
        ]

    def bring() -> Imported:
        return bring_in(root, all_formats()["verl"], find(files))

    path = write_lines(files / "all.jsonl", rollouts("one", 2))
    first = bring()
    write_lines(path, rollouts("one", 3)[8:], "a")
    os.utime(path, ns=(1, 1))
    grown = bring()
    assert (grown.path, grown.report.taken) == (first.path, 4)
    write_lines(path, rollouts("two" + "x" * longer, 3))
    os.utime(path, ns=(2, 2))
    anew = bring()
    assert anew.path != first.path
    assert (anew.followed, anew.report.taken, anew.report.notes, anew.report.refused) == (False, 12, [], {})
    assert get_run(root, first.path.name).step == 3


def test_the_convention_stays_and_the_fit_is_over_the_whole_run(root: Path, files: Path) -> None:
    write(files, "0.parquet", **step(0, [[1, 0, 0]]))
    first = take(root, files)
    write(files, "1.parquet", **step(1, [[1, 0, 0], [1, 1, 0], [0, 1, 0]], advantage=[5.0] * 9))
    second = take(root, files)
    assert second.manifest.convention == first.manifest.convention == "grpo-ddof1"
    assert (second.manifest.compared, first.manifest.compared) == (12, 3)
    assert second.manifest.sentence.startswith("None of")
    assert check(second.path).problems == []


def test_an_import_that_breaks_while_it_extends_leaves_the_run_as_it_was(
    root: Path, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(files, "0.parquet", **step(0, [[1, 0]]))
    first = take(root, files)
    before = everything(first.path)
    write(files, "1.parquet", **step(1, [[1, 0]]))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(working.os, "replace", full)
        with pytest.raises(OSError, match="No space"):
            take(root, files)
    assert everything(first.path) == before and check(first.path).problems == []
    assert list(root.glob(".*")) == []
    assert take(root, files).new_steps == 1


def test_one_that_was_killed_right_after_its_move_is_healed(root: Path, files: Path) -> None:
    write(files, "0.parquet", **step(0, [[1, 0]]))
    first = take(root, files)
    old = {name: (first.path / name).read_text() for name in ("import.json", "status.json")}
    write(files, "1.parquet", **step(1, [[1, 0]]))
    second = take(root, files)
    for name, text in old.items():
        (second.path / name).write_text(text)
    third = take(root, files)
    assert (third.path, third.new_steps) == (first.path, 0)
    assert third.manifest.steps == get_run(root, third.path.name).step == 2


def test_a_run_whose_file_is_damaged_says_so(root: Path, files: Path) -> None:
    write(files, "0.parquet", **step(0, [[1, 0]]))
    first = take(root, files)
    (first.path / "rollouts.duckdb").write_bytes(b"not a database")
    with pytest.raises(StoreError, match="not the file of an imported run"):
        take(root, files)
    data = json.loads((first.path / "import.json").read_text())
    (first.path / "import.json").write_text(json.dumps(data)[:40])
    assert read_manifest(first.path) is None
    assert take(root, files).path != first.path, "what says nothing of its origin is not gone on with"
