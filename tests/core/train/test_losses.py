import json
from pathlib import Path

import numpy as np
import pytest
import torch

from core.advantage import PROXY_DROPPED, Loss, loss_weights
from core.train.losses import TokenPenalty, kl_k3, policy_terms

GOLDEN = json.loads((Path(__file__).parent.parent / "advantage" / "golden.json").read_text())
LOSSES = {
    "ppo_clip_0.2_seqmean": Loss(aggregation="sequence_mean"),
    "dapo_0.2_0.28_tokenmean": Loss(clip_high=0.28),
    "dapo_0.2_0.28_dual3_tokenmean": Loss(clip_high=0.28, dual_clip=3.0),
    "dr_grpo_0.2_sumnorm": Loss(aggregation="fixed_length"),
    "gspo_3e-4_4e-4": Loss(objective="gspo", aggregation="sequence_mean", clip_low=3e-4, clip_high=4e-4),
    "cispo_1_0.28_tokenmean": Loss(objective="cispo", clip_low=1.0, clip_high=0.28),
}
CASES = [(i, name) for i, batch in enumerate(GOLDEN) for name in batch.get("loss", {})]


def padded(rows):
    array = np.zeros((len(rows), max(map(len, rows))))
    for i, row in enumerate(rows):
        array[i, : len(row)] = row
    return torch.tensor(array)


@pytest.mark.parametrize(("index", "name"), CASES)
def test_golden_loss_and_gradient(index, name):
    batch, loss = GOLDEN[index], LOSSES[name]
    inputs, expected = batch["inputs"], batch["loss"][name]
    length = np.array(inputs["length"])
    mask = np.arange(length.max())[None, :] < length[:, None]
    advantage = torch.tensor(batch["advantage"]["grpo"], dtype=torch.float64)[:, None].expand(mask.shape)
    weight = loss_weights(mask, length, inputs["max_length"], loss.aggregation, np.zeros(len(length), int))
    new = padded(inputs["new_logprob"]).requires_grad_()
    terms = policy_terms(loss, new, padded(inputs["old_logprob"]), advantage, torch.tensor(mask))
    total = (torch.tensor(weight) * terms.term).sum()
    total.backward()
    assert total.item() == pytest.approx(expected["loss"], abs=1e-5)
    np.testing.assert_allclose(new.grad, padded(expected["grad"]), atol=1e-5)

    clipped = (terms.clipped_low | terms.clipped_high) & torch.tensor(mask)
    if loss.objective in ("clip", "gspo"):
        stopped = (new.grad == 0) & torch.tensor(mask) & (advantage != 0)
        assert torch.equal(clipped & (advantage != 0), stopped)


@pytest.mark.parametrize("index", [i for i, batch in enumerate(GOLDEN) if "kl_k3_token_mean" in batch])
def test_golden_kl(index):
    inputs = GOLDEN[index]["inputs"]
    new, reference = (torch.tensor(np.concatenate(inputs[key])) for key in ("new_logprob", "ref_logprob"))
    assert kl_k3(new, reference).mean().item() == pytest.approx(GOLDEN[index]["kl_k3_token_mean"], abs=1e-6)


def test_golden_covers_every_loss():
    assert {name for _, name in CASES} == set(LOSSES)


def test_kl_is_not_the_inverted_one():
    logprob, reference = torch.log(torch.tensor([0.5, 0.5])), torch.log(torch.tensor([0.25, 0.75]))
    exact = 0.5 * np.log(0.5 / 0.25) + 0.5 * np.log(0.5 / 0.75)
    assert (0.5 * kl_k3(logprob, reference)).sum().item() == pytest.approx(exact)


def test_reinforce_is_the_plain_policy_gradient():
    logprob = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.bool)
    terms = policy_terms(
        Loss(objective="reinforce"), logprob, torch.tensor([[-1.5, -2.0]]), torch.tensor([[2.0, 0.5]]), mask
    )
    terms.term.sum().backward()
    assert logprob.grad.tolist() == [[-2.0, -0.5]]
    assert terms.ratio[0].tolist() == pytest.approx([np.exp(0.5), 1.0])
    assert not (terms.clipped_low | terms.clipped_high).any()


def test_padding_and_far_ratios_stay_finite():
    logprob = torch.tensor([[-1.0, 0.0]], requires_grad=True)
    mask = torch.tensor([[True, False]])
    terms = policy_terms(Loss(), logprob, torch.tensor([[-500.0, 7.0]]), torch.tensor([[-1.0, 0.0]]), mask)
    assert torch.isfinite(terms.term).all()
    assert terms.ratio[0, 1] == 1


def test_ratio_is_the_unclipped_surrogate():
    logprob = torch.tensor([[-1.0, -2.0]], requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.bool)
    old, advantage = torch.tensor([[-3.0, -1.0]]), torch.tensor([[2.0, -0.5]])
    terms = policy_terms(Loss(objective="ratio"), logprob, old, advantage, mask)
    terms.term.sum().backward()
    expected = [-2 * np.exp(2), 0.5 * np.exp(-1)]
    assert terms.term[0].tolist() == pytest.approx(expected) == logprob.grad[0].tolist()
    assert not (terms.clipped_low | terms.clipped_high).any()
    assert terms.penalty is None and terms.penalised is None


OLD = torch.tensor([[-1.0, -1.0, -1.0, -1.0, -1.0, 0.0]])
NEW = torch.tensor([[-0.5, -0.5, -2.0, -2.0, -1.0, 0.0]])
ADVANTAGE = torch.tensor([[1.0, 1.0, -1.0, -1.0, 1.0, 0.0]])
COEFFICIENT = torch.tensor([[0.0, 2.0, 0.0, 2.0, 2.0, 2.0]])
MASK = torch.tensor([[True] * 5 + [False]])


def penalised(loss, penalty):
    """The terms at NEW, with the gradients of the policy part and of the penalty."""
    logprob = NEW.clone().requires_grad_()
    terms = policy_terms(loss, logprob, OLD, ADVANTAGE, MASK, penalty)
    gradients = [torch.autograd.grad(part.sum(), logprob, retain_graph=True)[0] for part in (terms.term, terms.penalty)]
    return terms, *(gradient[0].tolist() for gradient in gradients)


def test_a_penalised_token_is_not_clipped_and_is_pulled_to_where_it_was():
    """KL-Cov's |log r|: its gradient is the coefficient towards the old log-prob, and none where nothing has moved."""
    terms, policy, pull = penalised(Loss(), TokenPenalty("absolute", COEFFICIENT))
    high, low = np.exp(0.5), np.exp(-1)
    assert terms.term[0].tolist() == pytest.approx([-1.2, -high, 0.8, low, -1, 0])
    assert policy == pytest.approx([0, -high, 0, low, -1, 0])
    assert terms.penalty[0].tolist() == pytest.approx([0, 1, 0, 2, 0, 0])
    assert pull == [0, 2, 0, -2, 0, 0]
    assert terms.clipped_high[0].tolist() == [True] + [False] * 5
    assert terms.clipped_low[0].tolist() == [False, False, True, False, False, False]
    assert terms.penalised[0].tolist() == [False, True, False, True, True, False]


def test_the_proxy_pulls_up_what_lies_below_it_and_leaves_the_rest_to_the_objective():
    proxy = torch.tensor([[-0.1, -0.6, -0.5, -0.5, PROXY_DROPPED, 0.0]])
    terms, policy, pull = penalised(Loss(), TokenPenalty("proxy", COEFFICIENT, proxy))
    assert terms.penalised[0].tolist() == [False, False, False, True, False, False]
    distance = np.exp(1.5) - 1.5 - 1
    assert terms.penalty[0].tolist() == pytest.approx([0, 0, 0, 2 * distance, 0, 0])
    assert pull == pytest.approx([0, 0, 0, 2 * (1 - np.exp(1.5)), 0, 0])
    assert terms.term[0].tolist() == pytest.approx([-1.2, -1.2, 0.8, np.exp(-1), -1, 0])
    assert policy == pytest.approx([0, 0, 0, np.exp(-1), -1, 0])
    assert terms.clipped_high[0].tolist() == [True, True] + [False] * 4
    assert terms.clipped_low[0].tolist() == [False, False, True, False, False, False]


@pytest.mark.parametrize("objective", ["gspo", "cispo", "reinforce", "ratio"])
def test_other_objectives_keep_their_own_term_beside_a_penalty(objective):
    loss = Loss(objective=objective)
    terms, _, pull = penalised(loss, TokenPenalty("absolute", COEFFICIENT))
    alone = policy_terms(loss, NEW, OLD, ADVANTAGE, MASK)
    for name in ("term", "ratio", "clipped_low", "clipped_high"):
        assert torch.equal(getattr(terms, name), getattr(alone, name)), name
    assert terms.penalty[0].tolist() == pytest.approx([0, 1, 0, 2, 0, 0])
    assert pull == [0, 2, 0, -2, 0, 0]


def test_a_penalty_lifts_the_dual_clip_too():
    logprob = torch.tensor([[1.0, 1.0]]).sub(2).requires_grad_()
    advantage, mask = -torch.ones(1, 2), torch.ones(1, 2, dtype=torch.bool)
    penalty = TokenPenalty("absolute", torch.tensor([[0.0, 1.0]]))
    terms = policy_terms(Loss(dual_clip=3.0), logprob, logprob.detach() - 2, advantage, mask, penalty)
    assert terms.term[0].tolist() == pytest.approx([3, np.exp(2)])
    assert terms.clipped_high[0].tolist() == [True, False]
