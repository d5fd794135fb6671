"""NeMo-RL: lists of one, padding, the prompt's part, and prompts that lie in one string with their responses."""

import pytest

from core.importers.base import Report
from core.importers.formats._joined import group_by_text
from tests.core.importers.formats.reading import read, write_lines


def row(content, prompt=(1, 2), response=(3, 4), padding=2, **more):
    size, pad = len(prompt) + len(response), [0] * padding
    return {
        "content": [content], "rewards": [1.0], "input_lengths": [size], "token_ids": [[*prompt, *response, *pad]],
        "token_loss_mask": [[0] * len(prompt) + [1] * len(response) + pad], "sample_loss_mask": [1.0],
        "advantages": [[0.5] * (size + padding)], "generation_logprobs": [[-1.0] * (size + padding)],
        "prev_logprobs": [[-2.0] * (size + padding)], **more,
    }  # fmt: skip


def read_rows(tmp_path, rows, report=None):
    return read(write_lines(tmp_path / "train_data_step12.jsonl", rows), report)


def test_lists_of_one_are_opened_and_prompt_and_padding_cut(tmp_path):
    found = read_rows(tmp_path, [row(["2+3?", "5"])])[0]
    assert found["step"] == 12
    assert found["reward"] == 1.0
    assert found["token_ids"] == [3, 4]
    assert found["sampler_logprob"] == [-1.0, -1.0]
    assert found["trainer_logprob"] == [-2.0, -2.0]
    assert found["token_advantage"] == [0.5, 0.5]
    assert found["kept"] == [True, True]
    assert (found["prompt"], found["text"]) == ("2+3?", "5")


def test_a_mask_that_reaches_into_the_padding_is_cut_at_the_length(tmp_path):
    wrong = row(["p", "r"]) | {"token_loss_mask": [[0, 0, 1, 1, 1, 1]]}
    assert read_rows(tmp_path, [wrong])[0]["length"] == 2


def test_a_sample_that_is_masked_out_is_kept_in_no_token(tmp_path):
    assert read_rows(tmp_path, [row(["p", "r"], sample_loss_mask=[0.0])])[0]["kept"] == [False, False]


def test_turns_of_a_tool_stay_in_the_response(tmp_path):
    found = read_rows(tmp_path, [row(["p", "call", "result", "answer"])])[0]
    assert found["prompt"] == "p"
    assert found["text"] == "call\n\nresult\n\nanswer"


def test_groups_of_joined_strings_are_read_off_the_prompts_ids(tmp_path):
    rows = [row("What is it? a", (1, 2), (3,)), row("What is it? b", (1, 2), (4,)),
            row("What is that? a", (1, 5), (3,)), row("What is that? ab", (1, 5), (3, 4))]  # fmt: skip
    report = Report()
    found = read_rows(tmp_path, rows, report)
    assert [row["group"] for row in found] == ["0", "0", "1", "1"]
    assert found[0]["prompt"] == "What is it? "
    assert found[1]["text"] == "What is it? b"
    assert any("one string" in note for note in report.notes)


def test_without_ids_groups_of_joined_strings_are_read_off_the_texts(tmp_path):
    rows = [{"content": [f"Question {prompt}? answer {at}"], "rewards": [1.0], "input_lengths": [9]}
            for prompt in ("one", "two", "three") for at in range(4)]  # fmt: skip
    found = read_rows(tmp_path, rows)
    assert [row["group"] for row in found] == ["0"] * 4 + ["1"] * 4 + ["2"] * 4
    assert found[0]["prompt"] == "Question one? answer "
    assert "token_ids" not in found[0]


@pytest.mark.parametrize(
    ("texts", "groups"), [([], []), (["a"], [0]), (["a", "b", "c"], [0, 1, 2]), (["x"] * 4, [0, 1, 2, 3])]
)
def test_where_no_size_stands_out_each_row_is_a_group(texts, groups):
    assert group_by_text(texts) == groups


def test_masks_and_ids_of_other_types_leave_the_tokens_out(tmp_path):
    rows = [row(["p", "r"], token_ids=["x"]), row(["p", "r"], token_loss_mask=[[1]]), row(["p", "r"], rewards=["x"]),
            {"rewards": [1.0], "content": None, "generation_logprobs": [1]}]  # fmt: skip
    report = Report()
    found = read_rows(tmp_path, rows, report)
    assert ["token_ids" in row for row in found] == [False, False]
    assert sum(report.refused.values()) == 2


def test_validation_is_the_eval_split(tmp_path):
    assert read(write_lines(tmp_path / "val_data_step2.jsonl", [row(["p", "r"])]))[0]["split"] == "eval"
