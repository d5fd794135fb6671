"""The edge-case table of the released code, row by row, and the paper's two variants."""

import numpy as np
import pytest

from core.advantage import AdvantageError, build, classify, compute
from tests.core.advantage.batches import batch

ROWS = {
    "longest correct > mean usable wrong": ([1, 1, 0, 0], [5, 9, 8, 9], [0, 0, 0, 0], 1, 1),
    "longest correct < mean usable wrong": ([1, 1, 0, 0], [5, 7, 8, 9], [0, 0, 0, 0], 0.1, 0.1),
    "equal": ([1, 1, 0, 0], [5, 8, 7, 9], [0, 0, 0, 0], 0.1, 0.1),
    "truncated wrong ones left out of the mean": ([1, 1, 0, 0], [5, 9, 8, 20], [0, 0, 0, 1], 1, 1),
    "every wrong one truncated": ([1, 1, 0, 0], [5, 9, 20, 20], [0, 0, 1, 1], 1, 0.1),
    "all correct": ([1, 1, 1, 1], [5, 9, 8, 9], [0, 0, 0, 0], 1, 0.1),
    "none correct": ([0, 0, 0, 0], [5, 9, 8, 20], [0, 0, 0, 1], 0.1, 1),
    "none correct, all truncated": ([0, 0, 0, 0], [20] * 4, [1, 1, 1, 1], 0.1, 1),
}


@pytest.mark.parametrize(("reward", "length", "truncated", "llm", "vlm"), ROWS.values(), ids=ROWS)
def test_weights_of_the_released_code(reward, length, truncated, llm, vlm):
    one = batch([0] * 4, reward, length, truncated)
    for name, weight in (("adora_code_llm", llm), ("adora_code_vlm", vlm)):
        classes = compute(build(name), one).classes
        assert classes.weight.tolist() == [weight]
        assert classes.trained
        uniform = len(set(reward)) == 1
        assert classes.label == ["uniform" if uniform else "favorable" if weight == 1 else "unfavorable"]


@pytest.mark.parametrize(("name", "weight"), [("adora_code_llm", 0.1), ("adora_code_vlm", 1.0)])
def test_none_correct_matters_with_partial_credit(name, weight):
    one = batch([0] * 3, [0.4, 0.2, 0.0])
    trace = compute(build(name), one)
    np.testing.assert_allclose(trace.advantage, compute(build("grpo"), one).advantage * weight, rtol=1e-4)
    assert trace.classes.label == ["unfavorable" if weight < 1 else "favorable"]


# (reward, length, truncated) -> amplify any, amplify all, attenuate
PAPER = {
    "length and difficulty": ([1, 0, 0, 0], [9, 5, 6, 7], [0] * 4, ("favorable", "favorable", "favorable")),
    "length only": ([1, 1, 1, 0], [9, 5, 6, 7], [0] * 4, ("favorable", "unfavorable", "favorable")),
    "difficulty only": ([1, 0, 0, 0], [3, 5, 6, 7], [0] * 4, ("favorable", "unfavorable", "unfavorable")),
    "neither": ([1, 1, 1, 0], [3, 5, 6, 7], [0] * 4, ("unfavorable", "unfavorable", "unfavorable")),
    "none correct": ([0, 0, 0, 0], [3, 5, 6, 7], [0] * 4, ("favorable", "unfavorable", "uniform")),
    "all correct": ([1, 1, 1, 1], [3, 5, 6, 7], [0] * 4, ("unfavorable", "unfavorable", "uniform")),
    "wrong ones truncated": ([1, 1, 1, 0], [3, 5, 6, 20], [0, 0, 0, 1], ("unfavorable", "unfavorable", "uniform")),
}  # fmt: skip
VARIANTS = (("adora_amplify", {"combine": "any"}), ("adora_amplify", {"combine": "all"}), ("adora_attenuate", {}))


@pytest.mark.parametrize(("reward", "length", "truncated", "labels"), PAPER.values(), ids=PAPER)
def test_classes_and_weights_of_the_paper(reward, length, truncated, labels):
    one = batch([0] * 4, reward, length, truncated)
    for (name, params), label in zip(VARIANTS, labels, strict=True):
        classes = compute(build(name, params=params), one).classes
        moved = {"adora_amplify": ("favorable", 2.0), "adora_attenuate": ("unfavorable", 0.1)}[name]
        assert classes.label == [label]
        assert classes.weight.tolist() == [moved[1] if label == moved[0] else 1.0]


@pytest.mark.parametrize(("tau", "label"), [(0.24, "unfavorable"), (0.25, "favorable"), (1, "favorable")])
def test_tau_is_inclusive(tau, label):
    one = batch([0] * 4, [1, 0, 0, 0], [3, 5, 6, 7])
    assert compute(build("adora_amplify", params={"tau": tau}), one).classes.label == [label]
    assert classify(one, tau=tau).label == [label]


def test_classes_hold_their_evidence_in_the_order_of_groups():
    two = batch([5, 2, 5, 2, 5], [1, 1, 0, 1, 0], [9, 4, 6, 8, 20], [0, 0, 0, 0, 1])
    classes = classify(two)
    assert classes.length_advantage == [None, True]
    assert classes.difficulty_advantage == [False, True]
    assert classes.longest_correct.tolist() == [8, 9]
    assert np.isnan(classes.mean_wrong[0]) and classes.mean_wrong[1] == 6
    assert classes.weight.tolist() == [1, 1] and not classes.trained


def test_methods_without_a_prompt_weight_are_classed_as_the_paper_does():
    one = batch([0] * 4, [1, 0, 0, 0])
    classes = compute(build("grpo"), one).classes
    assert classes.label == ["favorable"] and classes.weight.tolist() == [1.0] and not classes.trained


def test_weight_multiplies_the_whole_group():
    two = batch([0, 1, 0, 1], [1, 1, 0, 0], [9, 3, 5, 7])
    trace = compute(build("adora_attenuate", params={"weight": 0.25}), two)
    assert trace.factors[0].per == "group" and trace.factors[0].values.tolist() == [1, 0.25]
    plain = compute(build("grpo"), two).advantage
    np.testing.assert_allclose(trace.advantage, plain * [[1], [0.25], [1], [0.25]])


def test_explained_with_the_prompts_numbers():
    one = batch([0] * 4, [1, 0, 0, 0], [9, 5, 6, 8])
    found = compute(build("adora_amplify"), one).factors[0]
    assert found.explain(2, 0) == (
        "favorable prompt: longest correct 9 > mean wrong 6.33 tokens; 1 of 4 correct (0.25 ≤ τ 0.5)"
    )
    assert found.reason.startswith("1 of 1 prompts weigh 2")


def test_two_prompt_weights_multiply():
    one = batch([0] * 4, [1, 0, 0, 0], [3, 5, 6, 8])
    trace = compute(build("adora_amplify", also=["adora_attenuate"]), one)
    assert trace.classes.weight.tolist() == pytest.approx([0.2])
    assert [factor.id for factor in trace.factors] == ["adora_amplify", "adora_attenuate"]


@pytest.mark.parametrize(("arguments", "words"), [({"combine": "or"}, "any or all"), ({"tau": 2}, "between 0 and 1")])
def test_classify_refuses(arguments, words):
    with pytest.raises(AdvantageError, match=words):
        classify(batch([0], [1]), **arguments)
