"""A batch from a JSON file's data, and a trace as JSON: the two ends of `python -m core advantage`."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from core.advantage.checks import PER_TOKEN as ALL
from core.advantage.checks import ROUNDING, checked
from core.advantage.registry import BASES
from core.advantage.types import AdvantageError, Batch, Method, Trace
from core.advantage.words import listed, nearest, num

REQUIRED = ("group", "reward", "length", "max_length", "truncated")
PER_TOKEN = ("old_logprob", "new_logprob", "ref_logprob", "proxy_logprob", "entropy")
LARGEST, MOST = 1e30, 1_000_000
"""The largest real number and the largest count that a file may hold."""
LARGEST_GROUP = 2**53
"""The largest group number: what JSON readers keep exactly."""
LARGEST_BATCH = 50_000_000
"""Rollouts x positions that are computed at once."""
KEYS = (*REQUIRED, *PER_TOKEN, "step", "total_steps", "seed")
SHOWN = 60
"""Characters of a wrong value that an error shows."""


def parse_json(text: str) -> Any:
    """JSON in which no object has a key twice: the last one would win unseen. Raises ValueError, or RecursionError."""
    return json.loads(text, object_pairs_hook=_once)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise ValueError(f"the key {_short(twice)} stands twice in one object")
    return found


def batch_from_json(data: Mapping[str, Any], correct_threshold: float = 0.5) -> Batch:
    """A batch from lists: `group`, `reward`, `length`, `truncated` one entry a rollout, `max_length` a number.

    Optional, one list a token in each rollout: `old_logprob` (the sampler's, taken as the trainer's too),
    `ref_logprob`, `proxy_logprob`, `entropy`, and `new_logprob`, which no advantage rule reads. Optional numbers:
    `step` (0), `total_steps`, `seed` (0). A rollout is correct where its reward >= correct_threshold.
    Raises AdvantageError, one sentence that names the key.
    """
    if not math.isfinite(correct_threshold):
        raise AdvantageError(f"the threshold of a correct reward must be a finite number, but is {correct_threshold}")
    if not isinstance(data, Mapping):
        raise AdvantageError(f"the batch must be an object with the keys {listed(REQUIRED)}")
    for key in data:
        if key not in KEYS:
            raise AdvantageError(f"the batch has an unknown key {_short(key)}{nearest(str(key)[:SHOWN], KEYS)}")
    missing = [key for key in REQUIRED if key not in data]
    if missing:
        raise AdvantageError(f"the batch lacks {listed(missing)}")
    n = len(_list(data["group"], "group"))
    for key in ("reward", "length", "truncated", *(key for key in PER_TOKEN if key in data)):
        if len(_list(data[key], key)) != n:
            raise AdvantageError(f"{key} has {len(data[key])} entries, but group has {n}: give one a rollout")
    length = [_whole(value, f"length[{i}]", 1) for i, value in enumerate(data["length"])]
    if n * max(length, default=0) > LARGEST_BATCH:
        raise AdvantageError(f"the batch is too large: {n} rollouts of up to {max(length)} tokens")
    tokens = {key: _tokens(data[key], key, length) for key in PER_TOKEN if key in data}
    reward = np.array([_number(value, f"reward[{i}]") for i, value in enumerate(data["reward"])], dtype=float)
    truncated = [_flag(value, f"truncated[{i}]") for i, value in enumerate(data["truncated"])]
    max_length = _whole(data["max_length"], "max_length", 1)
    batch = Batch(
        group=np.array([_group(value, f"group[{i}]") for i, value in enumerate(data["group"])], dtype=np.int64),
        reward=reward,
        correct=reward >= correct_threshold,
        length=np.array(length, dtype=np.int64),
        truncated=np.array(truncated, dtype=bool),
        max_length=max_length,
        step=_whole(data.get("step", 0), "step", 0),
        total_steps=None if data.get("total_steps") is None else _whole(data["total_steps"], "total_steps", 1),
        sampler_logprob=tokens.get("old_logprob"),
        trainer_logprob=tokens.get("old_logprob"),
        ref_logprob=tokens.get("ref_logprob"),
        entropy=tokens.get("entropy"),
        proxy_logprob=tokens.get("proxy_logprob"),
        seed=_whole(data.get("seed", 0), "seed", 0),
    )
    return checked(batch, frozenset(name for name in ALL if getattr(batch, name) is not None))


def refuse_lone_rollouts(method: Method, batch: Batch) -> None:
    """Raise AdvantageError for a group of one where the method's base rule compares the rollouts of a group.

    In training such a group has advantage 0; in a batch that somebody wrote it is a mistake.
    """
    if not BASES[method.base.name].compares:
        return
    groups, n = np.unique(batch.group, return_counts=True)
    if (n == 1).any():
        group = groups[n == 1][0]
        i = int(np.flatnonzero(batch.group == group)[0])
        raise AdvantageError(
            f"group {group} has rollout {i} alone, but {method.label} compares the rollouts of a group: "
            "give it at least two"
        )


def trace_to_json(trace: Trace, batch: Batch) -> dict[str, Any]:
    """Advantages, kept rollouts, classes and factors in the order of the batch; per-token lists end with the response.

    A factor per "group" has one value a group, in the order of `class`. advantage = base x the factors' values. With a
    method that adds a penalty to the loss, `penalty` has its coefficients.
    """
    width = trace.advantage.shape[1]
    lengths = np.minimum(batch.length, width)

    def cut(values: np.ndarray) -> list[list[float]]:
        return [row[:n].tolist() for row, n in zip(values, lengths, strict=True)]

    def plain(values: np.ndarray) -> list[Any]:
        return cut(values) if values.ndim == 2 else values.tolist()

    groups = batch.groups.tolist()
    found = {
        "method": trace.method.label,
        "advantage": cut(trace.advantage),
        "kept": trace.kept.any(axis=1).tolist(),
        "class": {str(group): label for group, label in zip(groups, trace.classes.label, strict=True)},
        "base": {"values": plain(trace.base), "reason": trace.base_reason},
        "factors": [
            {"name": f.id, "per": f.per, "values": plain(np.asarray(f.values)), "reason": f.reason}
            for f in trace.factors
        ],
    }
    if (own := trace.penalty) is not None:
        found["penalty"] = {"name": own.id, "form": own.form, "values": cut(own.coefficient), "reason": own.reason}
    return found


def _tokens(rows: Any, key: str, length: list[int]) -> np.ndarray:
    out = np.zeros((len(length), max(length, default=0)))
    for i, (row, n) in enumerate(zip(rows, length, strict=True)):
        if len(_list(row, f"{key}[{i}]")) != n:
            raise AdvantageError(f"{key}[{i}] has {len(row)} entries, but length[{i}] is {n}: give one a token")
        out[i, :n] = [_number(value, f"{key}[{i}][{t}]") for t, value in enumerate(row)]
    wrong = out < -ROUNDING if key == "entropy" else out > ROUNDING
    if wrong.any():
        i, t = (int(axis[0]) for axis in np.nonzero(wrong))
        wanted = "an entropy, at least 0" if key == "entropy" else "a log-prob, at most 0"
        raise AdvantageError(f"{key}[{i}][{t}] must be {wanted}, but is {num(out[i, t])}")
    return out


def _list(value: Any, key: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise AdvantageError(f"{key} must be a list, but is {_short(value)}")
    return value


def _number(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -LARGEST <= value <= LARGEST:
        finite = isinstance(value, float) and np.isfinite(value)
        wanted = f"between −{num(LARGEST)} and {num(LARGEST)}" if finite else "a finite number"
        raise AdvantageError(f"{key} must be {wanted}, but is {_short(value)}")
    return float(value)


def _whole(value: Any, key: str, least: int, most: int = MOST) -> int:
    whole = not isinstance(value, bool) and isinstance(value, int | float) and value == value // 1
    if not whole or not least <= value <= most:
        raise AdvantageError(f"{key} must be a whole number between {least} and {most}, but is {_short(value)}")
    return int(value)


def _group(value: Any, key: str) -> int:
    if isinstance(value, str):
        raise AdvantageError(f"{key} must be a whole number, one for each prompt, but is {_short(value)}")
    return _whole(value, key, 0, LARGEST_GROUP)


def _flag(value: Any, key: str) -> bool:
    if not isinstance(value, bool) and (not isinstance(value, int | float) or value not in (0, 1)):
        raise AdvantageError(f"{key} must be true or false, but is {_short(value)}")
    return bool(value)


def _short(value: Any) -> str:
    """The value as JSON has it, cut where it is long; lists and objects by name."""
    if isinstance(value, list | tuple | Mapping):
        return "an object" if isinstance(value, Mapping) else "a list"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, int) and abs(value) >= 1e18:
        return "too large"
    text = repr(value[: SHOWN + 1] if isinstance(value, str) else value)
    return text if len(text) <= SHOWN + 2 else text[:SHOWN] + "…"
