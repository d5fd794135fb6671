"""Every method of the lab through verl's own calls, and verl's own estimators beside the lab's rules.

`test_verl.py` runs this with verl's environment.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from batches import MIN_P, TOTAL_STEPS, Case, cases, in_tool_width, rows_of, without_tool
from verl import DataProto
from verl.trainer.config import AlgoConfig
from verl.trainer.ppo.core_algos import AdvantageEstimator, get_adv_estimator_fn, register_adv_est
from verl.trainer.ppo.ray_trainer import compute_advantage

from core.advantage import AdvantageError, Batch, Method, build, compute, recipes
from core.exporters.files.lab_advantage import Estimator

CASES = {case.name: case for case in cases()}
COMPOSED = {
    "adora_on_a3po_matched": build("a3po", base="rloo", also=["adora_amplify"], mass_matched=True),
    "reinforce_pp_discounted": build("reinforce_pp", params={"gamma": 0.9}),
}
METHODS: dict[str, Method] = {name: build(name) for name in recipes()} | COMPOSED
LAB = {name: Estimator(method, total_steps=TOTAL_STEPS, proxy_min_p=MIN_P) for name, method in METHODS.items()}
for _name, _estimator in LAB.items():
    register_adv_est(f"lab_{_name}")(_estimator)

SAME = {
    "grpo": build("grpo"),
    "grpo_vectorized": build("grpo"),
    "rloo": build("rloo"),
    "rloo_vectorized": build("rloo"),
    "reinforce_plus_plus": build("reinforce_pp"),
    "reinforce_plus_plus_baseline": build("reinforce_pp_baseline"),
}
"""verl's estimators that are rules of the lab."""
OTHER = {
    "gae": "wants a critic's values",
    "remax": "wants a greedy response's reward",
    "opo": "the baseline weighs rewards by length",
    "grpo_passk": "arXiv 2503.19595: the best response alone, by its lead; the lab's pass_at_k is arXiv 2508.10751",
    "gpg": "scales by the share of rollouts without a reward",
    "gdpo": "normalises several rewards apart, then whitens",
    "optimal_token_baseline": "a baseline a token, from squared probabilities",
    "tir_optimal_token_baseline": "the same over several turns",
}
"""verl's estimators that no rule of the lab is, and why."""


def by_verl(data: DataProto, name: str, gamma: float = 1.0, by_std: bool = True) -> np.ndarray:
    """(n, L) advantages by the call that verl's trainer makes."""
    config = AlgoConfig(gamma=gamma, adv_estimator=name, norm_adv_by_std_in_grpo=by_std)
    return (
        compute_advantage(data, name, gamma=gamma, norm_adv_by_std_in_grpo=by_std, config=config)
        .batch["advantages"]
        .numpy()
    )


def by_lab(method: Method, batch: Batch) -> np.ndarray:
    """(N, max_length) advantages by `core.advantage` alone."""
    return widened(compute(method, batch).advantage, batch)


def widened(values: np.ndarray, batch: Batch) -> np.ndarray:
    return np.pad(values, ((0, 0), (0, batch.max_length - values.shape[1])))


def alone(batch: Batch) -> np.ndarray:
    """(N,) bool: the rollout is the only one of its group."""
    return np.array([(batch.group == group).sum() == 1 for group in batch.group])


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


def check_call(name: str, case: Case, with_tool: bool) -> None:
    """The trainer's call gives what `core.advantage` gives, or the same refusal."""
    batch = in_tool_width(case.batch) if with_tool else case.batch
    data, estimator = case.proto(with_tool), LAB[name]
    estimator.show(data.batch, step=batch.step)
    try:
        expected = compute(METHODS[name], batch)
    except AdvantageError as error:
        assert case.name == "odd-0"
        with pytest.raises(AdvantageError, match=re.escape(str(error))):
            by_verl(data, f"lab_{name}")
        return
    found, kept = by_verl(data, f"lab_{name}"), estimator.kept.numpy()
    outside = data.batch["response_mask"].numpy() == 0
    assert not found[outside].any()
    assert not kept[outside].any()
    if with_tool:
        found, kept = without_tool(found), without_tool(kept)
    np.testing.assert_allclose(found, widened(expected.advantage, case.batch), rtol=1e-6, atol=1e-7)
    np.testing.assert_array_equal(kept, widened(expected.kept, case.batch))


@pytest.mark.parametrize("name", METHODS)
def test_the_trainers_call_gives_the_labs_numbers(name: str, case: Case) -> None:
    check_call(name, case, with_tool=False)


@pytest.mark.parametrize("case_name", ["binary-3", "partial_credit-21", "odd-0"])
@pytest.mark.parametrize("name", METHODS)
def test_a_tools_output_within_a_response_changes_nothing(name: str, case_name: str) -> None:
    check_call(name, CASES[case_name], with_tool=True)


@pytest.mark.parametrize("name", METHODS)
def test_the_registered_function_takes_the_tensors_itself(name: str) -> None:
    """And no method is compared on zeros alone."""
    each = CASES["partial_credit-21"]
    data = each.proto()
    advantages, returns = get_adv_estimator_fn(f"lab_{name}")(
        **dict(data.batch.items()), index=data.non_tensor_batch["uid"], config=AlgoConfig(), step=each.batch.step
    )
    assert advantages.dtype == torch.float32
    assert torch.equal(advantages, returns)
    assert advantages.any()
    np.testing.assert_allclose(advantages.numpy(), by_lab(METHODS[name], each.batch), rtol=1e-6, atol=1e-7)


def test_what_was_shown_serves_one_batch() -> None:
    data, estimator = CASES["binary-1"].proto(), LAB["a3po"]
    estimator.show(data.batch)
    by_verl(data, "lab_a3po")
    with pytest.raises(AdvantageError, match="needs sampler_logprob"):
        by_verl(data, "lab_a3po")


def test_a_response_without_a_token_is_refused_by_name() -> None:
    data = CASES["binary-1"].proto()
    data.batch["response_mask"][2] = 0
    with pytest.raises(AdvantageError, match="length of rollout 2 must be at least 1"):
        by_verl(data, "lab_grpo")


def test_padding_rows_are_left_out_where_there_are_some() -> None:
    """verl fills a batch up with rows of no response token: no rule sees them."""
    each, padded = CASES["partial_credit-21"], Estimator(METHODS["grpo"], padding=True)
    data = each.proto()
    data.batch["response_mask"][2] = 0
    rows = np.delete(np.arange(len(each.batch.group)), 2)
    found, _ = padded(**dict(data.batch.items()), index=data.non_tensor_batch["uid"])
    assert not found[2].any() and found.any()
    np.testing.assert_allclose(found.numpy()[rows], by_lab(METHODS["grpo"], rows_of(each.batch, rows)), rtol=1e-6)


def test_lengths_cost_and_correctness_is_what_is_shown() -> None:
    each = CASES["binary-1"]
    data, batch = each.proto(), each.batch
    cost = -0.01 * batch.length
    lab = Estimator(METHODS["psr"], cost=lambda length: -0.01 * length)
    lab.show(data.batch, correct=~batch.correct)
    found, _ = lab(**dict(data.batch.items()), index=data.non_tensor_batch["uid"])
    expected = replace(batch, reward=batch.reward + cost, correct=~batch.correct)
    np.testing.assert_allclose(found.numpy(), by_lab(METHODS["psr"], expected), rtol=1e-6, atol=1e-7)
    np.testing.assert_allclose(lab.reward, expected.reward)


def test_every_estimator_of_verl_is_compared_or_named() -> None:
    assert {each.value for each in AdvantageEstimator} == SAME.keys() | OTHER.keys()
    assert not SAME.keys() & OTHER.keys()


@pytest.mark.parametrize("name", SAME)
def test_verls_own_estimator_is_the_labs_rule(name: str, case: Case) -> None:
    """Rollouts that are alone in their group are left out: the two tests below have what becomes of them."""
    data, batch = case.proto(), case.batch
    together = np.flatnonzero(~alone(batch))
    data, batch = data.select_idxs(together.tolist()), rows_of(batch, together)
    np.testing.assert_allclose(by_verl(data, name), by_lab(SAME[name], batch), rtol=1e-5, atol=1e-6)


def test_grpo_without_the_deviation_is_dr_grpo(case: Case) -> None:
    together = ~alone(case.batch)
    found, expected = by_verl(case.proto(), "grpo", by_std=False), by_lab(build("dr_grpo"), case.batch)
    np.testing.assert_allclose(found[together], expected[together], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["grpo", "grpo_vectorized", "rloo"])
def test_alone_in_its_group_verl_gives_the_reward_and_the_lab_nothing(name: str) -> None:
    odd = CASES["odd-0"]
    lone = alone(odd.batch)
    np.testing.assert_allclose(by_verl(odd.proto(), name)[lone, 0], odd.batch.reward[lone], rtol=1e-5)
    assert not by_lab(SAME[name], odd.batch)[lone].any()


def test_of_equal_rewards_verls_rounding_makes_a_signal_and_the_lab_none() -> None:
    """Seven rewards of 0.8: their mean in float32 is not 0.8, and the deviation that divides the rest is as small."""
    batch = rows_of(CASES["partial_credit-21"].batch, np.arange(7))
    batch = replace(batch, group=np.zeros(7, dtype=int), reward=np.full(7, 0.8))
    data = Case("equal", batch, batch.trainer_logprob, {}).proto()
    assert 0.01 < np.abs(by_verl(data, "grpo")).max() < 0.1
    assert not by_lab(build("grpo"), batch).any()
