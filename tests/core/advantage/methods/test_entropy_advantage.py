import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.advantage import build, compute
from tests.core.advantage.batches import batch, batches


@given(
    one=batches(),
    alpha=st.floats(0, 10),
    kappa=st.floats(1, 100),
)
def test_it_is_the_authors_sum(one, alpha, kappa):
    base = compute(build("grpo"), one).advantage
    found = compute(build("entropy_advantage", params={"alpha": alpha, "kappa": kappa}), one).advantage
    expected = np.where(
        one.mask & (base != 0), base + np.minimum(alpha * one.entropy.astype("f4").astype("f8"), abs(base) / kappa), 0
    )
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_words():
    one = batch([0, 0], [1, 0], entropy=np.array([[0.1, 9, 0, 0], [0.1, 9, 0, 0]]))
    factor = compute(build("entropy_advantage", base="dr_grpo"), one).factors[0]
    assert factor.values[:, :2].ravel() == pytest.approx([1.08, 1.5, 0.92, 0.5])
    assert factor.explain(0, 1) == "0.5 + min(0.4 × 9, 0.5 / 2) = 0.75: H = 9 nats, cut at |A| / κ = 0.25"
