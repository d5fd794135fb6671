import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.advantage import build, compute, explain, recipes
from core.advantage.registry import BASES, WEIGHTS
from tests.core.advantage.batches import batch, batches


@given(one=batches(), name=st.sampled_from(sorted(set(recipes()) - {"pass_at_k"})), matched=st.booleans())
def test_the_ledger_adds_up_on_every_token(one, name, matched):
    trace = compute(build(name, mass_matched=matched), one)
    for i in range(len(one.group)):
        for t in {0, one.length[i] - 1}:
            lines = explain(trace, one, i, t)
            assert [line.kind for line in lines[:1]] == ["base"] and lines[0].formula
            multiplied = [line.value for line in lines if line.kind in ("base", "factor")]
            total = next(line for line in lines if line.kind == "total")
            assert np.prod(multiplied) == pytest.approx(total.value) == trace.advantage[i, t]
            assert all(line.formula and line.numbers and "nan" not in line.numbers for line in lines)
            assert (lines[-1].kind == "penalty") == (trace.penalty is not None)


def test_a3po_under_adora_with_numbers():
    one = batch([0] * 4, [1, 0, 0, 0], [9, 3, 4, 5])
    trace = compute(build("a3po", base="dapo", also=["adora_amplify"], mass_matched=True), one)
    lines = explain(trace, one, 0, int(one.sampler_logprob[0].argmin()))
    assert [line.id for line in lines] == ["grpo", "selected", "a3po", "adora_amplify", "mass_matched", "advantage"]
    assert lines[0].formula == "A = (R − m) / (s + ε)" and lines[0].numbers.startswith("(1 − 0.25) / 0.5")
    assert lines[1].formula == "keep the group if its rewards differ"
    assert [line.running for line in lines[:4]] == pytest.approx([1.5, 1.5, 3, 6], abs=1e-4)
    assert lines[-1].numbers.startswith("1.5 × 1 × 2 × 2 × ")


def test_a_token_that_is_not_there():
    one = batch([0, 0], [1, 0], [3, 2])
    with pytest.raises(IndexError, match="no token 2 of rollout 1"):
        explain(compute(build("grpo"), one), one, 1, 2)


def test_every_rule_has_its_formula():
    assert all(rule.formula and "\n" not in rule.formula for rule in [*BASES.values(), *WEIGHTS.values()])
