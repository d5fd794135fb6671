"""verl: `trainer.rollout_data_dir` and `validation_data_dir`, one `{step}.jsonl` a step.

Rows are `input`, `output`, `gts`, `score`, `step` and whatever the reward function adds, in any row. Newer versions add
`uid` = `{sample}_{rollout}_{output}`, whose first part is the group. Without it, rollouts of one group have equal
`input`s, which need not be neighbours: verl reorders a batch to balance its lengths.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from core.importers.base import Format, Found, Places, Report
from core.importers.formats._lines import Line
from core.importers.formats._look import recognise, rows_fit, split_of, step_of
from core.importers.formats._messages import as_text
from core.importers.formats._own import COLUMNS, of_row
from core.importers.formats._rows import Rollout, read_lines
from core.importers.formats._values import Refused, digest, flag, label, number, numbers, text, whole

KNOWN = {"input", "output", "gts", "score", "step", "uid", "acc"}
_UID = re.compile(r"(.+)_\d+_\d+")


def _fits(row: dict[str, Any]) -> bool:
    return "input" in row and "output" in row and bool({"score", "gts", "step"} & set(row))


def take(row: dict[str, Any], line: Line) -> Iterator[Rollout]:
    """The rollout of a row."""
    if row.get("output") is None:
        raise Refused("`output` is missing")
    prompt, step = as_text(row.get("input")), whole(row, "step")
    uid = label(row.get("uid"))
    named = _UID.fullmatch(uid) if uid else None
    own = of_row(row)
    extras = {key: value for key, value in row.items() if key not in (KNOWN | COLUMNS if own else KNOWN)}
    correct = flag(row.get("acc"))
    yield {
        "step": step_of(line.file) if step is None else step,
        "split": split_of(line.file),
        "group": named[1] if named else uid or digest(prompt or ""),
        "sample": uid if named else None,
        "prompt": prompt,
        "answer": text(row.get("gts")),
        "text": as_text(row["output"]),
        "reward": number(row, "score"),
        "correct": correct,
        "traits": numbers(extras if correct is not None else extras | {"acc": row.get("acc")}),
        **own,
    }


def read(found: Found, report: Report, done: Places) -> Iterator[Any]:
    """Tables of the files' rollouts."""
    return read_lines(found, report, done, take)


FORMAT = Format(
    "verl",
    "verl",
    "{step}.jsonl with `input`, `output` and `score`",
    partial(recognise, "verl", fits=rows_fit(_fits)),
    read,
)
