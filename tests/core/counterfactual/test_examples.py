"""The blackboard's examples show what they say they show."""

import json
from pathlib import Path

import numpy as np
import pytest

from core.advantage import batch_from_json
from core.counterfactual import Spec, answer, compare
from core.counterfactual.examples import EXAMPLES, PROBABILITIES

GOLDEN = json.loads((Path(__file__).parents[1] / "advantage" / "golden.json").read_text())
PARTIAL = [entry for entry in GOLDEN if entry["kind"] == "partial_credit"]


def answers(name):
    """The example's batch and its methods' answers, in order."""
    batch = batch_from_json(EXAMPLES[name].batch)
    return batch, [answer(Spec.parse(spec).build(), batch) for spec in EXAMPLES[name].methods]


def traces(name):
    batch, found = answers(name)
    return batch, [each.trace for each in found]


def row_of_the_table(correct, length, truncated):
    """Which of the six rows a group stands in, from what ADORA's code looks at."""
    wrong = ~correct
    if not wrong.any():
        return "all correct"
    if not correct.any():
        return "none correct, all truncated" if truncated.all() else "none correct, some not truncated"
    if truncated[wrong].all():
        return "every wrong one truncated"
    longer = length[correct].max() > length[wrong & ~truncated].mean()
    return "longest correct > mean wrong" if longer else "longest correct = mean wrong"


def rows_of_golden():
    """(row, weight of the language-model code, weight of the vision-language code) of every partial-credit group."""
    for entry in PARTIAL:
        given, n = entry["inputs"], len(entry["adora_llm_code_group_weight"])
        group, vlm = np.array(given["group"]), np.array(entry["advantage"]["adora_vlm_code_weight"])
        correct, length = np.array(given["reward"]) > 0.5, np.array(given["length"])
        for g in range(n):
            own = group == g
            row = row_of_the_table(correct[own], length[own], np.array(given["truncated"])[own])
            yield row, entry["adora_llm_code_group_weight"][g], vlm[own][0]


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_a_batch_that_its_methods_take(name):
    example = EXAMPLES[name]
    assert json.loads(json.dumps(example.batch, allow_nan=False)) == example.batch
    batch, found = traces(name)
    assert len(example.prompts) == len(batch.groups) and 2 <= len(found) <= 4
    assert all(np.isfinite(trace.advantage).all() for trace in found)
    assert len({trace.method.label + str(trace.method.base.params) for trace in found}) == len(found)
    assert set(np.exp(batch.sampler_logprob[batch.mask]).round(6)) <= set(PROBABILITIES)
    assert example.name == name and example.look.endswith(".") and example.title


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_opens_on_two_methods_that_part(name):
    example = EXAMPLES[name]
    batch, found = answers(name)
    first, second = map("ABCD".index, example.diff.split("-"))
    pair = compare(found[second], found[first], batch)
    assert first < second and (pair.changed.any() or pair.moved > 0.2)  # others average equal advantages otherwise
    assert example.scope == ("step" if len(example.prompts) > 1 else "group")


def test_adora_weights_are_goldens_row_by_row():
    batch, (_, llm, vlm, _) = traces("adora_edges")
    rows = [
        row_of_the_table(batch.correct[own], batch.length[own], batch.truncated[own])
        for own in (batch.group == g for g in batch.groups)
    ]
    assert rows == list(EXAMPLES["adora_edges"].prompts) and len(set(rows)) == 6
    golden = {row: (llm_weight, vlm_weight) for row, llm_weight, vlm_weight in rows_of_golden()}
    assert set(golden) == set(rows)
    assert list(zip(llm.classes.weight, vlm.classes.weight, strict=True)) == [golden[row] for row in rows]
    assert (llm.classes.weight == vlm.classes.weight).tolist() == [True, True, False, False, False, False]


def test_adora_every_row_matters_with_partial_credit():
    batch, (grpo, llm, vlm, _) = traces("adora_edges")
    for g in batch.groups:
        own = batch.mask & (batch.group == g)[:, None]
        assert np.abs(grpo.advantage[own]).max() > 0.5
    unsolved = batch.mask & (batch.group >= 4)[:, None]
    np.testing.assert_allclose(vlm.advantage[unsolved], 10 * llm.advantage[unsolved], rtol=1e-4)


def test_one_right_of_four_under_three_conventions():
    _, found = traces("one_right")
    assert [trace.advantage[0, 0] for trace in found] == pytest.approx([1.4997, 1.73205, 0.75], abs=1e-4 / 2)
    for trace in found:
        np.testing.assert_allclose(trace.advantage[1:, 0], -trace.advantage[0, 0] / 3)


def test_all_correct_is_dropped_or_reinforced():
    _, (grpo, dapo, pm1) = traces("all_correct")
    assert not grpo.advantage.any() and grpo.kept.any()
    assert not dapo.advantage.any() and not dapo.kept.any()
    assert (pm1.advantage[pm1.kept] == 1).all()


def test_all_wrong_doubles_nothing():
    _, (grpo, adora, dapo, nsr) = traces("all_wrong")
    assert adora.classes.weight.tolist() == [2] and adora.classes.label == ["favorable"]
    assert not grpo.advantage.any() and not adora.advantage.any() and not dapo.kept.any()
    assert (nsr.advantage[nsr.kept] == -1).all() and nsr.kept.any(axis=1).all()


def test_the_longest_wrong_has_another_say_under_each_average():
    batch, found = answers("longest_wrong")
    assert batch.length.argmax() == 3 and not batch.correct[3]
    assert len(set(np.abs(found[0].trace.advantage[batch.mask]).round(9))) == 1
    say = [each.mass[3].sum() / each.mass.sum() for each in found[:3]]
    assert say == pytest.approx([0.25, 0.5, 0.5])
    assert found[3].trace.classes.label == ["unfavorable"] and found[3].trace.classes.weight.tolist() == [0.1]
