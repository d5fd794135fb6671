"""verl: the two ways of saying a group, and keys that come late."""

import pyarrow as pa

from core.importers.base import Report
from core.importers.formats import all_formats, find
from tests.core.importers.formats.reading import read, write_lines


def row(prompt, text, **more):
    return {"input": prompt, "output": text, "gts": "5", "score": 0.0, "step": 1, **more}


def groups(rows):
    return [row["group"] for row in rows]


def test_the_group_is_in_the_first_part_of_a_newer_uid(tmp_path):
    uids = ["a_b_0_0", "a_b_1_0", "c_0_0", "c_0_1"]
    rows = read(write_lines(tmp_path / "1.jsonl", [row("same", uid, uid=uid) for uid in uids]))
    assert groups(rows) == ["a_b", "a_b", "c", "c"]
    assert [row["sample"] for row in rows] == uids


def test_a_uid_of_another_kind_is_the_group_itself(tmp_path):
    uids = ["6f9-1", "6f9-1", "0aa-2"]
    rows = read(write_lines(tmp_path / "1.jsonl", [row("same", "x", uid=uid) for uid in uids]))
    assert groups(rows) == uids
    assert "sample" not in rows[0]


def test_without_uid_equal_inputs_are_a_group_wherever_they_stand(tmp_path):
    rows = read(write_lines(tmp_path / "1.jsonl", [row(prompt, "x") for prompt in "abab"]))
    first, second, third, fourth = groups(rows)
    assert first == third != second == fourth


def test_keys_that_appear_late_are_taken_from_there_on(tmp_path):
    rows = [row("p", str(at)) for at in range(21_000)] + [row("p", "late", acc=True, format=0.5, pred="7")]
    found = find(write_lines(tmp_path / "1.jsonl", rows))
    table = pa.concat_tables(all_formats()["verl"].read(found, Report(), {})).select(["correct", "traits"])
    assert table.slice(21_000).to_pylist() == [{"correct": True, "traits": [("format", 0.5)]}]
    assert table.slice(0, 1).to_pylist() == [{"correct": None, "traits": None}]


def test_both_kinds_of_rows_may_stand_in_one_file(tmp_path):
    rows = [row("p", "old"), row("p", "new", uid="q_0_0"), {"input": "p", "output": "bare"}]
    found = read(write_lines(tmp_path / "7.jsonl", rows))
    assert [row["text"] for row in found] == ["old", "new", "bare"]
    assert found[2]["step"] == 7


def test_a_share_that_is_called_acc_is_a_trait_and_no_truth(tmp_path):
    found = read(write_lines(tmp_path / "1.jsonl", [row("p", "a", acc=0.5), row("p", "b", acc=1)]))
    assert "correct" not in found[0] and found[0]["traits"] == {"acc": 0.5}
    assert found[1]["correct"] is True


def test_validation_is_the_eval_split_and_steps_are_in_order(tmp_path):
    for folder in ("rollout", "validation"):
        for step in (2, 10):
            write_lines(tmp_path / folder / f"{step}.jsonl", [row("p", "x", step=step)])
    assert [(row["step"], row["split"]) for row in read(tmp_path)] == [
        (2, "train"), (2, "eval"), (10, "train"), (10, "eval"),
    ]  # fmt: skip


def test_answers_of_any_type_are_text(tmp_path):
    rows = [row("p", "x") | {"gts": answer} for answer in ("5", 5, ["a", "b"], None)]
    found = read(write_lines(tmp_path / "1.jsonl", rows))
    assert [row.get("answer") for row in found] == ["5", "5", '["a", "b"]', None]


def test_a_row_without_output_is_refused(tmp_path):
    report = Report()
    assert len(read(write_lines(tmp_path / "1.jsonl", [row("p", "x"), row("p", None)]), report)) == 1
    assert report.refused == {"`output` is missing": 1}
