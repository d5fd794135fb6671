"""Files that a browser sends: names that mean nothing to a file system, limits, and what stays behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.importers import dropped
from core.importers.base import ImportFailed
from core.importers.dropped import keep, safe
from core.importers.formats import find
from core.importers.formats._look import split_of, step_of

EXAMPLES = Path(__file__).with_name("formats") / "examples"
HOSTILE = (
    "../../etc/cron.d/job.jsonl", "/etc/passwd.jsonl", "C:\\Windows\\evil.jsonl", "a/../../b.jsonl", "-rf.jsonl",
    "$(rm -rf ~).jsonl",
    "a\x00b.jsonl", "<img src=x onerror=alert(1)>.jsonl", "\u202egpj.jsonl", "\udc80.jsonl", "a" * 4000,
    "/".join("d" * 200 for _ in range(60)) + "/x.jsonl", "a//b///c.jsonl", "CON.jsonl", "🔥.jsonl",
)  # fmt: skip


def files(*names: str, content: bytes = b"{}\n") -> list[tuple[str, int, object]]:
    return [(name, len(content), lambda: content) for name in names]


@given(st.text(max_size=300) | st.sampled_from(HOSTILE))
def test_a_safe_name_stays_in_its_folder_and_is_plain(name: str) -> None:
    found = safe(name)
    if found is not None:
        assert not found.is_absolute() and found.parts and len(found.parts) <= dropped.DEEPEST
        for piece in found.parts:
            assert 0 < len(piece) <= dropped.LONGEST and piece.isascii() and piece not in ("..", ".")
            assert piece[0] not in ".-" and not set(piece) & set("/\\\0 $`;&|<>\"'*?")


def test_hostile_names_are_kept_as_plain_ones(tmp_path: Path) -> None:
    kept = keep(files(*HOSTILE), tmp_path / "files")
    every = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(every) == kept.files and kept.files + kept.left_out == len(HOSTILE)
    assert all(path.resolve().is_relative_to(tmp_path / "files") for path in every)


def test_what_recognition_reads_of_a_name_stays(tmp_path: Path) -> None:
    names = ["run 1/step_3/eval/traces.jsonl", "run 1/step_12/STABLE", "run 1/global_step=7/200.jsonl.gz"]
    kept = keep(files(*names, "run 1/weights.bin", "run 1/.hidden/4.jsonl", "run 1/pytorch.pt"), tmp_path / "files")
    assert (kept.name, kept.files, kept.left_out, kept.pickles) == ("run 1", 3, 2, 1)
    assert kept.bytes == 9
    found = sorted(path.relative_to(kept.path).as_posix() for path in kept.path.rglob("*") if path.is_file())
    assert found == ["run_1/global_step=7/200.jsonl.gz", "run_1/step_12/STABLE", "run_1/step_3/eval/traces.jsonl"]
    assert [step_of(name) for name in found] == [7, 12, 3] and split_of(found[2]) == "eval"


def test_files_of_one_name_keep_it_in_folders_of_their_own(tmp_path: Path) -> None:
    kept = keep(files("3.jsonl", "3.jsonl", "a?/3.jsonl", "a!/3.jsonl", "a", "a/b.jsonl"), tmp_path / "files")
    found = sorted(path.relative_to(kept.path).as_posix() for path in kept.path.rglob("*") if path.is_file())
    assert found == ["3.jsonl", "a/b.jsonl", "a_/3.jsonl", "again-2x/3.jsonl", "again-2x/a_/3.jsonl"]
    assert {step_of(name) for name in found if name.endswith("3.jsonl")} == {3}


@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.iterdir()))
def test_every_example_is_recognised_when_its_folder_is_dropped(tmp_path: Path, example: str) -> None:
    folder = EXAMPLES / example
    every = [path for path in folder.rglob("*") if path.is_file()]
    kept = keep(
        [(path.relative_to(EXAMPLES).as_posix(), path.stat().st_size, path.read_bytes) for path in every],
        tmp_path / "f",
    )
    assert (found := find(kept.path)).format == find(folder).format
    assert len(found.files) == len(find(folder).files)


def test_limits_and_files_that_hold_nothing_are_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(*every: tuple[str, int, object]) -> str:
        with pytest.raises(ImportFailed) as failed:
            keep(every, tmp_path / "files")
        assert not (tmp_path / "files").exists()
        return str(failed.value)

    assert "larger than 200 MB" in refuses(("big.jsonl", 201 * 2**20, bytes))
    assert "larger than 1000 MB" in refuses(*((f"{i}.jsonl", 190 * 2**20, bytes) for i in range(6)))
    assert "On this machine" in refuses(("big.jsonl", 201 * 2**20, bytes))
    assert "can hold rollouts: they end in .jsonl" in refuses(*files("a.bin", "b.exe"))
    assert "Pickles" in refuses(*files("a.pt"))
    monkeypatch.setattr(dropped, "MOST_FILES", 2)
    assert "3 files are too many" in refuses(*files("1.jsonl", "2.jsonl", "3.jsonl"))

    def broken() -> bytes:
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        keep([("a.jsonl", 1, lambda: b"{}"), ("b.jsonl", 1, broken)], tmp_path / "files")
    assert not (tmp_path / "files").exists()


def test_a_single_file_may_have_any_ending(tmp_path: Path) -> None:
    kept = keep(files("rollouts.log"), tmp_path / "files")
    assert kept.path.name == "rollouts.log" and kept.name == "rollouts"
    kept = keep([("homework.csv", 1, lambda: b"x"), ("mine.jsonl", 1, lambda: b"x")], tmp_path / "two")
    assert kept.name == "mine"  # not what was left out
