import json
from pathlib import Path

import numpy as np
import pytest
import torch

from core.advantage import Loss, loss_weights
from core.train.losses import kl_k3, policy_terms

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
