import hashlib

import numpy as np

from core.engines.base import SampleKey
from core.engines.uniforms import uniforms

KEY = SampleKey(seed=3, split="train", step=5)


def test_a_draw_depends_on_its_own_place_only():
    rows = [(group, rollout) for group in range(4) for rollout in range(3)]
    together = uniforms(KEY, rows, 16)
    for index, row in enumerate(rows):
        assert np.array_equal(uniforms(KEY, [row], 16)[0], together[index])
    assert np.array_equal(uniforms(KEY, rows, 5), together[:, :5])


def test_draws_are_those_of_a_counter_generator():
    """Philox keyed by (seed, split, step), its counter at (rollout, group): what recorded runs were sampled with."""
    key = np.frombuffer(hashlib.blake2b(b"3/train/5", digest_size=16).digest(), dtype="<u8").astype(np.uint64)
    for group, rollout in ((0, 0), (2, 5)):
        raw = np.random.Philox(key=key, counter=np.array([0, rollout, group, 0], dtype=np.uint64)).random_raw(10)
        assert np.array_equal(uniforms(KEY, [(1, 1), (group, rollout)], 10)[1], (raw >> np.uint64(11)) * 2.0**-53)


def test_first_group_continues_the_groups_of_the_step():
    whole = uniforms(KEY, [(6, 0), (7, 1)], 8)
    refill = uniforms(SampleKey(seed=3, split="train", step=5, first_group=6), [(0, 0), (1, 1)], 8)
    assert np.array_equal(whole, refill)


def test_every_part_of_the_key_changes_the_draws():
    keys = [
        KEY,
        SampleKey(seed=4, split="train", step=5),
        SampleKey(seed=3, split="probe", step=5),
        SampleKey(seed=3, split="train", step=6),
        SampleKey(seed=35, split="train", step=0),
    ]
    rows = [(0, 0), (0, 1), (1, 0)]
    draws = np.concatenate([uniforms(key, rows, 32).ravel() for key in keys])
    assert len(np.unique(draws)) == len(draws)


def test_uniform_between_0_and_1():
    draws = uniforms(KEY, [(group, 0) for group in range(200)], 200).ravel()
    assert draws.min() >= 0
    assert draws.max() < 1
    counts = np.histogram(draws, bins=20, range=(0, 1))[0]
    assert np.abs(counts - 2000).max() < 6 * np.sqrt(2000)
