import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tasks.answers import boxed, gold, last_said, marked


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"so \boxed{18}", "18"),
        (r"\boxed{1} then \boxed{ 2 }.", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{3} \boxed{18", "3"),
        (r"\boxed{18", None),
        ("18", None),
        (r"\boxed{}", ""),
        ("\\boxed{" * 50_000, None),
        ("\\boxed{" * 50_000 + "7}", "7"),
    ],
)
def test_the_last_closed_box(text, answer):
    assert boxed(text) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (r"<answer>3</answer> \boxed{4}", "4"),
        ("<answer> 3 </answer> and <ANSWER>5</ANSWER>", "5"),
        ("reasons\n#### 72", "72"),
        ("the answer is 3", None),
        ("<answer>" * 20_000, None),
    ],
)
def test_a_marked_answer(text, answer):
    assert marked(text, "auto") == answer
    assert marked(" whole ", "whole") == "whole"
    assert marked("#### 72", "boxed") is None


def test_answers_of_a_dataset():
    assert gold("She has 3*4=12.\n#### 12") == "12"
    assert gold(" yes ") == "yes"
    assert last_said("The answer is: blue\n") == "blue"
    assert last_said("first\n\nlast ") == "last"
    assert last_said("") == ""


@given(st.text(st.characters(categories=None)) | st.text("\\boxed{} <answr>/#", max_size=300))
def test_any_text_can_be_read(text):
    for read in ("auto", "boxed", "whole"):
        assert marked(text, read) is None or isinstance(marked(text, read), str)
    last_said(text)
