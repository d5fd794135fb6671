"""The same text, number or letter, and what a pattern finds; no pattern and no text holds the trainer up."""

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tasks import Prompt, TaskError
from core.tasks.patterns import Regex
from core.tasks.verifiers import Choice, Exact, Numeric, letter_of, numbers_in


def right(verifier, answer, response):
    return verifier.judge(Prompt("?", answer), response).correctness == 1


@pytest.mark.parametrize(
    ("answer", "response", "same"),
    [
        ("Paris", "Paris", True),
        ("Paris", " paris. ", True),
        ("Paris", r"I think \boxed{Paris}", True),
        ("Paris", "The answer is **Paris**.", True),
        ("Paris", "<answer>Paris</answer> or London", True),
        ("New  York", "Answer: New York", True),
        ("Paris", "London\nParis", True),
        ("Paris", "Paris or London", False),
        ("Paris", r"Paris \boxed{London}", False),
        ("Paris", "", False),
        ("work #### 12", "12", True),
    ],
)
def test_exact(answer, response, same):
    assert right(Exact(), answer, response) is same


def test_exact_can_mind_case_and_boxes():
    assert not right(Exact(ignore_case=False), "Paris", "paris")
    assert not right(Exact("boxed"), "Paris", "Paris")
    assert right(Exact("whole"), "a b", "a  b")
    assert not right(Exact("whole"), "b", "a\nb")
    assert Exact().problem(" . ") == "no answer"


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("1,234.50 dollars", [Fraction("1234.5")]),
        ("$7, then −3 km/h", [7, -3]),
        ("-$5", [-5]),
        ("1e3 and 2.5E-1", [1000, Fraction(1, 4)]),
        ("3/4 cup", [Fraction(3, 4)]),
        (r"\frac{3}{4} and -\frac{1}{2}", [Fraction(3, 4), Fraction(-1, 2)]),
        ("50%", [50]),
        (".5", [Fraction(1, 2)]),
        ("1, 2, 3", [1, 2, 3]),
        ("12,34", [12, 34]),
        ("3/0", []),
        ("x2 v1.5", []),
        ("10-7", [10, 7]),
        ("1 000 000", [1_000_000]),
        ("none", []),
    ],
)
def test_numbers_as_people_write_them(text, numbers):
    found = numbers_in(text)
    assert found == numbers or (text == "10-7" and found == [10, -7])


@pytest.mark.parametrize(
    ("answer", "response", "same"),
    [
        ("1234", "It costs $1,234.00 in all", True),
        ("5 km", r"\boxed{5\text{ m}}", True),
        ("0.5", r"\boxed{1/2}", True),
        ("72", "Natalia sold 48+24 = 72 clips", True),
        ("72", "72 then 73", False),
        ("72", r"\boxed{72} of 100", True),
        ("-3", "−3", True),
        ("9 #### 8", "8", True),
        ("3.14159", "3.14", False),
        ("7", "", False),
        ("7", "seven", False),
        ("7", "7" * 100_000, False),
    ],
)
def test_numeric(answer, response, same):
    assert right(Numeric(), answer, response) is same


def test_a_tolerance_is_a_share_of_large_numbers_and_a_distance_of_small_ones():
    loose = Numeric(tolerance=0.01)
    assert right(loose, "1000", "1009") and not right(loose, "1000", "1011")
    assert right(loose, "0.02", "0.029") and not right(loose, "0.02", "0.031")
    assert not right(Numeric("boxed"), "7", "7")
    assert Numeric().problem("blue") == "the answer is no number"


@pytest.mark.parametrize(
    ("response", "letter"),
    [
        ("B", "B"),
        ("b", "B"),
        ("(B)", "B"),
        ("B.", "B"),
        ("B) because it is red", "B"),
        ("**B**", "B"),
        (r"\boxed{B}", "B"),
        (r"\boxed{\text{B}}", "B"),
        (r"\boxed{(B) red}", "B"),
        ("<answer>B</answer>", "B"),
        ("The answer is B.", "B"),
        ("The correct answer is: (B)", "B"),
        ("Answer: **B**", "B"),
        ("It is not (A), so (B)", "B"),
        ("First A, answer: A. No, the answer is B", "B"),
        ("I would go for option B", "B"),
        ("Reasons go here.\n\nB", "B"),
        ("A dog is an animal", None),
        ("The answer is a dog", None),
        ("Because", None),
        ("F", None),
        ("", None),
        ("A or B", None),
    ],
)
def test_the_letter_that_a_response_chooses(response, letter):
    assert Choice().said(response) == letter
    assert right(Choice(), "B", response) is (letter == "B")


def test_the_answer_of_a_choice_is_a_letter():
    assert [letter_of(text) for text in ("C", " (c) ", "C. red", "Cat", "7")] == ["C", "C", "C", None, None]
    assert Choice().problem("7") == "the answer is no letter A to E"
    assert Choice().problem("(D)") == ""
    assert not right(Choice("boxed"), "B", "The answer is B")


def test_a_patterns_last_match_is_the_answer():
    says = Regex(r"Answer: (\w+)")
    assert right(says, "blue", "Answer: red. Answer: BLUE.")
    assert not right(says, "red", "Answer: red. Answer: BLUE.")
    assert right(Regex(r"\d+$", ignore_case=False), "42", "it is 42")
    assert says.judge(Prompt("?", "x"), "nothing").traits == {"answered": 0, "timed_out": 0}


@pytest.mark.parametrize("pattern", ["(", "[a", "(?P<x>a)(?P<x>b", "(" * 5000])
def test_what_is_no_pattern_is_one_sentence(pattern):
    with pytest.raises(TaskError, match=r"^task\.verify\.pattern: .* is no regular expression \("):
        Regex(pattern)


def test_no_pattern_at_all():
    with pytest.raises(TaskError, match=r"^task\.verify\.pattern is empty"):
        Regex("")


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"^(([a-z])+.)+[A-Z]([a-z])+$", "a" * 8000),
        (r"(\w+\s?)*\d$", "word " * 2000),
        (r"((((a{1,1000}){1,1000}){1,1000}){1,1000})b", "a" * 8000),
    ],
)
def test_a_catastrophic_pattern_is_stopped_and_counted(pattern, text):
    started = time.process_time()
    judged = Regex(pattern, seconds=0.1, ignore_case=False).judge(Prompt("?", "x"), text)
    assert time.process_time() - started < 5
    assert judged.correctness == 0 and judged.traits == {"answered": 0, "timed_out": 1}


@given(st.text(st.characters(categories=None)) | st.text("0123456789,.-/$ABE()answer is:\\boxed{}", max_size=200))
def test_any_text_is_judged(response):
    for verifier, answer in ((Exact(), "x"), (Numeric(), "3"), (Choice(), "B"), (Regex(r"(\d+)"), "3")):
        assert verifier.judge(Prompt("?", answer), response).correctness in (0, 1)


@pytest.mark.parametrize(
    "text", ["1," * 500_000, "\\frac{" * 200_000, "-" * 1_000_000, "( A " * 300_000, "9 " * 400_000]
)
def test_long_hostile_text_is_judged_at_once(text):
    started = time.process_time()
    for verifier, answer in ((Exact(), "x"), (Numeric(), "3"), (Choice(), "B"), (Regex(r"(\d+)"), "3")):
        verifier.judge(Prompt("?", answer), text)
    assert time.process_time() - started < 2
