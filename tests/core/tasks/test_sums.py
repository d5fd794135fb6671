from __future__ import annotations

import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tasks import Prompt, get_task
from core.tasks.sums import is_held_out, prompt_of, read_numbers

TASK = get_task("sums")
QUESTION = prompt_of(8, 13)


def numbers_of(prompt: Prompt) -> tuple[int, int]:
    match = re.fullmatch(r"Add these numbers: (\d+) \+ (\d+)\. Write the sum\.", prompt.text)
    return int(match[1]), int(match[2])


def test_prompts_are_the_same_on_every_machine():
    def digest(prompts):
        return hashlib.sha256("\n".join(f"{p.text} {p.answer}" for p in prompts).encode()).hexdigest()[:16]

    assert digest(TASK.train_pool(128, 0)) == "c27fc3068791da51"
    assert digest(TASK.train_pool(128, 1)) == "45e70b5243d638d1"
    assert digest(TASK.held_out(32)) == "0c5bc0deb29104e7"


def test_no_held_out_sum_is_trained_on_in_either_order():
    pool, held_out = TASK.train_pool(1000, 0), TASK.held_out(1000)
    assert len(pool) + len(held_out) == 15 * 15 and len(pool) >= 128 and len(held_out) >= 32
    pairs = {frozenset(numbers_of(prompt)) for prompt in held_out}
    assert not pairs & {frozenset(numbers_of(prompt)) for prompt in pool}
    assert len({prompt.id for prompt in [*pool, *held_out]}) == 15 * 15
    assert is_held_out(3, 9) == is_held_out(9, 3)


def test_a_larger_pool_begins_with_a_smaller_one():
    assert TASK.train_pool(100, 3)[:40] == TASK.train_pool(40, 3)
    assert TASK.held_out(30)[:8] == TASK.held_out(8)


def test_every_answer_is_the_sum():
    for prompt in [*TASK.train_pool(1000, 0), *TASK.held_out(1000)]:
        assert sum(numbers_of(prompt)) == int(prompt.answer)
        assert TASK.verify(prompt, prompt.answer).reward == 1


@pytest.mark.parametrize(
    "response",
    [
        "21",
        "The sum is 21.",
        "8 + 13 = 21\n",
        "I first said 20, but it is 21!",
        "**21**",
        "21.0",
        " 34-13 is 21",
        "=21",
    ],
)
def test_the_last_number_is_the_answer(response):
    verdict = TASK.verify(QUESTION, response)
    assert (verdict.reward, verdict.correctness, verdict.parts) == (1, 1, {"correct": 1})


@pytest.mark.parametrize(
    "response",
    [
        "", "twenty-one", "20", "-21", "21.5", "121", "211", "1,021", "21 or 22", "8 + 13 = 21, so the sum of 8 and 13",
        "²¹", "٢١", "21e3", "9" * 100_000 + "21", "\x00\ud800", "NaN", "inf", "21" + " 8" * 5000,
    ],
)  # fmt: skip
def test_anything_else_is_wrong(response):
    verdict = TASK.verify(QUESTION, response)
    assert (verdict.reward, verdict.correctness, verdict.parts) == (0, 0, {"correct": 0})


@pytest.mark.parametrize(
    ("response", "traits"),
    [
        ("21", {"answered": 1, "direct": 1, "equation": 0, "said": 1, "ones_right": 1}),
        ("8 + 13 = 21", {"answered": 1, "direct": 0, "equation": 1, "said": 1, "ones_right": 1}),
        ("11.", {"answered": 1, "direct": 1, "equation": 0, "said": 0, "ones_right": 1}),
        ("It is 21, and not 20", {"answered": 1, "direct": 0, "equation": 0, "said": 1, "ones_right": 0}),
        ("Sums are fun", {"answered": 0, "direct": 0, "equation": 0, "said": 0, "ones_right": 0}),
    ],
)
def test_traits(response, traits):
    assert TASK.verify(QUESTION, response).traits == traits


def test_numbers_are_read_with_signs_points_and_thousands():
    assert read_numbers("8-13, -5 and 1,234.5; 3, 4 or 12,34") == [8, 13, -5, 1234.5, 3, 4, 12, 34]


@given(st.text())
def test_hostile_text_never_raises(text):
    verdict = TASK.verify(QUESTION, text)
    assert verdict.reward in (0, 1)
    assert all(value in (0, 1) for value in verdict.traits.values())
