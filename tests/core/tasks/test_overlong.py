"""DAPO's soft overlong penalty, by hand and by its equation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.tasks.overlong import soft_overlong


def test_the_penalty_grows_over_the_buffer_alone() -> None:
    length = np.array([1, 80, 81, 85, 95, 99, 100])
    assert soft_overlong(length, 100, 20).tolist() == [0.0, 0.0, -0.05, -0.25, -0.75, -0.95, -1.0]
    assert soft_overlong(length, 100, 20, factor=0.5).tolist() == [0.0, 0.0, -0.025, -0.125, -0.375, -0.475, -0.5]


def test_a_buffer_of_zero_is_off_and_one_of_the_whole_limit_reaches_every_token() -> None:
    assert soft_overlong(np.array([1, 100]), 100, 0).tolist() == [0.0, 0.0]
    assert soft_overlong(np.array([0, 1, 4]), 4, 4).tolist() == [0.0, -0.25, -1.0]


@pytest.mark.parametrize("beyond", [101, 400])
def test_nothing_costs_more_than_the_factor(beyond: int) -> None:
    assert soft_overlong(np.array([beyond]), 100, 20, factor=3.0).tolist() == [-3.0]


@given(
    limit=st.integers(1, 4096), share=st.floats(0.01, 1), factor=st.floats(0.01, 10), length=st.integers(0, 5000)
)  # fmt: skip
def test_it_is_equation_13(limit: int, share: float, factor: float, length: int) -> None:
    buffer = max(1, int(share * limit))
    if length <= limit - buffer:
        wanted = 0.0
    elif length <= limit:
        wanted = ((limit - buffer) - length) / buffer
    else:
        wanted = -1.0
    (got,) = soft_overlong(np.array([length]), limit, buffer, factor)
    assert got == pytest.approx(factor * wanted)
