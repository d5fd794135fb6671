"""The walk through a task's pool of training prompts: seeded shuffled epochs, a position that checkpoints keep."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from core.tasks.base import Prompt


class Cursor:
    """Hands out the pool's prompts in a new order each epoch; `state()` is all that resuming needs.

    A step never holds a prompt twice: where two epochs meet, a prompt that the step already has waits for the next one.
    """

    def __init__(self, pool: Sequence[Prompt], seed: int):
        self.pool = list({prompt.id: prompt for prompt in pool}.values())
        self.seed = seed
        self.epoch = 0
        self.position = 0  # in the order of `epoch`
        self.waiting: list[int] = []  # indices passed over, first in line
        self._order = self._shuffled(0)

    def take(self, count: int, taken: Collection[str] = ()) -> list[Prompt]:
        """The next `count` prompts whose ids are not in `taken`; fewer where the pool has no more of them."""
        seen = set(taken)
        chosen: list[Prompt] = []
        waiting: list[int] = []
        room = sum(prompt.id not in seen for prompt in self.pool)
        while len(chosen) < min(count, room):
            index = self.waiting.pop(0) if self.waiting else self._next()
            prompt = self.pool[index]
            if prompt.id in seen:
                waiting.append(index)
            else:
                seen.add(prompt.id)
                chosen.append(prompt)
        self.waiting = waiting + self.waiting
        return chosen

    @property
    def digest(self) -> str:
        """A hash of the pool, in which the walk is a row of places: another pool is another walk."""
        told = "\n".join(f"{prompt.id} {prompt.answer}" for prompt in self.pool)
        return hashlib.sha256(told.encode("utf-8", "surrogatepass")).hexdigest()[:12]

    def state(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "position": self.position, "waiting": list(self.waiting)}

    def restore(self, state: dict[str, Any]) -> None:
        self.epoch, self.position = int(state["epoch"]), int(state["position"])
        self.waiting = [int(index) for index in state["waiting"]]
        self._order = self._shuffled(self.epoch)

    def _next(self) -> int:
        if self.position == len(self._order):
            self.epoch, self.position = self.epoch + 1, 0
            self._order = self._shuffled(self.epoch)
        self.position += 1
        return int(self._order[self.position - 1])

    def _shuffled(self, epoch: int) -> np.ndarray:
        return np.random.Generator(np.random.Philox(key=[self.seed, epoch])).permutation(len(self.pool))
