"""TRL: rows that come again, reward functions that come and go, rewards that were not given, messages."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.importers.base import ROWS, ImportFailed, Report
from core.importers.formats import _look as look
from core.importers.formats import all_formats, find
from core.importers.formats.trl import DAMAGED, REPEATED
from tests.core.importers.formats.reading import read


def completions(folder, step, texts, name=None, prompts=None, **columns):
    """What the trainer writes at a step."""
    folder.mkdir(exist_ok=True)
    table = {"step": [step] * len(texts), "prompt": prompts or ["p"] * len(texts), "completion": texts, **columns}
    pq.write_table(pa.table(table), folder / f"completions_{name or step:05d}.parquet")


def batch(step, rows=4):
    return {"texts": [f"{step}: {row}" for row in range(rows)], "right": [float(row % 2) for row in range(rows)],
            "advantage": [float(row) - 1 for row in range(rows)]}  # fmt: skip


def test_a_batch_that_is_logged_at_several_steps_is_taken_once(tmp_path):
    for step in range(4):
        completions(tmp_path, step, **batch(step // 2))
    report = Report()
    rows = read(tmp_path, report)
    assert [(row["step"], row["text"]) for row in rows] == [
        (step, f"{step // 2}: {row}") for step in (0, 2) for row in range(4)
    ]
    assert report.refused == {REPEATED: 8}


def test_the_end_of_the_batch_before_at_the_beginning_of_a_file_is_known(tmp_path):
    first, second = batch(0), batch(1)
    completions(tmp_path, 1, **first)
    completions(tmp_path, 2, **{key: first[key][2:] + second[key][:2] for key in first})
    report = Report()
    assert [row["text"] for row in read(tmp_path, report)] == ["0: 0", "0: 1", "0: 2", "0: 3", "1: 0", "1: 1"]
    assert report.refused == {REPEATED: 2}


def test_the_same_answer_again_is_no_repeat_where_anything_else_differs(tmp_path):
    completions(tmp_path, 1, ["5", "5"], right=[1.0, 1.0], advantage=[0.0, 0.0])
    completions(tmp_path, 2, ["5", "5"], right=[1.0, 0.0], advantage=[0.7, -0.7])
    report = Report()
    assert len(read(tmp_path, report)) == 4
    assert not report.refused


def test_repeats_are_known_within_one_file_of_many_steps(tmp_path):
    rows = 3 * ROWS
    steps = np.repeat(np.arange(rows // 64), 64)
    texts = [f"{step // 2}: {row % 64}" for row, step in enumerate(steps.tolist())]
    table = pa.table({"step": steps, "prompt": ["p"] * rows, "completion": texts, "right": np.ones(rows)})
    pq.write_table(table, tmp_path / "all.parquet")
    report = Report()
    found = read(tmp_path / "all.parquet", report)
    assert len(found) == rows // 2
    assert {row["step"] % 2 for row in found} == {0}
    assert report.refused == {REPEATED: rows // 2}


def test_tables_are_of_bounded_size(tmp_path):
    rows = 10 * ROWS
    table = pa.table({"step": np.arange(rows) // 64, "prompt": ["p"] * rows, "completion": np.arange(rows).astype(str)})
    pq.write_table(table, tmp_path / "all.parquet", row_group_size=rows)
    found = find(tmp_path)
    sizes = [len(table) for table in all_formats()["trl"].read(found, Report(), {})]
    assert sum(sizes) == rows
    assert max(sizes) < 4 * ROWS


def test_tables_of_long_texts_have_fewer_rows(tmp_path):
    rows, long = 800, 100_000
    for step in range(2):
        completions(tmp_path, step, [f"{step}.{row} {'x' * long}" for row in range(rows)], right=[1.0] * rows)
    found = find(tmp_path)
    sizes = [table.nbytes for table in all_formats()["trl"].read(found, Report(), {})]
    assert sum(sizes) > 2 * rows * long
    assert max(sizes) < 1.5 * rows * long, "a step, and no more"


def test_reward_functions_may_come_and_go(tmp_path):
    completions(tmp_path, 9, ["a"], old_reward=[1.0])
    completions(tmp_path, 10, ["b"], new_reward=[2.0], kept_reward=[3.0])
    report = Report()
    assert [row["parts"] for row in read(tmp_path, report)] == [
        {"old_reward": 1.0},
        {"new_reward": 2.0, "kept_reward": 3.0},
    ]
    assert any("`kept_reward`, `new_reward`, `old_reward`" in note and "differ" in note for note in report.notes)


def test_a_reward_that_was_not_given_is_absent_and_not_zero(tmp_path):
    completions(tmp_path, 1, ["a", "b", "c"], code=[None, float("nan"), 1.0], math=[1.0, 0.0, None])
    rows = read(tmp_path)
    assert [row.get("parts") for row in rows] == [{"math": 1.0}, {"math": 0.0}, {"code": 1.0}]
    assert all("reward" not in row for row in rows)


def test_a_column_without_any_value_is_no_reward(tmp_path):
    completions(tmp_path, 1, ["a"], never=[None], math=[1.0])
    assert read(tmp_path)[0]["parts"] == {"math": 1.0}


def test_several_reward_functions_are_noted_for_their_weights_are_not_there(tmp_path):
    completions(tmp_path, 1, ["a"], code=[0.5], math=[1.0])
    report = Report()
    read(tmp_path, report)
    assert any("weighted" in note and "`code`, `math`" in note for note in report.notes)
    completions(tmp_path, 1, ["a"], math=[1.0])
    report = Report()
    read(tmp_path, report)
    assert not report.notes


def test_numbers_behind_other_columns_are_traits(tmp_path):
    completions(tmp_path, 1, ["a"], math=[1.0], extracted=["5"], digits=[3])
    row = read(tmp_path)[0]
    assert row["parts"] == {"math": 1.0}
    assert row["traits"] == {"digits": 3.0}


def test_the_reward_of_early_versions_is_the_reward(tmp_path):
    completions(tmp_path, 1, ["a"], math=[1.0], reward=[0.25])
    row = read(tmp_path)[0]
    assert (row["reward"], row["parts"]) == (0.25, {"math": 1.0})


def test_messages_are_text(tmp_path):
    ask = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2+3?"}]
    completions(tmp_path, 1, [[{"role": "assistant", "content": "5"}], []], prompts=[ask, ask[1:]], right=[1.0, 0.0])
    report = Report()
    row, *others = read(tmp_path, report)
    assert (row["prompt"], row["text"]) == ("system: Be brief.\n\nuser: 2+3?", "5")
    assert not others
    assert sum(report.refused.values()) == 1


def test_messages_with_parts_are_text_too(tmp_path):
    ask = [{"role": "user", "content": [{"type": "image", "text": None}, {"type": "text", "text": "Count."}]}]
    completions(tmp_path, 1, ["3"], prompts=[ask], right=[1.0])
    assert read(tmp_path)[0]["prompt"] == "[image]\nCount."


def test_steps_may_be_text_or_floats_and_others_are_refused(tmp_path):
    for name, steps, texts in (("a", ["3", None, "x"], "abc"), ("b", [4.0, 4.5, -1.0], "def")):
        table = pa.table({"step": steps, "prompt": ["p"] * 3, "completion": list(texts)})
        pq.write_table(table, tmp_path / f"{name}.parquet")
    report = Report()
    assert [(row.get("step"), row["text"]) for row in read(tmp_path, report)] == [(3, "a"), (None, "b"), (4, "d")]
    assert report.refused == {"`step` is no whole number from 0": 3}
    assert report.examples == {"`step` is no whole number from 0": "a.parquet, row 3"}


def test_files_are_read_in_the_order_of_their_steps(tmp_path):
    for step in (10, 9, 100000):
        completions(tmp_path, step, [str(step)], right=[1.0])
    assert [row["step"] for row in read(tmp_path)] == [9, 10, 100000]


def test_steps_that_were_not_logged_are_noted(tmp_path):
    for step in (10, 20, 30):
        completions(tmp_path, step, [str(step)], right=[1.0])
    report = Report()
    read(tmp_path, report)
    assert any("every 10 steps" in note for note in report.notes)
    completions(tmp_path, 11, ["11"], right=[1.0])
    report = Report()
    read(tmp_path, report)
    assert not report.notes


def test_a_damaged_file_beside_whole_ones_is_reported(tmp_path):
    for step in (1, 2, 3):
        completions(tmp_path, step, [str(step)] * 4, right=[1.0] * 4)
    whole = (tmp_path / "completions_00002.parquet").read_bytes()
    (tmp_path / "completions_00002.parquet").write_bytes(whole[:-20])
    (tmp_path / "completions_00003.parquet").write_bytes(whole[:8] + b"\x00" * 40 + whole[48:])
    report = Report()
    assert {row["step"] for row in read(tmp_path, report)} == {1}
    assert report.refused == {DAMAGED: 4}
    assert any("completions_00002.parquet" in note for note in report.notes)


def test_of_many_files_one_without_completions_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(look, "ALIKE", 1)
    completions(tmp_path, 1, ["a"], right=[1.0])
    pq.write_table(pa.table({"step": [2, 2]}), tmp_path / "completions_00002.parquet")
    report = Report()
    assert len(read(tmp_path, report)) == 1
    assert report.refused == {"`completion` is missing": 2}


def test_bytes_that_are_no_text_are_replaced(tmp_path):
    column = pa.Array.from_buffers(pa.string(), 1, pa.array([b"caf\xe9"]).buffers())
    pq.write_table(pa.table({"step": [1], "prompt": ["p"], "completion": column}), tmp_path / "a.parquet")
    report = Report()
    assert read(tmp_path, report)[0]["text"] == "caf\ufffd"
    assert any("no UTF-8" in note for note in report.notes)


BAD_TEXT = pa.Array.from_buffers(pa.string(), 1, pa.array([b"caf\xe9"]).buffers())


@pytest.mark.parametrize(
    "column",
    [
        pa.array([2**62], pa.timestamp("us")),
        pa.array([2**62], pa.duration("s")),
        pa.array([5], pa.timestamp("us", "Nowhere/Nope")),
        pa.StructArray.from_arrays([BAD_TEXT], ["content"]),
    ],
    ids=["a time after all years", "a span of ages", "a zone that is not there", "no UTF-8 within"],
)
def test_values_that_python_has_no_place_for_are_refused(tmp_path, column):
    pq.write_table(pa.table({"step": [1], "prompt": ["p"], "completion": column}), tmp_path / "a.parquet")
    report = Report()
    assert read(tmp_path, report) == []
    assert report.refused == {DAMAGED: 1}


def test_a_column_whose_name_is_no_text_is_a_damaged_file(tmp_path):
    completions(tmp_path, 1, ["a"], right=[1.0])
    file = tmp_path / "completions_00001.parquet"
    file.write_bytes(file.read_bytes().replace(b"completion", b"compl\xe9tion"))
    with pytest.raises(ImportFailed, match="damaged"):
        find(tmp_path)


@pytest.mark.parametrize(
    "own",
    [
        {"token_ids": [[2**40]]},
        {"length": [2**40]},
        {"group": BAD_TEXT},
        {"tokens": pa.ListArray.from_arrays(pa.array([0, 1], pa.int32()), BAD_TEXT)},
    ],
    ids=lambda own: next(iter(own)),
)
def test_the_labs_own_columns_with_what_they_cannot_hold_are_refused(tmp_path, own):
    completions(tmp_path, 1, ["a"], right=[1.0], token_advantage=[[1.0]], **own)
    report = Report()
    assert read(tmp_path, report) == []
    assert report.refused == {DAMAGED: 1}


def test_only_new_files_are_read_again_and_repeats_of_read_ones_are_known(tmp_path):
    done = {}
    completions(tmp_path, 1, **batch(1))
    assert len(read(tmp_path, done=done)) == 4
    assert done["completions_00001.parquet"].rows == 4
    assert read(tmp_path, done=done) == []
    completions(tmp_path, 2, **batch(1))
    completions(tmp_path, 3, **batch(3))
    report = Report()
    assert [row["text"] for row in read(tmp_path, report, done)] == batch(3)["texts"]
    assert report.refused == {REPEATED: 4}


def test_a_parquet_of_something_else_is_not_taken(tmp_path):
    pq.write_table(pa.table({"loss": [1.0]}), tmp_path / "metrics.parquet")
    with pytest.raises(ImportFailed, match="no rollouts of a known format"):
        find(tmp_path)
