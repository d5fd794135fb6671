"""tinker-cookbook: `iteration_{n}/*_rollout_summaries.jsonl`. Lengths and rewards, no text and no tokens."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from core.importers.base import Format, Found, Places, Report
from core.importers.formats._lines import Line
from core.importers.formats._look import recognise, rows_fit, step_of
from core.importers.formats._rows import Rollout, read_lines
from core.importers.formats._values import Refused, label, number, numbers, whole


def _fits(row: dict[str, Any]) -> bool:
    return "group_idx" in row and "traj_idx" in row


def take(row: dict[str, Any], line: Line) -> Iterator[Rollout]:
    """The rollout of a row."""
    group, split = label(row.get("group_idx")), row.get("split")
    if group is None:
        raise Refused("`group_idx` is missing")
    steps = [step for step in row["steps"] if isinstance(step, dict)] if isinstance(row.get("steps"), list) else []
    lengths = [whole(step, "ac_len") for step in steps]
    metrics: dict[str, float] = {}
    for step in steps:
        metrics |= numbers(step.get("metrics"))
    iteration, train = whole(row, "iteration"), split in (None, "train")
    yield {
        "step": step_of(line.file) if iteration is None else iteration,
        "split": "train" if train else "eval",
        # Several evaluations of one iteration, each in a file, count their groups from 0.
        "group": group if train else f"{line.file.rpartition('/')[2].removesuffix('.jsonl')}/{group}",
        "sample": label(row.get("traj_idx")),
        "reward": number(row, "total_reward"),
        "traits": metrics | numbers(row.get("trajectory_metrics")) | numbers({"turns": len(steps)} if steps else {}),
        "length": sum(lengths) if lengths and None not in lengths and sum(lengths) < 2**31 else None,
    }


def read(found: Found, report: Report, done: Places) -> Iterator[Any]:
    """Tables of the iterations' rollouts."""
    return read_lines(found, report, done, take)


FORMAT = Format(
    "tinker",
    "tinker-cookbook",
    "iteration_{n}/*_rollout_summaries.jsonl with `group_idx` and `traj_idx`",
    partial(recognise, "tinker", fits=rows_fit(_fits)),
    read,
)
