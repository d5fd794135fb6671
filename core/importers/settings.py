"""The config of an imported run: what its rollouts show of how they were made, and defaults for what they do not."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from core.config import RunConfig, parse_run
from core.importers.fit import Convention
from core.importers.keys import Order
from core.importers.lab import Exported


def settings(
    name: str, order: Order, chosen: Convention, said: Exported | None = None, before: RunConfig | None = None
) -> RunConfig:
    """The run's settings: what lab.json `said` of it, and what its rollouts show. Those of an earlier import of it
    stay, and grow with what came."""
    trained = ~order.evaluated
    per_group = np.bincount(order.whole[trained]) if trained.any() else np.array([1])
    _, group_of = np.unique(order.whole[trained], return_index=True)
    _, groups = np.unique(order.step[trained][group_of], return_counts=True)
    known = order.keys["length"][order.keys["length"] >= 0]
    longest = int(known.max()) if len(known) else 0
    last = int(order.step.max()) + 1
    if before is not None:
        changes = {"steps": max(before.steps, min(last, 1_000_000))}
        sampling = before.sampling.model_dump()
        sampling["max_new_tokens"] = max(longest, before.sampling.max_new_tokens)
        return parse_run({**json.loads(before.model_dump_json()), **changes, "sampling": sampling})
    prompts = min(_most(groups), 100_000)
    data: dict[str, Any] = {
        "name": name.encode("utf-8", "replace").decode()[:120],
        "imported": True,
        "model": "unknown",
        "method": chosen.method,
        "loss": {"aggregation": "token_mean" if order.keys["tokened"].any() else "sequence_mean"},
        "steps": min(last, 1_000_000),
        "prompts_per_step": prompts,
        "group_size": max(2, _most(per_group[per_group > 0])),
        "task": {"name": "imported", "pool_size": min(max(prompts, _prompts(order)), 100_000)},
        "evaluate": {"every": 0},
        "tis": {"cap": None},
    }
    if longest:
        data["sampling"] = {"max_new_tokens": longest}
    if said is not None:
        sampling = {**said.config["sampling"]}
        sampling["max_new_tokens"] = max(longest, sampling["max_new_tokens"])
        data |= {**said.config, "sampling": sampling}
        if prompts % data["updates"]["minibatches"]:
            del data["updates"]  # the files lack some groups: of what is there, minibatches are not known
    return parse_run(data)


def _prompts(order: Order) -> int:
    """Different prompts."""
    return len(np.unique(order.keys["prompt_hash"]))


def _most(counts: np.ndarray) -> int:
    """The most frequent of some counts; 1 of none."""
    return int(np.argmax(np.bincount(counts))) if len(counts) else 1
