from dataclasses import replace

import numpy as np
import pytest

from core.advantage import build, compute
from tests.core.advantage.batches import batch


def many(seed=0, **changes):
    return batch([0, 0, 1, 1] * 5, [1, 0, 1, 0] * 5, [20] * 20, seed=seed, **changes)


def by_hand(one):
    advantage = compute(build("grpo"), one).advantage
    logprob = one.trainer_logprob.astype(np.float32).astype(float)
    return (advantage - advantage.mean()) * (logprob - logprob.mean())


def test_kl_cov_penalises_the_highest_covariances():
    one = many()
    trace = compute(build("kl_cov", base="grpo", params={"ratio": 0.02, "coefficient": 3}), one)
    cov, coefficient = by_hand(one), trace.penalty.coefficient
    chosen = coefficient > 0
    assert chosen.sum() == 8 and set(coefficient[chosen]) == {3}
    assert cov[chosen].min() > cov[~chosen].max()
    assert trace.penalty.form == "absolute" and trace.factors == []
    np.testing.assert_array_equal(trace.advantage, compute(build("grpo"), one).advantage)
    i, t = np.argwhere(chosen)[0]
    assert "is among the 8 highest of the step's 400 tokens (2 %)" in trace.penalty.explain(i, t)


def test_at_least_one_token_is_penalised_and_none_with_a_ratio_of_zero():
    assert (compute(build("kl_cov", base="grpo", params={"ratio": 0.0001}), many()).penalty.coefficient > 0).sum() == 1
    assert not compute(build("kl_cov", base="grpo", params={"ratio": 0}), many()).penalty.coefficient.any()


def test_the_finished_advantage_counts_whatever_the_order():
    one = many()
    first = compute(
        build("kl_cov", base="grpo", also=["token_shaping"], params={"negative_high_scale": 5, "kl_cov.ratio": 0.02}),
        one,
    )
    last = compute(
        build("token_shaping", base="grpo", also=["kl_cov"], params={"negative_high_scale": 5, "kl_cov.ratio": 0.02}),
        one,
    )
    np.testing.assert_array_equal(first.penalty.coefficient, last.penalty.coefficient)
    plain = compute(build("kl_cov", base="grpo", params={"ratio": 0.02}), one)
    assert (first.penalty.coefficient != plain.penalty.coefficient).any()


def test_clip_cov_draws_between_its_bounds():
    one = many()
    trace = compute(build("clip_cov", base="grpo", params={"ratio": 0.02, "cov_low": 0.5, "cov_high": 2}), one)
    cov, dropped = by_hand(one), trace.factors[0].values == 0
    assert dropped.sum() == 8
    assert ((cov[dropped] > 0.5) & (cov[dropped] < 2)).all()
    assert trace.kept.all() and not trace.advantage[dropped].any()  # they stay in the denominators


def test_clip_cov_draws_anew_each_step_and_seed_and_evenly():
    params = {"ratio": 0.1, "cov_low": -100, "cov_high": 100}
    drawn = [
        compute(build("clip_cov", base="grpo", params=params), replace(many(), step=step, seed=seed)).factors[0].values
        == 0
        for step in range(100)
        for seed in range(2)
    ]
    assert len({values.tobytes() for values in drawn}) == 200
    often = np.mean(drawn, axis=0)
    assert often.mean() == pytest.approx(0.1)
    assert often.min() > 0.1 - 5 * np.sqrt(0.09 / 200) and often.max() < 0.1 + 5 * np.sqrt(0.09 / 200)


def test_no_covariance_no_draw():
    assert (compute(build("clip_cov", base="grpo"), batch([0, 0], [1, 1])).factors[0].values == 1).all()
