"""JSONL as trainers leave it: torn, mixed, growing, with bytes that are no text. All told with verl's rows."""

import gzip
import json
import os

import pytest

from core.importers.base import LETTERS, ROWS, ImportFailed, Report
from core.importers.formats import _lines as lines
from core.importers.formats import all_formats, find
from core.importers.formats._lines import NO_OBJECT
from tests.core.importers.formats.reading import read, write_lines


def row(text="5", **more):
    return {"input": "2+3?", "output": text, "gts": "5", "score": 1.0, "step": 3, **more}


def later(path):
    """A file's time moves on, as it does when a trainer writes."""
    stat = path.stat()
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000))


def test_a_torn_last_line_is_left_and_read_when_it_is_whole(tmp_path):
    path, done, report = write_lines(tmp_path / "3.jsonl", [row("a")]), {}, Report()
    line = json.dumps(row("b")) + "\n"
    with path.open("a") as handle:
        handle.write(line[:20])
    assert [found["text"] for found in read(path, report, done)] == ["a"]
    assert any("torn" in note for note in report.notes)
    assert done["3.jsonl"].size == path.stat().st_size - 20
    with path.open("a") as handle:
        handle.write(line[20:])
    later(path)
    report = Report()
    assert [found["text"] for found in read(path, report, done)] == ["b"]
    assert not report.notes


def test_a_last_line_without_newline_is_taken_where_it_is_whole(tmp_path):
    path, done = tmp_path / "3.jsonl", {}
    path.write_text(json.dumps(row("a")) + "\n" + json.dumps(row("b")))
    assert [found["text"] for found in read(path, done=done)] == ["a", "b"]
    write_lines(path, [], mode="a")
    with path.open("a") as handle:
        handle.write("\n" + json.dumps(row("c")) + "\n")
    later(path)
    assert [found["text"] for found in read(path, done=done)] == ["c"]


def test_only_what_is_new_is_read_again_and_named_by_its_line(tmp_path):
    path, done = write_lines(tmp_path / "3.jsonl", [row("a"), row("b")]), {}
    read(path, done=done)
    assert done["3.jsonl"].rows == 2
    assert read(path, done=done) == []
    write_lines(path, [row("c"), ["no object"]], mode="a")
    later(path)
    report = Report()
    assert [found["text"] for found in read(path, report, done)] == ["c"]
    assert report.examples == {NO_OBJECT: "3.jsonl, line 4"}
    assert done["3.jsonl"].rows == 3


def test_a_file_that_has_shrunk_is_read_anew(tmp_path):
    path, done = write_lines(tmp_path / "3.jsonl", [row("a"), row("b")]), {}
    read(path, done=done)
    write_lines(path, [row("c")])
    later(path)
    report = Report()
    assert [found["text"] for found in read(path, report, done)] == ["c"]
    assert any("shorter" in note for note in report.notes)


def test_lines_that_are_no_rows_are_refused_and_counted(tmp_path):
    path = tmp_path / "3.jsonl"
    lines = [
        json.dumps(row("a")),
        "{",
        "",
        "[1, 2]",
        "null",
        '"text"',
        "{}",
        "[" * 100_000,
        "9" * 5000,
        json.dumps(row("b")),
    ]
    path.write_text("\n".join(lines) + "\n")
    report = Report()
    assert [found["text"] for found in read(path, report)] == ["a", "b"]
    assert report.refused == {NO_OBJECT: 6, "`output` is missing": 1}
    assert report.examples[NO_OBJECT] == "3.jsonl, line 2"


def test_bytes_that_are_no_utf8_are_replaced_and_noted_once(tmp_path):
    path = tmp_path / "3.jsonl"
    line = json.dumps(row("caf#")).encode().replace(b"#", b"\xe9") + b"\n"
    path.write_bytes(b"\xef\xbb\xbf" + line * 3)
    report = Report()
    assert {found["text"] for found in read(path, report)} == {"caf\ufffd"}
    assert [note for note in report.notes if "UTF-8" in note] == report.notes


def test_lone_surrogates_do_not_stop_the_table(tmp_path):
    path = tmp_path / "3.jsonl"
    path.write_text('{"input": "\\ud800", "output": "a\\udfffb", "score": 1, "step": 1, "\\ud800key": 2}\n')
    found = read(path)[0]
    assert (found["prompt"], found["text"]) == ("\ufffd", "a\ufffdb")
    assert found["traits"] == {"\ufffdkey": 2.0}


@pytest.mark.parametrize("wrong", ["high", [1.0], {"a": 1}, float("inf"), 10**400])
def test_a_reward_of_a_wrong_type_refuses_its_row(tmp_path, wrong):
    path = write_lines(tmp_path / "3.jsonl", [row("a"), row("b", score=wrong)])
    report = Report()
    assert [found["text"] for found in read(path, report)] == ["a"]
    (reason,) = report.refused
    assert reason.startswith("`score` is ")


@pytest.mark.parametrize("empty", [None, float("nan")])
def test_a_reward_that_is_absent_is_null(tmp_path, empty):
    path = write_lines(tmp_path / "3.jsonl", [row("a", score=empty)])
    assert "reward" not in read(path)[0]


@pytest.mark.parametrize("wrong", [-1, 1.5, "x", True, 2**60])
def test_a_step_that_is_none_refuses_its_row(tmp_path, wrong):
    path = write_lines(tmp_path / "3.jsonl", [row("a", step=wrong), row("b", step="4"), row("c", step=5.0)])
    report = Report()
    assert [(found["text"], found["step"]) for found in read(path, report)] == [("b", 4), ("c", 5)]
    assert sum(report.refused.values()) == 1


def test_values_that_are_nested_to_the_edge_refuse_their_row_at_most(tmp_path):
    rows = [
        '{"input": "p", "output": "a", "score": 1, "gts": ' + "[" * deep + "]" * deep + "}" for deep in range(800, 1000)
    ]
    (tmp_path / "3.jsonl").write_text("\n".join(rows) + "\n")
    report = Report()
    assert len(read(tmp_path, report)) + sum(report.refused.values()) == len(rows)


def test_an_empty_file_beside_others_is_noted_and_alone_is_no_import(tmp_path):
    write_lines(tmp_path / "3.jsonl", [row()])
    (tmp_path / "4.jsonl").touch()
    report = Report()
    assert len(read(tmp_path, report)) == 1
    assert report.notes == ["4.jsonl is empty."]
    with pytest.raises(ImportFailed):
        find(tmp_path / "4.jsonl")


def test_a_file_of_garbage_beside_others_is_reported(tmp_path):
    write_lines(tmp_path / "3.jsonl", [row()])
    (tmp_path / "4.jsonl").write_text("<html>\nno JSON\n")
    report = Report()
    assert len(read(tmp_path, report)) == 1
    assert report.refused == {NO_OBJECT: 2}


def test_files_of_another_kind_beside_others_are_left_alone(tmp_path):
    write_lines(tmp_path / "3.jsonl", [row()])
    write_lines(tmp_path / "metrics.jsonl", [{"loss": 1.0}] * 3)
    report = Report()
    assert len(read(tmp_path, report)) == 1
    assert not report.refused


def test_packed_files_are_read_and_read_anew_when_they_change(tmp_path):
    path, done = tmp_path / "3.jsonl.gz", {}
    packed = gzip.compress(b"".join(json.dumps(row(text)).encode() + b"\n" for text in "ab"))
    path.write_bytes(packed)
    assert [found["text"] for found in read(path, done=done)] == ["a", "b"]
    assert done["3.jsonl.gz"].size == len(packed)
    path.write_bytes(packed + gzip.compress(json.dumps(row("c")).encode() + b"\n"))
    later(path)
    assert [found["text"] for found in read(path, done=done)] == ["a", "b", "c"]


def test_a_packed_file_that_ends_early_gives_what_it_has(tmp_path):
    packed = gzip.compress(b"".join(json.dumps(row(os.urandom(50).hex())).encode() + b"\n" for _ in range(2000)))
    (tmp_path / "3.jsonl.gz").write_bytes(packed[: len(packed) // 2])
    report = Report()
    assert 0 < len(read(tmp_path / "3.jsonl.gz", report)) < 2000
    assert any("in the middle" in note for note in report.notes)


def test_a_file_that_is_cut_right_before_it_is_read_gives_no_row_twice(tmp_path, monkeypatch):
    path, done, report = write_lines(tmp_path / "3.jsonl", [row(str(at)) for at in range(8)]), {}, Report()
    assert len(read(path, done=done)) == 8
    later(path)
    found, opened = find(path), lines.opened

    def cut_and_opened(path):
        write_lines(path, [row(str(at)) for at in range(3)])
        return opened(path)

    monkeypatch.setattr(lines, "opened", cut_and_opened)
    (table,) = all_formats()["verl"].read(found, report, done)
    assert table["text"].to_pylist() == ["0", "1", "2"]
    assert any("shorter" in note for note in report.notes)
    assert done["3.jsonl"].size == path.stat().st_size


def test_many_rows_come_in_tables_and_places_follow_them(tmp_path):
    path = write_lines(tmp_path / "3.jsonl", [row(str(at)) for at in range(2 * ROWS + 5)])
    found, done, seen = find(path), {}, 0
    for table in all_formats()["verl"].read(found, Report(), done):
        seen += len(table)
        assert len(table) <= ROWS
        assert done["3.jsonl"].rows == seen
    assert seen == 2 * ROWS + 5
    assert done["3.jsonl"].size == path.stat().st_size


def test_tables_of_long_texts_have_fewer_rows(tmp_path):
    path = write_lines(tmp_path / "3.jsonl", [row(f"{at} {'x' * 1_000_000}") for at in range(80)])
    sizes = [len(table) for table in all_formats()["verl"].read(find(path), Report(), {})]
    assert sum(sizes) == 80
    assert max(sizes) <= LETTERS // 1_000_000 + 1


def test_a_line_of_many_megabytes_is_read(tmp_path):
    path = write_lines(tmp_path / "3.jsonl", [row("x" * 3_000_000), row("b")])
    assert [len(found["text"]) for found in read(path)] == [3_000_000, 1]
