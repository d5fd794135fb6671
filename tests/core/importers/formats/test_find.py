"""What a path is: by content, and in one sentence where it is nothing."""

import gzip
import io
import json
import pickle
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.importers.base import ImportFailed, Report
from core.importers.formats import _look as look
from core.importers.formats import all_formats, find
from core.importers.formats._look import mended, split_of, step_of
from tests.core.importers.formats.reading import EXAMPLES, read, write_lines


def test_a_path_that_is_not_there_says_so(tmp_path):
    with pytest.raises(ImportFailed, match="is not there"):
        find(tmp_path / "nothing")


def test_a_folder_of_something_else_says_what_is_known(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(ImportFailed, match=r"known format: no file in it ends in \.jsonl, ") as failed:
        find(tmp_path)
    for form in all_formats().values():
        assert form.label in str(failed.value)
    assert "--formats" in str(failed.value)


def parquet(table: pa.Table) -> bytes:
    packed = io.BytesIO()
    pq.write_table(table, packed)
    return packed.getvalue()


@pytest.mark.parametrize("place", ["file", "folder"])
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", b"", "is empty"),
        ("a.jsonl", b"hello", "is neither lines of JSON objects nor Parquet"),
        ("a.json", b"[1, 2]", "is neither lines of JSON objects nor Parquet"),
        ("a.jsonl", b'{"loss": 1, "\xe2\x80\xae<b>": 2}\n', r"begins with an object of 'loss', '\u202e<b>'. Known"),
        ("a.jsonl", json.dumps(dict.fromkeys(range(20))).encode(), "'11' and 8 more"),
        ("a.parquet", parquet(pa.table({"loss": [1.0]})), "has the columns 'loss'. Known"),
        ("a.parquet", parquet(pa.table({})), "has the columns nothing. Known"),
        ("a.parquet", parquet(pa.table({"loss": [1.0]}))[:-9], "cannot be read: it is cut off, damaged or encrypted"),
        ("a.parquet", b"PARE" + bytes(20), "is an encrypted Parquet file"),
        ("a.jsonl.gz", gzip.compress(b"hello", mtime=0), "is a gzip file without JSON objects in it"),
        ("a.jsonl", b"\x28\xb5\x2f\xfd" + bytes(20), "is packed with zstd: unpack it first"),
    ],
    ids=lambda value: value if isinstance(value, str) else "bytes",
)
def test_what_is_there_instead_is_said(tmp_path, place, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ImportFailed) as failed:
        find(tmp_path / name if place == "file" else tmp_path)
    said = str(failed.value)
    assert (
        f"known format: {'it' if place == 'file' else repr(name)} " in said and words in said and "\u202e" not in said
    )


@pytest.mark.parametrize(
    ("name", "place"),
    [
        *((name, "file") for name in ("rollouts.pt", "rollouts.pkl", "rollouts.pickle", "rollouts.bin", "rollouts")),
        *((name, "folder") for name in ("rollouts.pt", "rollouts.pkl", "rollouts.pickle")),
    ],
)
def test_a_pickle_is_refused_and_never_opened(tmp_path, name, place):
    class Runs:
        def __reduce__(self):
            return (open, (str(tmp_path / "was-run"), "w"))

    path = tmp_path / name
    path.write_bytes(pickle.dumps(Runs()))
    with pytest.raises(ImportFailed, match=r"pickle.*runs code.*JSONL or Parquet"):
        find(path if place == "file" else tmp_path)
    assert not (tmp_path / "was-run").exists()


def test_a_torch_archive_is_a_pickle_whatever_its_name(tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02.")
    (tmp_path / "model.bin").write_bytes(packed.getvalue())
    with pytest.raises(ImportFailed, match="pickle"):
        find(tmp_path / "model.bin")


def test_of_two_formats_the_one_with_more_files_is_taken_but_rewards_come_first(tmp_path):
    rows = [{"input": "p", "output": "a", "score": 1.0}]
    write_lines(tmp_path / "verl" / "1.jsonl", rows)
    write_lines(tmp_path / "verl" / "2.jsonl", rows)
    (tmp_path / "one.json").write_bytes((EXAMPLES / "unipo" / "run.json").read_bytes())
    assert find(tmp_path).format == "verl"
    assert find(EXAMPLES / "prime_rl").format == "prime-rl"


def test_links_that_go_round_and_hidden_folders_are_not_followed(tmp_path):
    write_lines(tmp_path / "1.jsonl", [{"input": "p", "output": "a", "score": 1.0}])
    write_lines(tmp_path / ".trash" / "2.jsonl", [{"input": "p", "output": "a", "score": 1.0}])
    (tmp_path / "loop").symlink_to(tmp_path, target_is_directory=True)
    assert [path.name for path in find(tmp_path).files] == ["1.jsonl"]


def test_of_many_files_with_one_kind_of_name_the_first_are_looked_at(tmp_path, monkeypatch):
    monkeypatch.setattr(look, "ALIKE", 3)
    for step in range(8):
        write_lines(tmp_path / f"{step}.jsonl", [{"input": "p", "output": "a", "score": 1.0}])
    (tmp_path / "6.jsonl").write_text("")
    (tmp_path / "7.jsonl").write_text("garbage\n")
    glanced = []
    monkeypatch.setattr(look, "glance", lambda file, real=look.glance: glanced.append(file.name) or real(file))
    report = Report()
    assert len(read(tmp_path, report)) == 6
    assert glanced == ["0.jsonl", "1.jsonl", "2.jsonl", "6.jsonl"]
    assert (sum(report.refused.values()), report.notes) == (1, ["6.jsonl is empty."])


def test_a_whole_disk_is_not_searched(tmp_path, monkeypatch):
    monkeypatch.setattr(look, "MAX_FILES", 3)
    for at in range(5):
        (tmp_path / f"{at}.jsonl").touch()
    with pytest.raises(ImportFailed, match="name the folder"):
        find(tmp_path)


def test_a_first_line_that_is_longer_than_a_glance_is_recognised(tmp_path):
    row = {"step": ["3"] * 50_000, "prompt": ["a prompt"] * 50_000, "completion": ["an answer"] * 50_000}
    path = write_lines(tmp_path / "a.jsonl", [row])
    assert path.stat().st_size > 4 * look.HEAD
    assert find(path).format == "ms-swift"


def test_an_object_over_many_lines_is_recognised(tmp_path):
    run = json.loads((EXAMPLES / "unipo" / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(run, indent=2))
    assert find(tmp_path).format == "unipo"


@pytest.mark.parametrize(
    ("cut", "whole"),
    [
        ('{"a": [1, 2, {"b": "x', {"a": [1, 2, {}]}),
        ('{"a": "with ] and { in it", "b": [', {"a": "with ] and { in it", "b": []}),
        ('{"a": 1, "b": 12', {"a": 1}),
        ('{"a": 1} trailing', {"a": 1}),
        ("{]", None),
        ("no JSON", None),
    ],
)
def test_a_beginning_is_mended_to_what_was_whole(cut, whole):
    assert mended(cut) == whole


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("completions/completions_00012.parquet", 12), ("rollouts/step_7/train/all/traces.jsonl", 7),
        ("iteration_000003/train_rollout_summaries.jsonl", 3), ("rollout/5/17.jsonl", 5), ("12.jsonl", 12),
        ("train_data_step4.jsonl", 4), ("a_rollouts_000001.jsonl", 1), ("run.json", None), ("step-9.jsonl.gz", 9),
    ],
)  # fmt: skip
def test_steps_in_names(name, step):
    assert step_of(name) == step


@pytest.mark.parametrize(
    ("name", "split"),
    [("val/3.jsonl", "eval"), ("eval.jsonl", "eval"), ("eval_top1/a.jsonl", "eval"), ("values/3.jsonl", "train")],
)
def test_splits_in_names(name, split):
    assert split_of(name) == split
