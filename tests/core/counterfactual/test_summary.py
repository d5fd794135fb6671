from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.counterfactual import summarise
from tests.core.advantage.batches import batch, batches
from tests.core.counterfactual.answers import asked, reordered, specs


def summary(spec, rollouts, **more):
    return summarise(asked(spec, rollouts, **more), rollouts)


def test_mass_by_hand():
    """Token mean over 4 tokens; advantages +-0.5 of reward minus mean, correct ones doubled."""
    rollouts = batch([0, 0], [1, 0], [1, 3])
    found = summary("polarity;base=dr_grpo;positive=2;loss.aggregation=token_mean", rollouts)
    assert (found.base_mass.positive, found.base_mass.negative) == pytest.approx((0.125, 0.375))
    assert (found.mass.positive, found.mass.negative) == pytest.approx((0.25, 0.375))
    assert found.mass.total == pytest.approx(0.625)
    assert found.kept_share == 1
    assert summary("psr;base=dr_grpo", rollouts).kept_share == pytest.approx(0.25)


def test_quartiles_by_hand():
    probability = np.array([[0.1, 0.2, 0.3, 0.4], [0.5, 0.6, 0.9, 0.9]])
    rollouts = batch([0, 0], [1, 0], sampler_logprob=np.log(probability))
    found = summary("a3po;base=dr_grpo;ratio=0.5;loss.aggregation=token_mean", rollouts).quartiles
    np.testing.assert_allclose(found.edges, np.quantile(probability, [0.25, 0.5, 0.75]))
    assert found.tokens.tolist() == [[2, 2, 0, 0], [0, 0, 2, 2]]
    np.testing.assert_allclose(found.base_mass, [[1 / 8, 1 / 8, 0, 0], [0, 0, 1 / 8, 1 / 8]])
    np.testing.assert_allclose(found.mass, [[2 / 8, 1 / 8, 0, 0], [0, 0, 1 / 8, 2 / 8]])


def test_equal_probabilities_stay_together():
    rollouts = batch([0, 0], [1, 0], sampler_logprob=np.log([[0.5, 1, 1, 1], [1, 1, 1, 1]]))
    found = summary("grpo", rollouts).quartiles
    assert found.edges.tolist() == [1, 1, 1]
    assert found.tokens.tolist() == [[4, 0, 0, 0], [4, 0, 0, 0]]


def test_without_log_probs_there_are_no_quartiles():
    assert summary("grpo", batch([0, 0], [1, 0], sampler_logprob=None)).quartiles is None


def test_prompts_of_adora():
    rollouts = batch([3, 3, 5, 5, 7, 7], [1, 0, 1, 0, 1, 1], [6, 2, 2, 6, 3, 4])
    found = summary("adora_amplify;combine=all", rollouts)
    assert [(prompt.group, prompt.label, prompt.weight) for prompt in found.prompts] == [
        (3, "favorable", 2), (5, "unfavorable", 1), (7, "unfavorable", 1),
    ]  # fmt: skip
    assert found.classes == {"favorable": 1, "unfavorable": 2, "uniform": 0}
    assert found.favorable_share == pytest.approx(1 / 3)
    assert found.mean_weight == pytest.approx(4 / 3)
    assert [prompt.factor for prompt in found.prompts] == [pytest.approx(2), pytest.approx(1), None]
    assert [prompt.share for prompt in found.prompts] == pytest.approx([2 / 3, 1 / 3, 0])
    assert [prompt.advantage for prompt in found.prompts] == pytest.approx([2**0.5, 2**-0.5, 0], rel=1e-5)
    assert [(prompt.rollouts, prompt.correct, prompt.reward) for prompt in found.prompts] == [
        (2, 1, 0.5), (2, 1, 0.5), (2, 2, 1.0),
    ]  # fmt: skip
    assert [prompt.length_advantage for prompt in found.prompts] == [True, False, None]


def test_dropped_groups_have_no_advantage_and_no_say_in_the_mean_weight():
    rollouts = batch([0, 0, 1, 1], [0, 0, 1, 0], [2, 2, 2, 6])
    found = summary("adora_amplify;base=dapo;combine=all;weight=3;tau=0.2", rollouts)
    assert [prompt.kept for prompt in found.prompts] == [False, True]
    assert (found.prompts[0].advantage, found.prompts[0].factor, found.prompts[0].share) == (None, None, 0)
    assert found.mean_weight == 1
    nothing = summary("dapo", batch([0, 0], [1, 1]))
    assert (nothing.mean_weight, nothing.kept_share, nothing.mass.total, nothing.prompts[0].share) == (None, 0, 0, None)


def test_factors_by_what_they_span():
    rollouts = batch([0, 0], [1, 0], [4, 2])
    first, second = summary("a3po;also=polarity;positive=1;negative=0.5;ratio=0.25", rollouts).factors[1:]
    assert (first.id, first.per, first.low, first.high, first.share) == ("a3po", "token", 1, 2, pytest.approx(2 / 6))
    assert (second.id, second.low, second.high, second.share) == ("polarity", 0.5, 1, pytest.approx(2 / 6))
    assert "ρ⁺ = 2" in first.reason


def test_the_clip_share_comes_along():
    rollouts = batch([0, 0], [1, 0], [2, 2])
    assert summary("grpo", rollouts, ratio=np.full((2, 2), 1.5)).clip_share == 0.5


@given(batches(), specs)
def test_the_parts_add_up_to_the_whole(rollouts, spec):
    answer = asked(spec, rollouts)
    found = summarise(answer, rollouts)
    whole, before = answer.mass.sum(), (answer.weight * np.abs(answer.base)).sum()
    assert found.mass.total == pytest.approx(whole, abs=1e-12)
    assert found.base_mass.total == pytest.approx(before, abs=1e-12)
    for place, side in enumerate(("positive", "negative")):
        assert found.quartiles.mass[place].sum() == pytest.approx(getattr(found.mass, side), abs=1e-12)
        assert found.quartiles.base_mass[place].sum() == pytest.approx(getattr(found.base_mass, side), abs=1e-12)
    assert found.quartiles.tokens.sum() == rollouts.mask.sum()
    assert sum(found.classes.values()) == len(found.prompts) == len(rollouts.groups)
    if whole > 0:
        assert sum(prompt.share for prompt in found.prompts) == pytest.approx(1)
    assert [factor.id for factor in found.factors] == [factor.id for factor in answer.trace.factors]


@given(batches(), specs, st.randoms())
def test_the_order_of_rollouts_does_not_matter(rollouts, spec, random):
    order = np.array(random.sample(range(len(rollouts.group)), len(rollouts.group)))
    one, other = summary(spec, rollouts), summary(spec, reordered(rollouts, order))
    for name in ("base_mass", "mass"):
        for side in ("positive", "negative"):
            assert getattr(getattr(one, name), side) == pytest.approx(getattr(getattr(other, name), side), abs=1e-12)
    np.testing.assert_array_equal(one.quartiles.tokens, other.quartiles.tokens)
    np.testing.assert_allclose(one.quartiles.mass, other.quartiles.mass, atol=1e-12)
    assert [replace(prompt, reward=0, base_advantage=0, advantage=0, factor=0, share=0) for prompt in one.prompts] == [
        replace(prompt, reward=0, base_advantage=0, advantage=0, factor=0, share=0) for prompt in other.prompts
    ]
    assert one.kept_share == other.kept_share and one.mean_weight == other.mean_weight
