"""Batches to compare on: the lab's arrays of them, and the same as the tensors and ids that verl hands around."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from verl import DataProto

from core.advantage import Batch

GOLDEN = Path(__file__).parents[1] / "core" / "advantage" / "golden.json"
TOTAL_STEPS = 40
MIN_P = 0.02  # of the proxy log-probs; lp_reg's own
TOOL = (1, 3)  # where a tool's output stands in `with_tool`: a response's own tokens surround it


@dataclass(frozen=True)
class Case:
    """N rollouts as the lab has them, and (N, T) log-probs of a policy that has moved on."""

    name: str
    batch: Batch
    new_logprob: np.ndarray
    golden: dict[str, Any]  # the authors' and verl's numbers where they are known

    def tensors(self, width: int) -> dict[str, torch.Tensor]:
        """verl's tensors by its names, (N, width) with the responses on the left."""
        batch = self.batch
        mask = np.arange(width) < batch.length[:, None]
        reward = np.zeros(mask.shape)
        reward[np.arange(len(mask)), batch.length - 1] = batch.reward
        arrays = {
            "token_level_rewards": reward,
            "rollout_log_probs": batch.sampler_logprob,
            "old_log_probs": batch.trainer_logprob,
            "ref_log_prob": batch.ref_logprob,
            "entropys": batch.entropy,
            "proxy_log_probs": batch.proxy_logprob,
        }
        return {"response_mask": torch.from_numpy(mask.astype(np.int64))} | {
            name: torch.from_numpy(_widen(values, width)).float() for name, values in arrays.items()
        }

    def proto(self, with_tool: bool = False) -> DataProto:
        """verl's batch, as wide as the limit on new tokens; `with_tool` puts a tool's output into the responses."""
        tensors = self.tensors(self.batch.max_length)
        if with_tool:
            tensors = {name: _with_tool(name, values) for name, values in tensors.items()}
        ids = {group: str(uuid.uuid5(uuid.NAMESPACE_OID, str(group))) for group in self.batch.groups.tolist()}
        uid = np.array([ids[group] for group in self.batch.group.tolist()], dtype=object)
        return DataProto.from_dict(tensors=tensors, non_tensors={"uid": uid})


def cases() -> list[Case]:
    """The golden batches, and one with all that they lack: groups of one and two, equal rewards, one-token answers."""
    entries = json.loads(GOLDEN.read_text(encoding="utf-8"))
    odd = {
        "kind": "odd", "seed": 0,
        "inputs": {
            "group": [0, 1, 2, 0, 3, 3, 3, 2, 4, 4, 4, 4],
            "reward": [1.0, 1.0, 0.2, 0.0, 0.4, 0.4, 0.4, 0.8, 0.0, 0.0, 0.0, 0.0],
            "length": [1, 9, 3, 10, 1, 7, 10, 2, 5, 5, 10, 1], "max_length": 10,
        },
    }  # fmt: skip
    return [_case(entry) for entry in [*entries, odd]]


def _case(entry: dict[str, Any]) -> Case:
    """Per-token numbers that an entry lacks are drawn; groups are numbered as they come."""
    inputs = entry["inputs"]
    length, reward = np.array(inputs["length"]), np.array(inputs["reward"], dtype=float)
    mask = np.arange(length.max()) < length[:, None]
    draw = np.random.default_rng(entry["seed"])

    def tokens(key: str, drawn: np.ndarray) -> np.ndarray:
        values = np.where(mask, drawn, 0.0)
        for row, listed in zip(values, inputs.get(key, ()), strict=False):
            row[: len(listed)] = listed
        return values

    old = tokens("old_logprob", -draw.exponential(1.0, mask.shape))
    numbers: dict[int, int] = {}
    batch = Batch(
        group=np.array([numbers.setdefault(group, len(numbers)) for group in inputs["group"]]),
        reward=reward,
        correct=reward >= 0.5,
        length=length,
        truncated=length == inputs["max_length"],
        max_length=inputs["max_length"],
        step=7,
        total_steps=TOTAL_STEPS,
        sampler_logprob=np.where(mask, np.minimum(old + draw.normal(0, 0.3, mask.shape), 0.0), 0.0),
        trainer_logprob=old,
        ref_logprob=tokens("ref_logprob", old + draw.normal(0, 0.3, mask.shape).clip(max=-old)),
        entropy=tokens("entropy", draw.exponential(1.0, mask.shape)),
        proxy_logprob=np.where(mask, np.where(draw.random(mask.shape) < 0.2, -1e4, old * 0.8), 0.0),
        proxy_min_p=MIN_P,
    )
    new = tokens("new_logprob", np.minimum(old + draw.normal(0, 0.3, mask.shape), 0.0))
    golden = {key: entry[key] for key in ("advantage", "loss") if key in entry}
    return Case(f"{entry['kind']}-{entry['seed']}", batch, new, golden)


def in_tool_width(batch: Batch) -> Batch:
    """The lab's view of `proto(with_tool=True)`: the same responses under a limit that counts the tool's tokens too."""
    return replace(batch, max_length=batch.max_length + TOOL[1] - TOOL[0])


def without_tool(values: np.ndarray) -> np.ndarray:
    """(n, L) without the positions of the tool."""
    return np.delete(values, range(*TOOL), axis=1)


def rows_of(batch: Batch, rows: np.ndarray) -> Batch:
    """Some rollouts of a batch."""
    arrays = {each.name: getattr(batch, each.name) for each in fields(batch)}
    return replace(batch, **{name: values[rows] for name, values in arrays.items() if isinstance(values, np.ndarray)})


def _with_tool(name: str, values: torch.Tensor) -> torch.Tensor:
    """Where the tool's output stands: no reward, masked out, and elsewhere numbers that must not count."""
    fill = 0 if name in ("token_level_rewards", "response_mask") else -5
    tool = torch.full((len(values), TOOL[1] - TOOL[0]), fill, dtype=values.dtype)
    return torch.cat([values[:, : TOOL[0]], tool, values[:, TOOL[0] :]], dim=1)


def _widen(values: np.ndarray, width: int) -> np.ndarray:
    return np.pad(values, ((0, 0), (0, width - values.shape[1])))
