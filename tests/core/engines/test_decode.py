"""Choosing a token from logits, and which responses share a row."""

import numpy as np
import pytest
import torch

from core.engines.decode import BLOCK, Plan, inverse_cdf, part, pick

ALMOST_1 = 1 - 2.0**-53


def first_above(weight: torch.Tensor, uniform: float) -> int:
    """The definition, one token after another, for one row of weights."""
    total = 0.0
    target = uniform * float(weight.double().sum())
    for token, value in enumerate(weight.tolist()):
        total += value
        if total > target:
            return token
    return int(torch.nonzero(weight)[-1])


@pytest.mark.parametrize("vocabulary", [44, 2 * BLOCK, 2 * BLOCK + 1, 5 * BLOCK, 5 * BLOCK + 77])
def test_inverse_cdf_is_the_first_token_above_the_uniform(vocabulary):
    generator = torch.Generator().manual_seed(vocabulary)
    weight = torch.randn(64, vocabulary, generator=generator).mul(4).exp()
    weight[torch.rand(weight.shape, generator=generator) < 0.3] = 0
    weight[:8, BLOCK : 2 * BLOCK] = 0  # a whole block without weight
    weight[8:16, -20:] = 0
    uniform = torch.rand(64, dtype=torch.float64, generator=generator)
    uniform[::4], uniform[1::4] = 0, ALMOST_1
    rows = torch.randint(0, 64, (64,), generator=generator)
    token = inverse_cdf(weight, rows, uniform)
    weight = weight[rows]
    assert (weight.gather(-1, token[:, None]) > 0).all()
    expected = torch.tensor([first_above(row, float(u)) for row, u in zip(weight, uniform, strict=True)])
    exact = torch.ones_like(token, dtype=torch.bool) if vocabulary <= 2 * BLOCK else uniform < ALMOST_1
    assert torch.equal(token[exact], expected[exact])
    share = weight.double() / weight.double().sum(-1, keepdim=True)
    above = 1 - share.cumsum(-1).gather(-1, token[:, None])[:, 0]
    assert (above[uniform == ALMOST_1] < 1e-6).all()


def test_inverse_cdf_never_draws_what_has_probability_0():
    weight = torch.tensor([[0.0, 0.5, 0.0, 0.5, 0.0]]).repeat(4, 1)
    uniform = torch.tensor([0.0, 0.49999, 0.5, ALMOST_1], dtype=torch.float64)
    assert inverse_cdf(weight, torch.arange(4), uniform).tolist() == [1, 1, 3, 3]
    assert inverse_cdf(weight[:1], torch.zeros(4, dtype=torch.int64), uniform).tolist() == [1, 1, 3, 3]
    weight = torch.rand(5000, 7) + 0.1
    weight[:, 5:] = 0
    almost = torch.full((5000,), ALMOST_1, dtype=torch.float64)
    assert (inverse_cdf(weight, torch.arange(5000), almost) == 4).all()


@pytest.mark.parametrize("shape", [(5, 44), (600, 3000)])
@pytest.mark.parametrize("temperature", [0, 0.6, 1])
def test_pick_gives_the_token_its_logprob_and_the_entropy(shape, temperature):
    torch.manual_seed(0)
    logits = torch.randn(shape) * 3 + 50
    uniform = torch.rand(len(logits), dtype=torch.float64)
    rows = torch.randint(0, shape[0], (shape[0],))
    logp = (logits.double() / (temperature or 1)).log_softmax(-1)[rows]
    token, logprob, entropy = pick(logits.clone(), rows, uniform, temperature)
    if temperature == 0:
        assert torch.equal(token, logits[rows].argmax(-1))
    else:
        cdf = logp.exp().cumsum(-1)
        after = cdf.gather(-1, token[:, None])[:, 0]
        before = after - logp.exp().gather(-1, token[:, None])[:, 0]
        assert (before < uniform + 1e-5).all()
        assert (uniform < after + 1e-5).all()
    np.testing.assert_allclose(logprob, logp.gather(-1, token[:, None])[:, 0], rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(entropy, -(logp.exp() * logp).sum(-1), rtol=1e-5, atol=1e-5)


def test_forbidden_tokens_count_for_nothing():
    logits = torch.tensor([[1.0, -1e30, 2.0]])
    token, logprob, entropy = pick(logits.clone(), torch.tensor([0]), torch.tensor([0.5], dtype=torch.float64), 0.5)
    p = torch.tensor([2.0, 4.0]).softmax(-1)
    assert token.tolist() == [2]
    assert logprob.item() == pytest.approx(float(p[1].log()))
    assert entropy.item() == pytest.approx(float(-(p * p.log()).sum()), rel=1e-5)


def test_responses_stay_together_for_as_long_as_they_are_alike():
    end = frozenset({9})
    left, rows, plan = part([0, 0, 0, 1, 1, 1], [5, 5, 6, 7, 9, 7], end)
    assert left == [0, 1, 2, 3, 5]
    assert rows == [0, 0, 2, 1, 1], "a row's first response keeps it, and so does who drew the same"
    assert plan == Plan(tokens=[5, 7, 6], to=[2], source=[0])


def test_rows_without_a_response_are_filled_from_the_end():
    left, rows, plan = part([0, 1, 2, 3], [9, 9, 4, 5], frozenset({9}))
    assert (left, rows) == ([2, 3], [0, 1])
    assert plan == Plan(tokens=[4, 5], to=[0, 1], source=[2, 3])
    assert part([1, 0], [9, 9], frozenset({9})) == ([], [], Plan([], [], []))


def test_no_row_is_copied_over_that_is_copied_from():
    random = np.random.default_rng(0)
    for _ in range(300):
        used = int(random.integers(1, 8))
        rows = [*range(used), *random.integers(0, used, random.integers(0, 9)).tolist()]
        tokens = random.integers(0, 4, len(rows)).tolist()
        left, after, plan = part(rows, tokens, frozenset({0}))
        assert left == [i for i, token in enumerate(tokens) if token]
        assert not set(plan.to) & set(plan.source)
        assert sorted(set(after)) == list(range(len(plan.tokens)))
        origin = {row: row for row in range(used)} | dict(zip(plan.to, plan.source, strict=True))
        for i, row in zip(left, after, strict=True):
            assert (origin[row], plan.tokens[row]) == (rows[i], tokens[i])
        assert len(set(after)) == len({(rows[i], tokens[i]) for i in left})
