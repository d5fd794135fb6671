import numpy as np
import pytest

from core.advantage import AdvantageError, build, compute
from tests.core.advantage.batches import batch, one_response

PROBABILITIES = [0.9, 0.1, 0.5, 0.3, 0.7]


def factor(batch_, **params):
    return compute(build("a3po", params=params), batch_).factors[-1]


def test_unlikely_tokens_of_correct_and_likely_tokens_of_wrong_responses():
    assert factor(one_response(PROBABILITIES, True), ratio=0.4).values[0].tolist() == [1, 2, 1, 2, 1]
    assert factor(one_response(PROBABILITIES, False), ratio=0.4).values[0].tolist() == [2, 1, 1, 1, 2]


@pytest.mark.parametrize(("step", "rho"), [(0, 2), (84, 1.58), (199, 1.005), (200, 1), (500, 1)])
def test_rho_falls_to_one(step, rho):
    assert factor(one_response(PROBABILITIES, True, step=step)).values.max() == pytest.approx(rho)


@pytest.mark.parametrize(("step", "rho"), [(0, 3), (20, 2), (40, 1), (41, 1)])
def test_decay_by_a_fraction_of_the_run(step, rho):
    one = one_response(PROBABILITIES, True, step=step, total_steps=80)
    assert factor(one, rho_positive=3, decay_fraction=0.5).values.max() == pytest.approx(rho)


def test_each_polarity_has_its_own_rho():
    both = batch([0, 0], [1, 0])
    values = factor(both, rho_positive=3, rho_negative=5, alpha=0).values
    assert values[0].max() == 3 and values[1].max() == 5


def test_alpha_and_decay_fraction_exclude_each_other():
    with pytest.raises(AdvantageError, match="not both"):
        build("a3po", params={"alpha": 0.01, "decay_fraction": 0.5})


def test_decay_fraction_needs_the_length_of_the_run():
    with pytest.raises(AdvantageError, match="needs total_steps"):
        factor(batch([0, 0], [1, 0], total_steps=None), decay_fraction=0.5)


def test_it_ranks_by_the_sampler_not_the_trainer():
    one = one_response(PROBABILITIES, True)
    one.trainer_logprob[:] = one.sampler_logprob[:, ::-1]
    assert factor(one).values[0].tolist() == [1, 2, 1, 1, 1]


def test_explained_with_this_tokens_numbers():
    found = factor(one_response(PROBABILITIES, False, step=84), ratio=0.4)
    assert found.explain(0, 0) == (
        "max(2 − 0.005 × 84, 1): ρ⁻ at step 84, as p = 0.9 is among the 2 highest of the 5 tokens of this wrong "
        "response (40 %)"
    )
    assert "not among" in found.explain(0, 1)
    assert "ρ⁺ = 1.58" in found.reason and "step 84" in found.reason


def test_stored_precision_decides_ties():
    logprob = np.log(np.full((2, 4), 0.5))
    logprob[0, 3] -= 1e-12  # the same float32
    tied = batch([0, 0], [1, 0], sampler_logprob=logprob)
    assert factor(tied).values[0].tolist() == [2, 1, 1, 1]


def test_only_tokens_below_a_limit_are_ranked():
    """What is certain cannot be pushed: ρ⁻ goes to the likeliest of the tokens that can."""
    certain = [1.0, 1.0, 0.9, 0.4, 0.2]
    assert factor(one_response(certain, False), ratio=0.4).values[0].tolist() == [2, 2, 1, 1, 1]
    found = factor(one_response(certain, False), ratio=0.4, p_below=0.99)
    assert found.values[0].tolist() == [1, 1, 2, 1, 1]  # int(0.4 x 3) of three
    assert found.explain(0, 0) == "p = 1 is not below 0.99, so it is not ranked"
    assert "the 1 highest of the 3 ranked (p < 0.99) tokens" in found.explain(0, 2)
