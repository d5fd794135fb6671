"""Short batches for tests of the advantage rules."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from core.advantage import PROXY_DROPPED, Batch


def batch(group, reward, length=None, truncated=None, *, max_length=20, seed=0, **changes) -> Batch:
    """A batch from lists; lengths default to 4 tokens, log-probs and entropies are random."""
    group, reward = np.array(group), np.array(reward, dtype=float)
    n = len(group)
    length = np.full(n, 4) if length is None else np.array(length)
    shape = (n, int(length.max()))
    mask = np.arange(shape[1]) < length[:, None]
    rng = np.random.default_rng(seed)
    logprob = np.where(mask, -rng.exponential(1.0, shape), 0.0)
    fields = {
        "group": group,
        "reward": reward,
        "correct": reward >= 0.5,
        "length": length,
        "truncated": np.zeros(n, dtype=bool) if truncated is None else np.array(truncated, dtype=bool),
        "max_length": max_length,
        "sampler_logprob": logprob,
        "trainer_logprob": logprob,
        "entropy": np.where(mask, rng.exponential(1.0, shape), 0.0),
        "proxy_logprob": np.where(rng.random(shape) < 0.3, PROXY_DROPPED, np.minimum(logprob + 0.1, 0.0)),
        "rollout": np.array([int((group[:i] == own).sum()) for i, own in enumerate(group)]),
        "total_steps": 100,
    }
    return Batch(**(fields | changes))


def one_response(probabilities, correct: bool, **changes) -> Batch:
    """Rollout 0 has these token probabilities; rollout 1 is of the other polarity, so that the group has a signal."""
    row = np.log(np.array(probabilities, dtype=float))
    logprob = np.stack([row, np.full(len(row), np.log(0.5))])
    return batch(
        [0, 0],
        [float(correct), float(not correct)],
        [len(row)] * 2,
        sampler_logprob=logprob,
        entropy=-logprob,
        **changes,
    )


@st.composite
def batches(draw, rewards=(0.0, 0.2, 0.4, 0.8, 1.0)) -> Batch:
    """Up to 5 groups of up to 6 rollouts of up to 12 tokens, in any order, partial credit and truncation included."""
    sizes = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    group = np.repeat(np.arange(len(sizes)), sizes)
    n = len(group)
    reward = draw(st.lists(st.sampled_from(rewards), min_size=n, max_size=n))
    length = np.array(draw(st.lists(st.integers(1, 12), min_size=n, max_size=n)))
    order = draw(st.permutations(range(n)))
    return batch(
        group[list(order)],
        reward,
        length,
        length == 12,
        max_length=12,
        seed=draw(st.integers(0, 99)),
        step=draw(st.integers(0, 150)),
    )
