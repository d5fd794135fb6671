"""verl's policy losses beside the lab's: the same loss and the same gradient from the same log-probs and advantages.

The lab's loss is the sum of loss weight x term, as its update takes it. `test_verl.py` runs this with verl's
environment.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from batches import Case, cases
from verl.trainer.ppo.core_algos import POLICY_LOSS_REGISTRY, get_policy_loss_fn, kl_penalty
from verl.trainer.ppo.rollout_corr_helper import compute_rollout_correction_weights
from verl.workers.config import ActorConfig, PolicyLossConfig

from core.advantage import Batch, Loss, build, compute, loss_weights, tis_weights
from core.train.losses import TokenPenalty, kl_k3, policy_terms

CASES = {case.name: case for case in cases()}
AGGREGATION = {
    "token_mean": "token-mean",
    "sequence_mean": "seq-mean-token-mean",
    "fixed_length": "seq-mean-token-sum-norm",
}
NEVER = 1e9  # a dual clip that bounds nothing: verl's vanilla loss always has one
OBJECTIVES: dict[str, tuple[Loss, str, dict[str, Any]]] = {
    "ppo": (Loss(), "vanilla", {"clip_ratio_c": NEVER}),
    "dapo": (Loss(clip_high=0.28), "vanilla", {"clip_ratio_c": NEVER}),
    "dual_clip": (Loss(clip_high=0.28, dual_clip=3.0), "vanilla", {"clip_ratio_c": 3.0}),
    "gspo": (Loss(objective="gspo", clip_low=3e-4, clip_high=4e-4), "gspo", {}),
    "cispo": (Loss(objective="cispo", clip_low=1.0, clip_high=0.28), "cispo", {}),
    "reinforce": (Loss(objective="reinforce"), "gpg", {}),
    "ratio": (Loss(objective="ratio"), "kl_cov", {"policy_loss": PolicyLossConfig(ppo_kl_coef=0.0)}),
}
"""The lab's loss, verl's name of it, and what verl's configuration must say."""
OTHER = {
    "sapo": "a soft gate instead of the clip",
    "geo_mean": "the ratio is the geometric mean of clipped ratios",
    "dro": "a quadratic penalty on every token's log-ratio",
    "dppo_tv": "a trust region of the probability, not of the ratio",
    "dppo_kl": "a trust region of the divergence, not of the ratio",
    "bypass_mode": "chooses one of the others for log-probs of the sampler",
}
"""verl's losses that the lab has none of, and why. clip_cov and kl_cov have tests of their own."""


def result(loss: torch.Tensor, logprob: torch.Tensor) -> tuple[float, np.ndarray]:
    """The loss and its gradient by the log-probs."""
    loss.backward()
    return loss.item(), logprob.grad.numpy()


def tensor(values: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.float32))


def by_verl(
    mode: str, loss: Loss, batch: Batch, new: np.ndarray, advantage: np.ndarray, tis: np.ndarray | None = None,
    **settings: Any,
) -> tuple[float, np.ndarray, dict[str, float]]:  # fmt: skip
    """verl's loss of this name, its gradient and its metrics."""
    config = ActorConfig(
        strategy="fsdp", rollout_n=1, ppo_micro_batch_size_per_gpu=1,
        clip_ratio_low=loss.clip_low, clip_ratio_high=loss.clip_high,
        global_batch_info={"loss_scale_factor": batch.max_length}, **settings,
    )  # fmt: skip
    logprob, mask = tensor(new).requires_grad_(), torch.from_numpy(batch.mask.astype(np.int64))
    value, metrics = get_policy_loss_fn(mode)(
        tensor(batch.trainer_logprob), logprob, tensor(advantage), mask, AGGREGATION[loss.aggregation], config,
        None if tis is None else tensor(tis),
    )  # fmt: skip
    return *result(value, logprob), metrics


def by_lab(
    loss: Loss, batch: Batch, new: np.ndarray, advantage: np.ndarray, tis: np.ndarray | None = None,
    penalty: TokenPenalty | None = None,
) -> tuple[float, np.ndarray]:  # fmt: skip
    """The lab's loss and its gradient, with every rollout in one minibatch."""
    one = np.zeros(len(batch.group), dtype=int)
    weight = tensor(loss_weights(batch.mask, batch.length, batch.max_length, loss.aggregation, one))
    logprob, mask = tensor(new).requires_grad_(), torch.from_numpy(batch.mask)
    terms = policy_terms(loss, logprob, tensor(batch.trainer_logprob), tensor(advantage), mask, penalty)
    value = (weight * (1.0 if tis is None else tensor(tis)) * terms.term).sum()
    if terms.penalty is not None:
        value = value + (weight * terms.penalty).sum()
    return result(value, logprob)


def agree(ours: tuple[float, np.ndarray], theirs: tuple[Any, ...]) -> None:
    assert ours[0] == pytest.approx(theirs[0], rel=1e-5, abs=1e-6)
    assert np.abs(theirs[1]).max() > 0
    np.testing.assert_allclose(ours[1], theirs[1], rtol=1e-5, atol=1e-7)


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.mark.parametrize("aggregation", AGGREGATION)
@pytest.mark.parametrize("name", OBJECTIVES)
def test_loss_and_gradient(name: str, aggregation: str, case: Case) -> None:
    loss, mode, settings = OBJECTIVES[name]
    loss = replace(loss, aggregation=aggregation)
    advantage = compute(build("a3po", base="grpo"), case.batch).advantage  # not the same along a response
    agree(
        by_lab(loss, case.batch, case.new_logprob, advantage),
        by_verl(mode, loss, case.batch, case.new_logprob, advantage, **settings),
    )


def test_the_ratios_are_wide_enough_for_every_bound() -> None:
    wide = CASES["wide_ratio-31"]
    ratio = np.exp(wide.new_logprob - wide.batch.trainer_logprob)[wide.batch.mask]
    advantage = compute(build("grpo"), wide.batch).advantage[wide.batch.mask]
    assert ((ratio < 0.8) & (advantage < 0)).any()
    assert ((ratio > 1.28) & (advantage > 0)).any()
    assert ((ratio > 3) & (advantage < 0)).any()


def test_every_loss_of_verl_is_compared_or_named() -> None:
    compared = {mode for _, mode, _ in OBJECTIVES.values()} | {"clip_cov", "kl_cov"}
    assert POLICY_LOSS_REGISTRY.keys() == compared | OTHER.keys()
    assert not compared & OTHER.keys()


GOLDEN = {
    "ppo_clip_0.2_seqmean": ("ppo", "sequence_mean"),
    "dapo_0.2_0.28_tokenmean": ("dapo", "token_mean"),
    "dapo_0.2_0.28_dual3_tokenmean": ("dual_clip", "token_mean"),
    "dr_grpo_0.2_sumnorm": ("ppo", "fixed_length"),
    "gspo_3e-4_4e-4": ("gspo", "sequence_mean"),
    "cispo_1_0.28_tokenmean": ("cispo", "token_mean"),
}


def test_verl_gives_the_golden_numbers(case: Case) -> None:
    advantage = compute(build("grpo"), case.batch).advantage
    for key, expected in case.golden.get("loss", {}).items():
        name, aggregation = GOLDEN[key]
        loss, mode, settings = OBJECTIVES[name]
        loss = replace(loss, aggregation=aggregation)
        value, gradient, _ = by_verl(mode, loss, case.batch, case.new_logprob, advantage, **settings)
        assert value == pytest.approx(expected["loss"], abs=1e-5), key
        for row, listed in zip(gradient, expected["grad"], strict=True):
            np.testing.assert_allclose(row[: len(listed)], listed, atol=1e-5, err_msg=key)


def test_kl_k3(case: Case) -> None:
    """Up to 10 nats a token: there verl cuts it."""
    new, again = (tensor(case.new_logprob).requires_grad_() for _ in range(2))
    reference = tensor(case.batch.ref_logprob)
    mine, theirs = kl_k3(new, reference), kl_penalty(again, reference, "k3")
    uncut = mine.detach() < 10
    assert uncut.float().mean() > 0.9
    agree(result(mine[uncut].sum(), new), result(theirs[uncut].sum(), again))


@pytest.mark.parametrize("cap", [1.1, 2.0])
def test_weights_between_sampler_and_trainer(cap: float, case: Case) -> None:
    batch = case.batch
    gap = tensor(np.where(batch.mask, batch.trainer_logprob - batch.sampler_logprob, 0.0))
    theirs, _ = compute_rollout_correction_weights(gap, tensor(batch.mask), "token", cap)
    mine = np.where(batch.mask, tis_weights(batch.sampler_logprob, batch.trainer_logprob, cap), 0.0)
    np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-5)
    loss, advantage = Loss(clip_high=0.28), compute(build("dapo"), batch).advantage
    agree(
        by_lab(loss, batch, case.new_logprob, advantage, mine),
        by_verl("vanilla", loss, batch, case.new_logprob, advantage, theirs.numpy(), clip_ratio_c=NEVER),
    )


def near(case: Case) -> tuple[Batch, Batch, np.ndarray]:
    """The batch that the lab's covariance rule is given, the batch that the losses are, and the policy's log-probs.

    verl's rule reads the current policy, the lab's the one at the start of the step; here both are given the current
    one, which is 0.01 to 0.1 nats from the old: no ratio leaves the clip's bounds, where verl would take a token from
    Clip-Cov's draw. No two tokens of the policy are equally likely: of equals each chooses its own.
    """
    draw, shape = np.random.default_rng(5), case.new_logprob.shape
    new = case.new_logprob - draw.uniform(0, 0.05, shape)
    old = new + draw.uniform(0.01, 0.1, shape) * draw.choice([-1, 1], shape)
    return replace(case.batch, trainer_logprob=new), replace(case.batch, trainer_logprob=old), new


def test_kl_cov(case: Case) -> None:
    ratio, coefficient = 0.05, 0.7
    method = build("kl_cov", base="grpo", params={"ratio": ratio, "coefficient": coefficient})
    seen, batch, new = near(case)
    trace = compute(method, seen)
    penalty = TokenPenalty(trace.penalty.form, tensor(trace.penalty.coefficient))
    settings = PolicyLossConfig(kl_cov_ratio=ratio, ppo_kl_coef=coefficient)
    agree(
        by_lab(method.loss, batch, new, trace.advantage, penalty=penalty),
        by_verl("kl_cov", method.loss, batch, new, trace.advantage, policy_loss=settings),
    )


def clip_cov(case: Case, ratio: float) -> tuple[float, tuple[float, np.ndarray], tuple[Any, ...]]:
    """The share of tokens that the lab draws; its loss and gradient, and verl's with its metrics."""
    low, high = 0.2, 1.5
    method = build("clip_cov", base="grpo", params={"ratio": ratio, "cov_low": low, "cov_high": high})
    seen, batch, new = near(case)
    trace = compute(method, seen)
    (drawn,) = trace.factors
    settings = PolicyLossConfig(clip_cov_ratio=ratio, clip_cov_lb=low, clip_cov_ub=high)
    before = np.where(seen.mask, trace.base[:, None], 0.0)
    return (
        1 - drawn.values[seen.mask].mean(),
        by_lab(method.loss, batch, new, trace.advantage),
        by_verl("clip_cov", method.loss, batch, new, before, policy_loss=settings),
    )


def test_clip_cov_where_all_between_the_bounds_are_drawn(case: Case) -> None:
    share, ours, theirs = clip_cov(case, ratio=0.9)
    assert 0 < share < 0.9
    agree(ours, theirs)


def test_clip_cov_draws_as_many(case: Case) -> None:
    """Which ones is chance, another in each."""
    share, _, (_, _, metrics) = clip_cov(case, ratio=0.02)
    assert share > 0
    assert share == pytest.approx(metrics["actor/pg_clipfrac"], abs=1e-6)
