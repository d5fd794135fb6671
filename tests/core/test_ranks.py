"""How work is split over ranks: whole groups, neighbours together, about the same size each, every group once."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.ranks import ALONE, Ranks
from tests.ranks import Threads


def rank(number: int, world: int) -> Ranks:
    one = Ranks()
    one.rank, one.world = number, world
    return one


def test_alone_everything_is_its_own() -> None:
    array = np.arange(6.0).reshape(3, 2)
    ALONE.fill(np.ones(3, dtype=bool), array)
    assert array.tolist() == [[0, 1], [2, 3], [4, 5]]
    assert ALONE.mine(np.array([0, 0, 7]), np.array([1, 2, 3])).all()
    assert (ALONE.owners(np.ones(3)) == 0).all()
    assert (ALONE.first, ALONE.gather("x"), ALONE.broadcast("x")) == (True, ["x"], "x")


@pytest.mark.parametrize(
    ("sizes", "world", "owners"),
    [
        ([1, 1, 1, 1], 2, [0, 0, 1, 1]),
        ([1, 1, 1], 2, [0, 1, 1]),
        ([1, 1, 1, 1, 1, 1, 1, 1], 3, [0, 0, 0, 1, 1, 2, 2, 2]),
        ([30, 10, 10, 10], 2, [0, 1, 1, 1]),
        ([5], 4, [2]),
        ([], 2, []),
        ([0, 0], 2, [0, 0]),
        ([7, 0], 2, [1, 1]),
    ],
)
def test_owners(sizes: list[int], world: int, owners: list[int]) -> None:
    assert rank(0, world).owners(np.array(sizes, dtype=float)).tolist() == owners


@given(
    sizes=st.lists(st.integers(1, 50), min_size=1, max_size=40), world=st.integers(1, 6), group_size=st.integers(1, 4)
)
def test_every_rollout_has_one_owner_and_no_group_two(sizes: list[int], world: int, group_size: int) -> None:
    group = 3 + np.repeat(np.arange(len(sizes)), group_size)
    size = np.repeat(sizes, group_size)
    mine = np.array([rank(number, world).mine(group, size) for number in range(world)])
    assert (mine.sum(axis=0) == 1).all()
    assert all(mine[:, group == g].any(axis=1).sum() == 1 for g in np.unique(group))
    loads = mine @ size
    assert loads.max() <= size.sum() / world + group_size * max(sizes), "one rank got more than a group too much"


def test_filling_completes_what_each_rank_has_done() -> None:
    group = np.repeat(np.arange(4), 2)

    def work(ranks: Ranks) -> tuple[np.ndarray, np.ndarray]:
        mine = ranks.mine(group, np.ones(8))
        numbers, marks = np.zeros((8, 3)), np.zeros(8, dtype=bool)
        numbers[mine], marks[mine] = ranks.rank + 1, True
        ranks.fill(mine, numbers, marks)
        return numbers, marks

    for numbers, marks in Threads(2).run(work):
        assert numbers[:, 0].tolist() == [1, 1, 1, 1, 2, 2, 2, 2]
        assert marks.all()
