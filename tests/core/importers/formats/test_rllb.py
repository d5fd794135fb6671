"""RLLoggingBoard: padding behind the tokens, ranks side by side, and no column that is sure."""

import pytest

from core.importers.base import Report
from tests.core.importers.formats.reading import read, write_lines


def row(**more):
    return {"prompt": "p", "response": "ab", "response_tokens": ["a", "b"], "logprobs": [-1.0, -2.0], "step": 0, **more}


def test_tokens_behind_the_logprobs_are_padding(tmp_path):
    tokens = ["a", "b", "<pad>", "<pad>"]
    path = write_lines(
        tmp_path / "a.jsonl",
        [row(response_tokens=tokens, ref_logprobs=[-1.5, -2.5, 0.0, 0.0], values=[0.25, 0.75, 9.0, 9.0])],
    )
    found = read(path)[0]
    assert found["tokens"] == ["a", "b"]
    assert found["length"] == 2
    assert found["sampler_logprob"] == [-1.0, -2.0]
    assert found["ref_logprob"] == [-1.5, -2.5]
    assert found["traits"] == {"mean_value": 0.5}


def test_a_list_that_is_too_short_is_left_out_and_noted(tmp_path):
    path = write_lines(tmp_path / "a.jsonl", [row(ref_logprobs=[-1.0])])
    report = Report()
    found = read(path, report)[0]
    assert "ref_logprob" not in found
    assert found["tokens"] == ["a", "b"]
    assert any("`ref_logprob`" in note and "one row" in note for note in report.notes)


def test_no_column_is_sure(tmp_path):
    rows = [
        {"response": "x", "reward": 1.0},
        {"response_tokens": ["a", "b"], "logprobs": [-1.0, -2.0]},
        {"prompt": "p", "response": "x", "token_rewards": [0.0, 0.5]},
        {"reward": 1.0},
    ]
    report = Report()
    found = read(write_lines(tmp_path / "a.jsonl", rows), report)
    assert [row["text"] for row in found] == ["x", "ab", "x"]
    assert [row.get("reward") for row in found] == [1.0, None, 0.5]
    assert all("step" not in row for row in found)
    assert report.refused == {"`response` and `response_tokens` are missing": 1}


def test_ranks_are_read_side_by_side_so_that_steps_are_in_order(tmp_path):
    for rank in range(3):
        rows = [row(step=step, response=f"{rank}") for step in range(4) for _ in range(2)]
        write_lines(tmp_path / f"rollout_data_rank_{rank}.jsonl", rows)
    found = read(tmp_path)
    assert [row["step"] for row in found] == sorted([*range(4)] * 6)
    assert len({row["group"] for row in found}) == 1
    assert len({row["sample"] for row in found}) == 24


def test_lists_with_other_values_are_left_empty_and_the_row_is_kept(tmp_path):
    report = Report()
    found = read(write_lines(tmp_path / "a.jsonl", [row(logprobs=["x", {}]), row(response_tokens=[1, 2])]), report)
    assert [row["text"] for row in found] == ["ab", "ab"]
    assert "sampler_logprob" not in found[0] and "tokens" not in found[1]
    assert len(report.notes) == 2


def test_a_null_among_logprobs_stays_null(tmp_path):
    found = read(write_lines(tmp_path / "a.jsonl", [row(logprobs=[None, -2.0])]))[0]
    assert found["sampler_logprob"] == [None, -2.0]


@pytest.mark.parametrize("name", ["eval.jsonl", "eval_top1/data.jsonl"])
def test_evaluations_are_told_by_their_names(tmp_path, name):
    write_lines(tmp_path / name, [row()])
    assert read(tmp_path)[0]["split"] == "eval"
