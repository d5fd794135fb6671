"""The processes that train one run together: each is a rank, and owns whole groups of the work.

`Ranks` itself is the form of a process that trains alone, where everything is its own and nothing is waited for;
`core.train.ranks` joins several. No torch here: the store writes by ranks too.
"""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np

T = TypeVar("T")


class Ranks:
    """One process that trains alone."""

    rank: int = 0
    world: int = 1

    @property
    def first(self) -> bool:
        """Whether this process speaks for all: status, metrics, checkpoints and the adapter are rank 0's alone."""
        return self.rank == 0

    def gather(self, value: T) -> list[T]:
        """Every rank's value, in the order of the ranks; nobody goes on before all are there."""
        return [value]

    def broadcast(self, value: T) -> T:
        """Rank 0's value."""
        return value

    def sum(self, tensors: list[Any]) -> None:
        """Replace each of these torch tensors by its sum over the ranks, which is the same everywhere."""

    def owners(self, sizes: np.ndarray) -> np.ndarray:
        """(n,) the rank of each of n groups: neighbours stay together, and every rank gets about the same size."""
        if self.world == 1:
            return np.zeros(len(sizes), dtype=np.int64)
        middles = np.cumsum(sizes) - np.asarray(sizes) / 2
        total = max(1.0, float(np.sum(sizes)))
        return np.minimum(middles * self.world // total, self.world - 1).astype(np.int64)

    def mine(self, group: np.ndarray, size: np.ndarray) -> np.ndarray:
        """(N,) bool: which of N rollouts, of these groups and sizes, this rank works on. A group is never split."""
        if self.world == 1:
            return np.ones(len(group), dtype=bool)
        _, index = np.unique(group, return_inverse=True)
        return self.owners(np.bincount(index, size))[index] == self.rank

    def fill(self, mine: np.ndarray, *arrays: np.ndarray) -> None:
        """Complete (N, ...) arrays, in which each rank has filled its own rows ((N,) bool), with the others' rows."""
        if self.world == 1:
            return
        for rows, parts in self.gather((np.flatnonzero(mine), [array[mine] for array in arrays])):
            for array, part in zip(arrays, parts, strict=True):
                array[rows] = part


ALONE = Ranks()
