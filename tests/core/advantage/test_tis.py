"""The truncated weight between sampler and trainer, and the numbers of the gap: by hand, at the cap, at extremes."""

import warnings

import numpy as np
import pytest

from core.advantage import gap_metrics, tis_weights
from core.advantage.tis import GAP_METRICS

SAMPLER = np.log(np.float32([0.5, 0.5, 0.2, 0.8]))
TRAINER = np.log(np.float32([0.5, 0.25, 0.5, 0.84]))
RATIO = [1.0, 0.5, 2.5, 1.05]


def test_weights_by_hand():
    np.testing.assert_allclose(tis_weights(SAMPLER, TRAINER, cap=2.0), [1.0, 0.5, 2.0, 1.05], rtol=1e-6)
    np.testing.assert_allclose(tis_weights(SAMPLER, TRAINER, cap=1.0), [1.0, 0.5, 1.0, 1.0], rtol=1e-6)
    np.testing.assert_allclose(tis_weights(SAMPLER, TRAINER, cap=9.0), RATIO, rtol=1e-6)


def test_equal_log_probs_weigh_exactly_one():
    assert (tis_weights(SAMPLER, SAMPLER, cap=1.0) == 1).all()


def test_weights_keep_the_shape_and_never_overflow():
    sampler = np.float32([[-1e30, -np.inf, -1000.0], [-1.0, -1.0, 0.0]])
    trainer = np.float32([[0.0, -1.0, -1.0], [-1e30, -np.inf, -1000.0]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        weights = tis_weights(sampler, trainer, cap=2.0)
    np.testing.assert_allclose(weights, [[2, 2, 2], [0, 0, 0]])


def test_gap_by_hand():
    found = gap_metrics(SAMPLER, TRAINER, beyond=0.1, cap=2.0)
    assert tuple(found) == GAP_METRICS
    assert found["gap_mean"] == pytest.approx(np.abs(np.log(RATIO)).mean(), rel=1e-6)
    assert found["gap_max"] == pytest.approx(np.log(2.5), rel=1e-6)
    assert found["gap_share"] == 0.5
    assert found["tis_mean_ratio"] == pytest.approx(np.mean(RATIO), rel=1e-6)
    assert found["tis_capped_share"] == 0.25


def test_without_a_cap_the_gap_is_still_measured():
    found = gap_metrics(SAMPLER, TRAINER, beyond=0.01, cap=None)
    assert found["tis_capped_share"] is None
    assert found["gap_share"] == 0.75
    assert found["tis_mean_ratio"] == pytest.approx(np.mean(RATIO), rel=1e-6), "before the cap, whatever it is"


def test_one_token_cannot_make_the_mean_ratio_infinite():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = gap_metrics(np.float32([-1e30, -1.0]), np.float32([0.0, -1.0]), 0.1, 2.0)
    assert np.isfinite(found["tis_mean_ratio"])
    assert found["gap_max"] == pytest.approx(1e30)


def test_no_token_has_no_gap():
    nothing = np.zeros(0, np.float32)
    assert gap_metrics(nothing, nothing, 0.1, 2.0) == dict.fromkeys(GAP_METRICS)


def test_over_draws_of_the_sampler_itself_the_mean_ratio_is_one():
    """However far two distributions are apart: what a distance from 1 says is something else."""
    random = np.random.default_rng(0)
    sampler, trainer = random.dirichlet([2] * 8), random.dirichlet([2] * 8)
    drawn = random.choice(8, size=200_000, p=sampler)
    found = gap_metrics(np.log(sampler[drawn]), np.log(trainer[drawn]), 0.1, 2.0)
    assert found["tis_mean_ratio"] == pytest.approx(1, abs=0.02)
    assert found["gap_mean"] > 0.3
