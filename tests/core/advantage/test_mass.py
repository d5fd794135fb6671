from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.advantage import build, compute, loss_weights, recipes
from tests.core.advantage.batches import batch, batches

WEIGHTED = sorted(name for name, recipe in recipes().items() if recipe.weights)


def mass(trace, one):
    weight = loss_weights(trace.kept, one.length, one.max_length, trace.method.loss.aggregation, trace.minibatch)
    return (weight * np.abs(trace.advantage)).sum()


@given(
    one=batches(),
    name=st.sampled_from(WEIGHTED),
    base=st.sampled_from(["grpo", "dapo", "dr_grpo", "reinforce_pp", "rloo"]),
    split=st.booleans(),
    also=st.sampled_from([(), ("adora_amplify",), ("token_shaping", "polarity")]),
)
def test_the_mass_as_the_loss_weighs_it_is_the_base_rules(one, name, base, split, also):
    if split:
        one = replace(one, minibatches=2)
    own = {rule.name for rule in recipes()[name].weights}
    also = [other for other in also if not own & {rule.name for rule in recipes()[other].weights}]
    if name == "kl_cov" and base == "rloo":
        base = "grpo"
    shape = {"negative_high_scale": 5} if "token_shaping" in (name, *also) else {}
    method = build(name, base=base, also=also, params=shape, mass_matched=True)
    trace = compute(method, one)
    plain = replace(method, weights=(), mass_matched=False)
    wanted, bare = mass(compute(plain, one), one), mass(compute(replace(method, mass_matched=False), one), one)
    assert mass(trace, one) == pytest.approx(wanted if bare and wanted else bare)
    factor = trace.factors[-1]
    assert factor.id == "mass_matched" and np.ptp(factor.values) == 0


def test_an_amplified_batch_is_turned_down_as_a_whole():
    one = batch([0, 0, 0, 0, 1, 1, 1, 1], [1, 0, 0, 0, 1, 1, 1, 0], [9, 3, 3, 3, 3, 3, 3, 9])
    trace = compute(build("adora_amplify", mass_matched=True), one)
    assert trace.classes.label == ["favorable", "unfavorable"]
    value = trace.factors[-1].values[0]
    assert 0.5 < value < 1
    plain = compute(build("grpo"), one).advantage[:, 0]
    np.testing.assert_allclose(trace.advantage[:, 0] / plain, value * np.repeat([2, 1], 4))
    assert trace.factors[-1].explain(0, 0).startswith("the base rule's advantage mass")


def test_nothing_to_match_is_one():
    trace = compute(build("adora_amplify", mass_matched=True), batch([0, 0], [1, 1]))
    assert trace.factors[-1].values.tolist() == [1, 1] and "nothing to match" in trace.factors[-1].reason


def test_the_label_tells_the_control_apart():
    assert build("a3po", mass_matched=True).label == "A3PO on DAPO, mass-matched"
