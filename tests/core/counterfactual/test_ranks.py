import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.counterfactual.ranks import average_ranks, spearman

few = st.lists(st.tuples(st.sampled_from([-1.5, 0, 0.5, 2, 7]), st.integers(-3, 3)), min_size=2, max_size=30)


def test_equal_values_share_the_mean_of_their_ranks():
    assert average_ranks(np.array([3.0, 1.0, 3.0, 2.0, 3.0])).tolist() == [4, 1, 4, 2, 4]
    assert average_ranks(np.array([])).tolist() == []


def test_some_are_ranked_among_themselves():
    values = np.array([5.0, 9.0, 1.0, 5.0])
    assert average_ranks(values, np.array([2, 0, 3])).tolist() == [2.5, 0, 1, 2.5]


@given(few)
def test_as_pandas_has_it(pairs):
    a, b = (np.array(side, dtype=float) for side in zip(*pairs, strict=True))
    assert average_ranks(a).tolist() == pd.Series(a).rank().tolist()
    found = spearman(a, b)
    if len(set(a)) == 1 or len(set(b)) == 1:
        assert found is None
    else:
        assert found == pytest.approx(pd.Series(a).rank().corr(pd.Series(b).rank()), abs=1e-12)


@given(few)
def test_only_the_order_counts(pairs):
    a, b = (np.array(side, dtype=float) for side in zip(*pairs, strict=True))
    found = spearman(a, b)
    assert spearman(np.exp(a), b**3) == (None if found is None else pytest.approx(found, abs=1e-12))
    assert spearman(b, a) == (None if found is None else pytest.approx(found, abs=1e-12))
    assert spearman(-a, b) == (None if found is None else pytest.approx(-found, abs=1e-12))


def test_without_numbers_there_is_none():
    assert spearman(np.array([]), np.array([])) is None
