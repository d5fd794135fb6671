"""ms-swift: `completions.jsonl`, where one line holds whole columns: a batch.

Steps are texts. Columns between `completion` and `advantages` are reward functions; those behind are other values. A
line may repeat the batch of the line before: a batch that is trained on for several steps is logged at each.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any

from core.importers.base import Format, Found, Places, Report
from core.importers.formats._lines import Line
from core.importers.formats._look import recognise, rows_fit, split_of
from core.importers.formats._messages import as_text
from core.importers.formats._rows import Doubts, Rollout, read_lines
from core.importers.formats._values import Refused, digest, number, numbers, text, whole

REPEATED = "the row stands in an earlier line too"
STEP = ("step", "gen_step")
PROMPT = ("prompt", "messages")
ANSWER = ("solution", "ground_truth", "answer")
NO_PART = {*STEP, *PROMPT, "completion", "reward", "advantages", "entropy"}


def _fits(row: dict[str, Any]) -> bool:
    return isinstance(row.get("completion"), list) and any(isinstance(row.get(key), list) for key in STEP)


def _is_numbers(values: list[Any]) -> bool:
    return all(value is None or isinstance(value, int | float) for value in values)


class Taker:
    """The rollouts of lines. Remembers the line before, to know one that repeats it."""

    def __init__(self, report: Report, doubts: Doubts) -> None:
        self._report, self._doubts = report, doubts
        self._before = ("", "")

    def __call__(self, row: dict[str, Any], line: Line) -> Iterator[Rollout]:
        columns, rows = self._columns(row, line)
        batch = (line.file, digest(json.dumps({key: columns[key] for key in columns if key not in STEP})))
        same, self._before = batch == self._before, batch
        if same:
            self._report.refuse(REPEATED, line.where, rows)
            return
        parts, traits = _kinds(columns)
        for at in range(rows):
            try:
                yield _rollout({key: values[at] for key, values in columns.items()}, parts, traits, line)
            except Refused as reason:
                self._report.refuse(str(reason), f"{line.where}, row {at + 1}")

    def _columns(self, row: dict[str, Any], line: Line) -> tuple[dict[str, list[Any]], int]:
        """The columns that are as long as `completion`. Others are left out and counted."""
        completion = row.get("completion")
        if not isinstance(completion, list):
            raise Refused("`completion` is no list")
        columns = {}
        for key, values in row.items():
            if isinstance(values, list) and len(values) == len(completion):
                columns[key] = values
            elif values:
                self._doubts.add(f"`{key}` is no list as long as `completion` and was left out", line.where)
        return columns, len(completion)


def _kinds(columns: dict[str, list[Any]]) -> tuple[list[str], list[str]]:
    """The names of the reward functions, and of the other columns of numbers."""
    names = list(columns)
    behind = names.index("advantages") if "advantages" in names else len(names)
    plain = [key for key in names if key not in NO_PART and _is_numbers(columns[key])]
    parts = [key for key in plain if names.index(key) < behind]
    return parts, [key for key in (*plain, "entropy") if key in columns and key not in parts]


def _rollout(row: dict[str, Any], parts: list[str], traits: list[str], line: Line) -> Rollout:
    if row["completion"] is None:
        raise Refused("`completion` is missing")
    step = next((key for key in STEP if key in row), "step")
    prompt = next((as_text(row[key]) for key in PROMPT if key in row), None)
    return {
        "step": whole(row, step),
        "split": split_of(line.file),
        "prompt": prompt,
        "answer": next((text(row[key]) for key in ANSWER if key in row), None),
        "text": as_text(row["completion"]),
        "reward": number(row, "reward"),
        "parts": numbers({key: row[key] for key in parts}),
        "traits": numbers({key: row[key] for key in traits}),
        "advantage": number(row, "advantages"),
    }


def read(found: Found, report: Report, done: Places) -> Iterator[Any]:
    """Tables of the files' rollouts."""
    doubts = Doubts()
    return read_lines(found, report, done, Taker(report, doubts), doubts)


FORMAT = Format(
    "ms-swift",
    "ms-swift",
    "completions.jsonl with lists of `step`, `prompt` and `completion` in each line",
    partial(recognise, "ms-swift", fits=rows_fit(_fits)),
    read,
)
