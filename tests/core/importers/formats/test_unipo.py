"""UNIPO: one large object, lines, and files a step; blueprints; runs that are cut off."""

import json
import tracemalloc

import pytest

from core.importers.base import Report
from core.importers.formats import all_formats, find
from core.importers.formats._stream import AFTER, fields
from core.importers.formats._values import Refused
from tests.core.importers.formats.reading import EXAMPLES, read, write_lines

RUN = json.loads((EXAMPLES / "unipo" / "run.json").read_text())


def save(path, value, **how):
    path.write_text(json.dumps(value, **how))
    return path


@pytest.mark.parametrize("indent", [None, 2])
def test_an_object_of_many_entries(tmp_path, indent):
    run = RUN | {"entries": [RUN["entries"][0] | {"step": step} for step in range(5)]}
    rows = read(save(tmp_path / "run.json", run, indent=indent))
    assert [row["step"] for row in rows] == [step for step in range(5) for _ in range(4)]
    assert rows[0]["trainer_logprob"] == pytest.approx([-0.41, -0.1])
    assert rows[0]["tokens"] == ["5", "<eos>"]


def test_lines_with_a_header(tmp_path):
    lines = [{"type": "header", **RUN["header"]}, {"type": "step", **RUN["entries"][0]}]
    report = Report()
    assert len(read(write_lines(tmp_path / "run.jsonl", lines), report)) == 4
    assert not report.refused


@pytest.mark.parametrize("indent", [None, 1])
def test_files_a_step(tmp_path, indent):
    for step in (2, 10):
        save(tmp_path / f"step-{step}.json", RUN["entries"][0] | {"step": step}, indent=indent)
    assert [row["step"] for row in read(tmp_path)] == [2] * 4 + [10] * 4


def test_entries_without_prompts_have_the_blueprints_or_none(tmp_path):
    bare = {"step": 0, "metrics": {"reward": 1.0}}
    report = Report()
    assert read(save(tmp_path / "a.json", RUN | {"entries": [bare, *RUN["entries"]]}), report)[0]["step"] == 3
    assert any("metrics alone" in note for note in report.notes)
    run = {"header": RUN["header"], "blueprint": {"prompts": RUN["entries"][0]["prompts"]}, "entries": [bare]}
    assert [row["step"] for row in read(save(tmp_path / "b.json", run))] == [0] * 4


def test_one_series_of_logprobs_is_the_samplers_and_chances_become_logprobs(tmp_path):
    run = json.loads(json.dumps(RUN))
    first, second = (answer["tokens"] for answer in run["entries"][0]["prompts"][0]["responses"])
    del first["old_log_probs"]
    del second["old_log_probs"], second["log_probs"]
    second["prob"] = [0.5, 0.0]
    rows = read(save(tmp_path / "a.json", run))
    assert rows[0]["sampler_logprob"] == pytest.approx([-0.41, -0.1])
    assert "trainer_logprob" not in rows[0]
    assert rows[1]["sampler_logprob"] == [pytest.approx(-0.6931, abs=1e-4), None]


def test_a_run_that_is_cut_off_gives_the_entries_before(tmp_path):
    run = json.dumps(RUN | {"entries": [RUN["entries"][0] | {"step": step} for step in range(5)]})
    path = tmp_path / "run.json"
    path.write_text(run[: len(run) * 3 // 5])
    report = Report()
    assert {row["step"] for row in read(path, report)} == {0, 1}
    assert any("in the middle of entry" in note for note in report.notes)


def test_responses_of_wrong_types_are_refused_one_by_one(tmp_path):
    run = json.loads(json.dumps(RUN))
    answers = run["entries"][0]["prompts"][0]["responses"]
    answers[0]["reward"] = "high"
    answers.append("no object")
    run["entries"] += ["no entry", RUN["entries"][0] | {"step": -1}]
    report = Report()
    assert len(read(save(tmp_path / "a.json", run), report)) == 3
    assert sum(report.refused.values()) == 1 + 1 + 1 + 4
    assert report.examples["`reward` is no number"] == "a.json, entry 1, prompt 0, response 0"


def test_entries_are_read_one_at_a_time(tmp_path):
    entry = json.dumps(RUN["entries"][0] | {"filler": "x" * 500_000})
    path = tmp_path / "run.json"
    with path.open("w") as handle:
        handle.write('{"header": {"algorithm": "grpo"}, "entries": [' + ",".join([entry] * 60) + "]}")
    found = find(path)
    tracemalloc.start()
    try:
        assert sum(map(len, all_formats()["unipo"].read(found, Report(), {}))) == 240
        assert tracemalloc.get_traced_memory()[1] < path.stat().st_size / 2
    finally:
        tracemalloc.stop()


def test_unchanged_files_are_not_read_again():
    done = {}
    assert len(read(EXAMPLES / "unipo", done=done)) == 4
    assert done["run.json"].rows == 4
    assert read(EXAMPLES / "unipo", done=done) == []


def parts(text, tmp_path, listed="items"):
    path = tmp_path / "a.json"
    path.write_text(text)
    with path.open("rb") as handle:
        return list(fields(handle, listed))


def test_fields_give_items_one_by_one_and_say_what_follows(tmp_path):
    assert parts(' {"a": 1, "items": [1, {"b": 2}], "c": null} ', tmp_path) == [
        ("a", 1), ("items", 1), ("items", {"b": 2}), ("c", None), (AFTER, False),
    ]  # fmt: skip
    assert parts('{}\n{"a": 1}', tmp_path) == [(AFTER, True)]
    assert parts('{"a": 12345678901234567890}', tmp_path)[0] == ("a", 12345678901234567890)


@pytest.mark.parametrize("text", ["", "[]", '{"a"', '{"a": ', '{"items": [1,', '{"items": [1 2]}', "{1: 2}", '{"a": 1'])
def test_fields_of_no_whole_object_are_refused(text, tmp_path):
    with pytest.raises(Refused):
        parts(text, tmp_path)
