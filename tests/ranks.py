"""Ranks that are threads of one process, for what only has to meet; processes that train are joined for real."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from core.ranks import Ranks


class Threads:
    """`Threads(3).run(work)` calls `work(ranks)` in three threads and returns what each gave."""

    def __init__(self, world: int):
        self.world, self.values = world, [None] * world
        self.barrier = threading.Barrier(world, timeout=60)

    def run(self, work: Callable[[Ranks], Any]) -> list[Any]:
        with ThreadPoolExecutor(self.world) as pool:
            return list(pool.map(work, [ThreadRank(rank, self) for rank in range(self.world)]))


class ThreadRank(Ranks):
    def __init__(self, rank: int, team: Threads):
        self.rank, self.world, self.team = rank, team.world, team

    def gather(self, value: Any) -> list[Any]:
        self.team.values[self.rank] = value
        self.team.barrier.wait()
        together = list(self.team.values)
        self.team.barrier.wait()
        return together
