from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tasks import Prompt
from core.tasks.puzzles import Countdown, KnightsKnaves, value_of

ISLAND = Prompt("?", "Amelia is a hero, and Elizabeth is a villain.")
TARGET = Prompt("?", "94*4 - 61 - 6 = 309")


@pytest.mark.parametrize(
    ("response", "correct", "people"),
    [
        ("Amelia is a hero, and Elizabeth is a villain.", 1, 1),
        (r"Suppose Amelia is a villain. No. \boxed{Elizabeth is a villain, Amelia is a hero}", 1, 1),
        ("Amelia is a hero. Amelia is a villain. Elizabeth is a villain", 0, 0.5),
        ("Amelia is a hero", 0, 0.5),
        ("Nobody knows", 0, 0),
        ("", 0, 0),
    ],
)
def test_who_is_a_knight(response, correct, people):
    judged = KnightsKnaves().judge(ISLAND, response)
    assert (judged.correctness, judged.traits["people_right"]) == (correct, people)


@pytest.mark.parametrize(
    ("response", "correct", "numbers"),
    [
        ("94*4 - 61 - 6", 1, 1),
        ("(4 × 94) − 6 − 61 = 309", 1, 1),
        (r"I tried 94+4. \boxed{94 \times 4 - 61 - 6}", 1, 1),
        ("We get:\n4*94-67", 0, 0),
        ("94*4 - 61 + 6", 0, 1),
        ("309", 0, 0),
        ("94*4*61*6", 0, 1),
        ("94/0 - 61 - 6 * 4", 0, 0),
        ("__import__('os').system('true') + 94*4 - 61 - 6", 0, 0),
        ("94**4", 0, 0),
        ("", 0, 0),
    ],
)
def test_countdown(response, correct, numbers):
    judged = Countdown().judge(TARGET, response)
    assert (judged.correctness, judged.traits["numbers_right"]) == (correct, numbers)


def test_what_a_sum_comes_to():
    assert value_of("(7 - 1) / 4")[0] == Fraction(3, 2)
    assert value_of("-(2)*3")[0] == -6
    for text in ("", "2**9", "a+1", "1.5", "True", "f(1)", "1/0", "(" * 150, "1+" * 150, "[1]", "1;2"):
        assert value_of(text) is None


@given(st.text("0123456789+-*/() =.\\boxed{}a", max_size=250))
def test_any_response_is_judged(response):
    assert Countdown().judge(TARGET, response).correctness in (0, 1)
    assert KnightsKnaves().judge(ISLAND, response).correctness in (0, 1)
