import numpy as np
import pytest

from core.advantage import build, compute
from core.advantage.ranking import counts, top
from tests.core.advantage.batches import batch, one_response

OFF = {f"{p}_{e}_ratio": 0 for p in ("positive", "negative") for e in ("high", "low")}


def shaping(batch_, **params):
    trace = compute(build("token_shaping", params=OFF | params), batch_)
    return next(factor for factor in trace.factors if factor.id == "token_shaping")


PROBABILITIES = [0.9, 0.1, 0.5, 0.3, 0.7]


def test_only_the_named_end_of_the_named_polarity():
    low = shaping(one_response(PROBABILITIES, True), positive_low_ratio=0.4, positive_low_scale=3)
    assert low.values[0].tolist() == [1, 3, 1, 3, 1]
    assert (low.values[1] == 1).all()
    high = shaping(one_response(PROBABILITIES, False), negative_high_ratio=0.4, negative_high_scale=5)
    assert high.values[0].tolist() == [5, 1, 1, 1, 5]


def test_a_token_in_two_sets_gets_both_factors():
    both = shaping(
        one_response(PROBABILITIES, True),
        positive_low_ratio=0.8, positive_low_scale=2, positive_high_ratio=0.6, positive_high_scale=5,
    )  # fmt: skip
    assert both.values[0].tolist() == [5, 2, 10, 2, 10]
    assert "lowest" in both.explain(0, 2) and "highest" in both.explain(0, 2)


def test_entropy_as_the_metric_leaves_out_zero_entropies():
    one = one_response([0.5] * 5, True)
    one.entropy[0] = [0.0, 0.3, 0.0, 0.2, 0.9]
    found = shaping(one, metric="entropy", positive_low_ratio=0.7, positive_low_scale=2)
    assert found.values[0].tolist() == [1, 2, 1, 2, 1]  # int(0.7 x 3) = 2 of the three that are not 0


def test_all_metrics_zero_scales_nothing():
    one = one_response([0.5] * 3, True)
    one.entropy[:] = 0
    assert (shaping(one, metric="entropy", positive_low_ratio=1, positive_low_scale=2).values == 1).all()


@pytest.mark.parametrize(
    ("ratio", "n", "count"),
    [(0.2, 1, 1), (0.2, 4, 1), (0.2, 10, 2), (0.2, 14, 2), (1, 3, 3), (0, 9, 0), (0.5, 0, 0)],
)
def test_counts(ratio, n, count):
    assert counts(ratio, np.array([n])).tolist() == [count]


@pytest.mark.parametrize("highest", [True, False])
def test_ties_go_to_the_earlier_position(highest):
    metric = np.full((1, 6), 0.5)
    assert top(metric, np.ones((1, 6), dtype=bool), np.array([2]), highest).tolist() == [[True, True] + [False] * 4]


def test_padding_is_never_chosen():
    short = batch([0, 0], [1, 0], [2, 9])
    found = shaping(short, positive_high_ratio=1, positive_high_scale=7)
    assert found.values[0].tolist() == [7, 7] + [1] * 7


@pytest.mark.parametrize("params", [{}, OFF, OFF | {"positive_low_scale": 2}, {"metric": "entropy"}])
def test_no_ratio_or_no_scale_is_off_and_needs_nothing(params):
    method = build("token_shaping", params=params)
    assert method.needs == frozenset()
    bare = batch([0, 0], [1, 0], sampler_logprob=None, trainer_logprob=None, entropy=None)
    assert (compute(method, bare).factors[0].values == 1).all()


def test_needs_follow_the_metric():
    assert build("token_shaping", params={"positive_low_scale": 2}).needs == {"sampler_logprob"}
    assert build("token_shaping", params={"metric": "entropy", "positive_low_scale": 2}).needs == {"entropy"}


def test_a_scale_alone_acts_on_a_fifth_of_the_response():
    trace = compute(build("token_shaping", params={"negative_high_scale": 5}), one_response(PROBABILITIES, False))
    assert trace.factors[0].values[0].tolist() == [5, 1, 1, 1, 1]
    assert (trace.factors[0].values[1] == 1).all()


def test_only_tokens_below_a_limit_are_counted_and_ranked():
    one = one_response([1.0, 0.99, 0.9, 0.4, 0.2], False)
    found = shaping(one, negative_high_ratio=0.5, negative_high_scale=5, p_below=0.95)
    assert found.values[0].tolist() == [1, 1, 5, 1, 1]
    assert found.explain(0, 1) == "p = 0.99: p is not below 0.95, so it is not ranked"
    limited = build("token_shaping", params={"metric": "entropy", "negative_high_scale": 5, "p_below": 0.9})
    assert limited.needs == {"sampler_logprob", "entropy"}
