from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from core.advantage import AdvantageError, Loss, compute
from core.counterfactual import answer
from core.train.losses import TokenPenalty, policy_terms
from tests.core.advantage.batches import batch, batches
from tests.core.counterfactual.answers import asked, method, specs


def test_weights_are_those_of_the_methods_own_loss():
    rollouts = batch([0, 0], [1, 0], [1, 3], max_length=10)
    assert asked("dapo", rollouts).weight.tolist() == [[0.25, 0, 0], [0.25] * 3]
    np.testing.assert_allclose(asked("grpo", rollouts).weight, [[1 / 2, 0, 0], [1 / 6] * 3])
    np.testing.assert_allclose(asked("dr_grpo", rollouts).weight, [[1 / 20, 0, 0], [1 / 20] * 3])
    np.testing.assert_allclose(asked("psr", rollouts).weight, [[1, 0, 0], [0] * 3])


def test_minibatches_have_weights_of_their_own():
    rollouts = batch([0, 0, 1, 1], [1, 0, 1, 0], [1, 3, 2, 2], minibatches=2)
    found = asked("dapo", rollouts).weight
    np.testing.assert_allclose(found[:2], [[1 / 4, 0, 0], [1 / 4] * 3])
    np.testing.assert_allclose(found[2:], [[1 / 4, 1 / 4, 0]] * 2)
    one = asked("dapo", replace(rollouts, minibatches=1)).weight
    np.testing.assert_allclose(one[0], [1 / 8, 0, 0])


def test_minibatches_are_those_of_the_groups_that_the_method_itself_keeps():
    """What DAPO drops it splits into no minibatch; GRPO, asked about the same step, splits all groups."""
    rollouts = batch([0, 0, 1, 1, 2, 2, 3, 3], [1, 1, 1, 1, 1, 0, 1, 0], [1] * 8, minibatches=2)
    assert asked("dapo", rollouts).weight[:, 0].tolist() == [0, 0, 0, 0, 0.5, 0.5, 0.5, 0.5]
    assert asked("grpo", rollouts).weight[:, 0].tolist() == [0.25] * 8


@given(batches(), specs)
def test_the_trace_is_the_methods_own(rollouts, spec):
    found, trace = asked(spec, rollouts), compute(method(spec), rollouts)
    np.testing.assert_array_equal(found.trace.advantage, trace.advantage)
    np.testing.assert_allclose(found.mass, found.weight * np.abs(trace.advantage))
    assert not found.weight[~trace.kept].any()
    matched = next((factor.values[0] for factor in trace.factors if factor.id == "mass_matched"), 1.0)
    np.testing.assert_allclose(np.where(rollouts.mask, found.base * found.factor * matched, 0), trace.advantage)


def test_what_the_method_needs_and_the_batch_lacks_is_named():
    with pytest.raises(AdvantageError, match="A3PO on DAPO needs sampler_logprob"):
        asked("a3po", batch([0, 0], [1, 0], sampler_logprob=None))


def test_polarity_can_follow_the_sign():
    rollouts = batch([0, 0, 0], [0.4, 0.2, 0.2])
    assert asked("grpo", rollouts).trace.polarity.tolist() == [-1, -1, -1]
    assert asked("grpo", rollouts, polarity_by="sign").trace.polarity.tolist() == [1, -1, -1]


def test_without_ratios_nothing_is_said_of_clipping():
    found = asked("grpo", batch([0, 0], [1, 0]))
    assert found.clipped is None and found.clip_share is None


def test_the_bounds_by_hand():
    ratio = np.array([[1.3, 1.25, 0.7, np.nan], [1.3, 1.25, 0.7, np.nan]])
    rollouts = batch([0, 0], [1, 0], [4, 4])
    stopped = [asked(spec, rollouts, ratio=ratio).clipped.tolist() for spec in ("grpo", "dapo")]
    assert stopped[0] == [[True, True, False, False], [False, False, True, False]]
    assert asked("grpo", rollouts, ratio=ratio).clip_share == pytest.approx(3 / 6)
    assert stopped[1] == [[True, False, False, False], [False, False, True, False]]
    assert asked("psr", rollouts, ratio=ratio).clip_share == pytest.approx(2 / 3)
    assert asked("rloo", rollouts, ratio=ratio).clip_share == 0
    assert asked("grpo", rollouts, ratio=np.full((2, 4), np.nan)).clip_share is None


def test_tokens_that_are_dropped_or_have_no_ratio_are_not_clipped():
    ratio = np.array([[1.5, np.nan], [1.5, 1.5]])
    for objective in ("cispo", "gspo"):
        found = asked(f"psr;loss.objective={objective}", batch([0, 0], [1, 0], [2, 2]), ratio=ratio)
        assert found.clipped.tolist() == [[True, False], [False, False]] and found.clip_share == 1


LOSSES = [
    {}, {"clip_low": 0.1, "clip_high": 0.4}, {"dual_clip": 1.5}, {"objective": "gspo", "clip_low": 0.05},
    {"objective": "cispo"}, {"objective": "reinforce"}, {"objective": "ratio"},
]  # fmt: skip


@pytest.mark.parametrize("changes", LOSSES, ids=str)
@pytest.mark.parametrize("spec", ["grpo", "kl_cov;ratio=0.5", "lp_reg;ratio=0.7"])
@settings(max_examples=15)
@given(batches(), st.integers(0, 99))
def test_clipping_is_what_the_trainers_loss_clips(changes, spec, rollouts, seed):
    move = np.random.default_rng(seed).normal(0, 0.4, rollouts.mask.shape)
    asked_of = replace(method(spec), loss=Loss(**changes))
    found = answer(asked_of, rollouts, ratio=np.where(rollouts.mask, np.exp(move), np.nan))
    own = found.trace.penalty
    old = torch.tensor(rollouts.trainer_logprob)
    penalty = own and TokenPenalty(own.form, torch.tensor(own.coefficient), torch.tensor(rollouts.proxy_logprob))
    advantage, mask = torch.tensor(found.trace.advantage), torch.tensor(rollouts.mask)
    terms = policy_terms(asked_of.loss, old + torch.tensor(move), old, advantage, mask, penalty)
    wanted = (terms.clipped_low | terms.clipped_high).numpy() & found.trace.kept
    np.testing.assert_array_equal(found.clipped, wanted)
