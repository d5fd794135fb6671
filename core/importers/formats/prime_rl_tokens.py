"""prime-rl token exports: `token_exports/step_{n}/rank_{r}.jsonl`, a sequence a line, every token with its values.

A step is whole once `STABLE` lies beside its files; others wait for a later import. There is no text and no group, and
in most versions no reward: rollouts of one prompt, told by its ids, form the groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from core.importers.base import Format, Found, ImportFailed, Places, Report
from core.importers.formats._lines import Line
from core.importers.formats._look import recognise, rows_fit, step_of
from core.importers.formats._rows import Doubts, Rollout, read_lines, same_length
from core.importers.formats._tokens import response_part
from core.importers.formats._values import Refused, digest, floats, ids, label, mask, shown_ids, whole

SERIES = {
    "inference_logprobs": "sampler_logprob",
    "trainer_logprobs": "trainer_logprob",
    "entropy": "entropy",
    "importance_ratio": "ratio",
    "is_masked": "clipped",
    "advantages": "token_advantage",
}


def _fits(row: dict[str, Any]) -> bool:
    return "token_ids" in row and bool({"inference_logprobs", "trainer_logprobs"} & set(row))


def take(doubts: Doubts, row: dict[str, Any], line: Line) -> Iterator[Rollout]:
    """The rollout of a row."""
    tokens, kept = ids(row.get("token_ids")), mask(row.get("loss_mask"))
    if tokens is None or kept is None or len(kept) != len(tokens):
        raise Refused("`token_ids` and `loss_mask` are no lists of one length")
    part = response_part(kept)
    if part is None:
        raise Refused("no token is in the loss")
    step = whole(row, "step")
    prompt, rewards = tokens[: part.start], floats(row.get("rewards"))
    given = {name: floats(row.get(key)) for key, name in SERIES.items()}
    rollout = {
        "step": step_of(line.file) if step is None else step,
        "split": "train",
        "group": digest(prompt.tobytes()),
        "sample": label(row.get("sample_id")) or line.where,
        "prompt": shown_ids(prompt),
        "reward": _first(rewards[kept]) if rewards is not None and len(rewards) == len(kept) else None,
        "length": part.stop - part.start,
    }
    lists = same_length({"token_ids": tokens, "kept": kept} | given, len(tokens), doubts, line.where)
    yield rollout | {
        name: values[part] for name, values in lists.items() if values is not None and not np.isnan(values[part]).all()
    }


def _first(values: np.ndarray) -> float | None:
    there = values[~np.isnan(values)]
    return float(there[0]) if there.size else None


def read(found: Found, report: Report, done: Places) -> Iterator[Any]:
    """Tables of the whole steps' rollouts. Raises ImportFailed where no step is whole yet."""
    stable = tuple(path for path in found.files if (path.parent / "STABLE").exists())
    whole_steps = {path.parent for path in stable}
    waiting = sorted({path.parent.name for path in found.files if path.parent not in whole_steps})
    if not stable and found.root.is_file():
        raise ImportFailed(
            f"{found.root.name} is one file of a prime-rl step, which is whole once `STABLE` lies beside it: "
            "import the step's folder, or that of all steps."
        )
    if not stable:
        raise ImportFailed(
            f"{found.root} has no step with `STABLE` yet; import it again when prime-rl has written one."
        )
    if waiting:
        listed = ", ".join(waiting[:5]) + (" and others" if len(waiting) > 5 else "")
        report.note(f"{listed}: no STABLE yet, left for a later import.")
    doubts = Doubts()
    return read_lines(replace(found, files=stable), report, done, partial(take, doubts), doubts)


FORMAT = Format(
    "prime-rl-tokens",
    "prime-rl token exports",
    "token_exports/step_{n}/rank_{r}.jsonl with `token_ids`, `loss_mask` and `inference_logprobs`",
    partial(recognise, "prime-rl-tokens", fits=rows_fit(_fits)),
    read,
)
