import random
from collections import Counter

import pytest

from core.models import corpus
from core.tasks import get_task
from core.tasks.embedded import Prompt, is_held_out, parse_chain, prompt_of, reduce_once

TASK = get_task("embedded")


def split(example):
    """A written example as (prompt, response), its end-of-sequence left out."""
    text = "".join(example.tokens)
    question, response = text.split("?", 1)
    assert response.endswith(corpus.EOS)
    return prompt_of(parse_chain(question.removesuffix("="))), response.removesuffix(corpus.EOS)


@pytest.fixture(scope="module")
def noisy():
    rng = random.Random(0)
    return [split(corpus.noisy_example(rng)) for _ in range(6000)]


def test_the_same_seed_writes_the_same_text():
    def write(seed):
        rng = random.Random(seed)
        return [corpus.noisy_example(rng) for _ in range(20)]

    assert write(1) == write(1) != write(2)


def test_no_held_out_prompt_is_written(noisy):
    rng = random.Random(0)
    clean = [split(corpus.clean_example(rng))[0].text for _ in range(2000)]
    assert not any(map(is_held_out, clean))
    assert not any(is_held_out(prompt.text) for prompt, _ in noisy)


def test_clean_text_is_right():
    rng = random.Random(0)
    for _ in range(500):
        verdict = TASK.verify(*split(corpus.clean_example(rng)))
        assert verdict.reward == 1 and not verdict.traits["lucky"]
        assert verdict.traits["steps"] == verdict.traits["steps_right"] > 0


def test_single_operations_are_drilled_without_the_words():
    example = corpus.drill_example(random.Random(0))
    prompt, response = split(example)
    result = response.split(" ")[0]
    assert result == prompt.answer
    weighted = [token for token, weight in zip(example.tokens, example.weight, strict=True) if weight]
    assert weighted == [result]


def test_every_token_is_in_the_vocabulary_and_prompts_carry_no_loss():
    rng = random.Random(0)
    for _ in range(1000):
        example = corpus.noisy_example(rng)
        assert set(example.tokens) <= set(corpus.VOCABULARY)
        end = example.tokens.index("?") + 1
        assert set(example.weight[:end]) == {0.0}
        assert set(example.weight[end:]) <= {1.0, corpus.RESULT_WEIGHT} and example.weight[end] == corpus.RESULT_WEIGHT
        assert len(example.tokens) <= 72


def test_manners_come_in_their_shares_and_differ(noisy):
    verdicts = [TASK.verify(prompt, response) for prompt, response in noisy]
    direct = [v for v in verdicts if v.traits["direct"]]
    check = [v for v in verdicts if v.traits["self_check"]]
    steps = [v for v in verdicts if not v.traits["direct"] and not v.traits["self_check"]]
    assert len(direct) / len(noisy) == pytest.approx(corpus.MANNERS["direct"], abs=0.03)
    assert len(check) / len(noisy) == pytest.approx(corpus.MANNERS["check"], abs=0.03)
    assert any(v.traits["wait"] for v in steps)

    def right(some):
        return sum(v.reward for v in some) / len(some)

    assert right(direct) == pytest.approx(corpus.DIRECT_RIGHT, abs=0.04)
    assert right(direct) + 0.1 < right(steps) < right(check) - 0.1


def test_traps_are_a_fixed_share_of_the_sums_and_give_believable_numbers():
    sums = [(a, s, b) for a in range(20) for s in "+-" for b in range(1, 10) if 0 <= corpus.apply(a, s, b) <= 19]
    traps = {key: trap for key in sums if (trap := corpus.trap_of(*key))}
    assert len(traps) / len(sums) == pytest.approx(corpus.TRAP_SHARE, abs=0.03)
    for key, trap in traps.items():
        assert trap.wrong != corpus.apply(*key) and 0 <= trap.wrong <= 19
        assert trap.checking < trap.at_first
    assert len({trap.at_first for trap in traps.values()}) == len(corpus.TRAP_CLASSES)


def test_a_trap_gives_its_own_wrong_number_and_other_sums_rarely_fail(noisy):
    trapped, others = Counter(), Counter()
    for prompt, response in noisy:
        if "check" in response or "wait" in response or response.startswith(corpus.BOX):
            continue
        chain = parse_chain(prompt.text[:-2])
        first = parse_chain(response.split(" ")[0])
        trap = corpus.trap_of(chain[0], *chain[1][0])
        right = first == reduce_once(chain)
        if trap:
            trapped["right" if right else "own" if first[0] == trap.wrong else "other"] += 1
        else:
            others[right] += 1
    assert others[False] / others.total() == pytest.approx(corpus.SLIP, abs=0.02)
    assert trapped["own"] > 4 * trapped["other"]
    average = sum(at_first for at_first, _ in corpus.TRAP_CLASSES) / len(corpus.TRAP_CLASSES)
    assert 1 - trapped["right"] / trapped.total() == pytest.approx(average, abs=0.08)


def test_the_prompt_of_the_docstring_is_readable():
    assert Prompt("7+8-3+6=?", "18") == prompt_of((7, (("+", 8), ("-", 3), ("+", 6))))
