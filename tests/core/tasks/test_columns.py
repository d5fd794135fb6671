"""The columns of a dataset file by their names."""

from __future__ import annotations

import pytest

from core.tasks.columns import likely


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["id", "question", "result"], ("question", "result")),
        (["Problem text", "Correct answer"], ("Problem text", "Correct answer")),
        (["answer", "prompt"], ("prompt", "answer")),
        (["problem", "question", "solution", "answer"], ("question", "answer")),
        (["question_id", "question", "answer_type", "final_answer"], ("question", "final_answer")),
        (["inputText", "groundTruth"], ("inputText", "groundTruth")),
        (["extra_info.index", "reward_model.ground_truth", "prompt"], ("prompt", "reward_model.ground_truth")),
        (["instruction", "input", "output"], ("instruction", "output")),
        (["text", "label"], ("text", "label")),
        (["Questions", "ANSWERS", "notes"], ("Questions", "ANSWERS")),
        (["Frage", "Answer text"], (None, "Answer text")),
        (["eins", "zwei"], (None, None)),
        (["prompt"], ("prompt", None)),
        (["", "123", "Ответ"], (None, None)),
        ([], (None, None)),
    ],
)
def test_the_likeliest_names_are_taken(names: list[str], wanted: tuple[str | None, str | None]) -> None:
    assert likely(names) == wanted
