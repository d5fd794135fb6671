import hashlib
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tasks import Prompt, TaskError, get_task, task_names
from core.tasks.embedded import is_held_out, is_own_wording, parse_chain, read_steps, write_chain

TASK = get_task("embedded")
QUESTION = Prompt("7+8-3+6=?", "18")
GOOD = r"15-3+6 so 12+6 then 18 then \boxed{18}"


def test_unknown_task_is_named_in_one_sentence():
    assert task_names()[:3] == ("embedded", "sums", "file")
    with pytest.raises(TaskError, match=r"task\.name: no task is called 'chess'; there is embedded, sums, file, "):
        get_task("chess")


def test_prompts_are_the_same_on_every_machine():
    def digest(prompts):
        return hashlib.sha256("\n".join(f"{p.text} {p.answer}" for p in prompts).encode()).hexdigest()[:16]

    assert digest(TASK.train_pool(128, 0)) == "6ef7313f4c1a92cd"
    assert digest(TASK.train_pool(128, 1)) == "a72b793ea4107c94"
    assert digest(TASK.held_out(256)) == "4440aa4f97a17294"


def test_a_larger_pool_begins_with_a_smaller_one():
    assert TASK.train_pool(128, 3)[:64] == TASK.train_pool(64, 3)
    assert TASK.held_out(64)[:8] == TASK.held_out(8)


def test_pools_and_held_out_prompts_are_distinct_and_disjoint():
    held_out = {prompt.text for prompt in TASK.held_out(1000)}
    assert len(held_out) == 1000
    for seed in range(3):
        pool = {prompt.text for prompt in TASK.train_pool(2000, seed)}
        assert len(pool) == 2000
        assert not pool & held_out
        assert not any(map(is_held_out, pool))


def test_one_prompt_in_five_is_held_out():
    texts = [f"{a}+{b}-{c}=?" for a in range(20) for b in range(1, 10) for c in range(1, 10)]
    assert 0.17 < sum(map(is_held_out, texts)) / len(texts) < 0.23


def test_prompts_are_chains_within_bounds_with_the_right_answer():
    operations = set()
    for prompt in [*TASK.train_pool(500, 0), *TASK.held_out(500)]:
        assert re.fullmatch(r"\d{1,2}([+-][1-9]){2,4}=\?", prompt.text)
        assert eval(prompt.text[:-2]) == int(prompt.answer)
        terms = re.findall(r"[+-]?\d+", prompt.text[:-2])
        totals = [sum(map(int, terms[: i + 1])) for i in range(len(terms))]
        assert min(totals) >= 0 and max(totals) <= 19
        operations.add(len(terms) - 1)
    assert operations == {2, 3, 4}


@pytest.mark.parametrize(
    ("response", "reward"),
    [
        (GOOD, 1),
        (r"\boxed{18}", 1),
        (r"\boxed{18}" + " \n", 1),
        (r"\boxed{018}", 1),
        (r"\boxed{3} \boxed{18}", 1),
        (r"\boxed{17}", 0),
        (r"\boxed{18} \boxed{3}", 0),
        (r"\boxed{18}.", 0),
        (r"\boxed{18} so", 0),
        (r"\boxed{18", 0),
        (r"\boxed{ 18}", 0),
        (r"\boxed{-18}", 0),
        (r"\boxed{18.0}", 0),
        (r"boxed{18}", 0),
        ("18", 0),
        ("", 0),
    ],
)
def test_reward_is_for_the_right_number_boxed_at_the_end(response, reward):
    verdict = TASK.verify(QUESTION, response)
    assert verdict.reward == verdict.correctness == reward
    assert verdict.parts == {"correct": reward}


@pytest.mark.parametrize(
    "response",
    [
        "\\boxed{\u0661\u0668}",  # Arabic-Indic digits
        "\\boxed{\uff11\uff18}",  # full-width digits
        "\\boxed{\u00b9\u2078}",  # superscripts, which str.isdigit accepts
        "\\boxed{18}\x00",
        "\\boxed{18}\u202e",
        "\\boxed{18}\u2028",
        "\ud800\\boxed{1\udfff8}",
        "\\boxed{" + "9" * 100_000 + "}",
        "1" * 1_000_000,
        "\\boxed{" * 50_000,
        "+-" * 500_000,
        "<script>alert(1)</script>\\boxed{<b>18</b>}",
    ],
)
def test_hostile_text_gets_nothing(response):
    assert TASK.verify(QUESTION, response).reward == 0


@given(st.text(st.characters(categories=None)) | st.text("0123456789+-=?\\boxed{} waitchekso", max_size=200))
def test_any_text_gets_a_verdict(response):
    verdict = TASK.verify(QUESTION, response)
    assert verdict.reward in (0, 1)
    assert all(isinstance(value, float) and value >= 0 for value in verdict.traits.values())
    assert verdict.traits["steps_right"] <= verdict.traits["steps"]


@pytest.mark.parametrize(
    ("response", "traits"),
    [
        (GOOD, {"steps": 3, "steps_right": 3, "self_check": 0, "wait": 0, "direct": 0, "lucky": 0, "answered": 1}),
        (r"\boxed{18}", {"steps": 0, "steps_right": 0, "direct": 1, "lucky": 0}),
        (r"15-3+6 so 13+6 wait 12+6 then 18 so \boxed{18}", {"steps": 4, "steps_right": 3, "wait": 1, "lucky": 0}),
        (
            r"14-3+6 so 11+6 so 17 check 15-3+6 so 12+6 so 18 ok \boxed{18}",
            {"steps": 6, "steps_right": 5, "self_check": 1, "lucky": 0},
        ),
        (r"14-3+6 so 12+6 so 18 so \boxed{18}", {"steps": 3, "steps_right": 1, "lucky": 1}),
        (r"15-3+6 so 12+6 so 17 so \boxed{18}", {"steps": 3, "steps_right": 2, "lucky": 1}),
        (r"15-3+6 so \boxed{18}", {"steps": 1, "steps_right": 1, "lucky": 1}),
        (r"15-3+6 so 12+6 so 17 so \boxed{17}", {"steps_right": 2, "lucky": 0}),
        (r"15-3+6 check wait ok \boxed{18}", {"self_check": 0, "wait": 0}),
        (r"15-3+6 so 12+6 so 18 so 18 so \boxed{18}", {"steps": 4, "steps_right": 3, "lucky": 1}),
        ("15-3+6 so 12+6 then", {"answered": 0, "steps": 2, "lucky": 0}),
    ],
)
def test_traits(response, traits):
    found = TASK.verify(QUESTION, response).traits
    assert {name: found[name] for name in traits} == traits


def test_its_own_wording_is_told_from_any_other():
    assert all(is_own_wording(prompt.text) for prompt in get_task("embedded").train_pool(200, 0))
    others = ["7+8-3+6", "7+8-3=? ", "7 + 8 - 3=?", "7=?", "9+9+9=?", "1-2+3=?", "1+12-3=?", "07+8-3=?", "", "٣+٣+٣=?"]
    assert not any(is_own_wording(text) for text in [*others, "7+8-3=?\n", "1+1" * 100_000 + "=?"])


def test_chains_are_read_and_written():
    assert parse_chain("15-3+6") == (15, (("-", 3), ("+", 6)))
    assert write_chain((15, (("-", 3), ("+", 6)))) == "15-3+6"
    for text in ("", "+1", "1+", "1++2", "1-", "1 +2", "1+2=", "1234567890"):
        assert parse_chain(text) is None
    assert read_steps("hello", "1+2").steps_right == 0
