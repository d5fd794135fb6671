"""Sampling by several ranks: each its own groups with an engine of its own, and all of them get all rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from core.engines.base import Engine, Rollouts, SampleKey, Sampling
from core.ranks import Ranks


class SharedEngine:
    """The rollouts of one process, whatever the number of ranks: draws are keyed by the group, not by who samples."""

    def __init__(self, engine: Engine, ranks: Ranks):
        self.engine, self.ranks = engine, ranks

    def generate(
        self, prompts: Sequence[str], group_size: int, sampling: Sampling, key: SampleKey, adapter: int = 0
    ) -> Rollouts:
        """Every rank calls it with the same arguments. A rank without a prompt of its own just waits."""
        mine = np.flatnonzero(self.ranks.owners(np.ones(len(prompts))) == self.ranks.rank)
        part = None
        if len(mine):
            own = replace(key, first_group=key.first_group + int(mine[0]))
            part = self.engine.generate([prompts[i] for i in mine], group_size, sampling, own, adapter)
        return join([part for part in self.ranks.gather(part) if part is not None])

    def close(self) -> None:
        self.engine.close()


def join(parts: Sequence[Rollouts]) -> Rollouts:
    """The rollouts of several draws under one another; what pads the shorter ones is 0."""
    width = max(part.token_ids.shape[1] for part in parts)

    def column(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        if any(value is None for value in values):
            return None
        if isinstance(values[0], list):
            return [item for value in values for item in value]
        if values[0].ndim == 2:
            values = [np.pad(value, ((0, 0), (0, width - value.shape[1]))) for value in values]
        return np.concatenate(values)

    return Rollouts(**{field.name: column(field.name) for field in fields(Rollouts)})
