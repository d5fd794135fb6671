"""AReaL: `rollout/{version}/{id}.jsonl`, a file a task.

A group is a prompt of a task. Its rollouts may end under different versions of the policy; the group is trained once
the last of them has come, so all of it is given the latest `tail_version`.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from core.importers.base import Format, Found, Places, Report
from core.importers.formats._lines import Line, lines, name_of
from core.importers.formats._look import recognise, rows_fit, split_of, step_of
from core.importers.formats._messages import as_text
from core.importers.formats._rows import Rollout, read_lines
from core.importers.formats._values import Refused, digest, label, number, numbers, text, whole


def _fits(row: dict[str, Any]) -> bool:
    return "completion" in row and ("tail_version" in row or "head_version" in row)


def _group(row: dict[str, Any], prompt: str | None) -> str:
    return f"{label(row.get('task_id'))}:{digest(prompt or '')}"


class _Steps:
    """The step of each group of the file that is being read."""

    def __init__(self, found: Found) -> None:
        self._found, self._paths = found, {name_of(found, path): path for path in found.files}
        self._file: str | None = None
        self._latest: dict[str, int] = {}

    def of(self, file: str, group: str) -> int | None:
        if file != self._file:
            self._file, self._latest = file, {}
            for line in lines(self._found, self._paths[file], Report(), {}):
                self._see(line.row or {})
        return self._latest.get(group)

    def _see(self, row: dict[str, Any]) -> None:
        try:
            step = whole(row, "tail_version")
        except Refused:
            return
        if step is not None:
            group = _group(row, as_text(row.get("prompt")))
            self._latest[group] = max(step, self._latest.get(group, 0))


def take(steps: _Steps, row: dict[str, Any], line: Line) -> Iterator[Rollout]:
    """The rollout of a row."""
    if row.get("completion") is None:
        raise Refused("`completion` is missing")
    prompt, ended = as_text(row.get("prompt")), whole(row, "tail_version")
    group = _group(row, prompt)
    step = steps.of(line.file, group)
    whole_length, prompt_length = whole(row, "seqlen"), whole(row, "prompt_len")
    length = None if whole_length is None or prompt_length is None else whole_length - prompt_length
    yield {
        "step": step_of(line.file) if step is None else step,
        "split": split_of(line.file),
        "group": group,
        "prompt": prompt,
        "answer": text(row.get("answer")),
        "text": as_text(row["completion"]),
        "reward": number(row, "reward"),
        "traits": numbers({"head_version": row.get("head_version"), "tail_version": ended}),
        "length": length if length is not None and 0 <= length < 2**31 else None,
    }


def read(found: Found, report: Report, done: Places) -> Iterator[Any]:
    """Tables of the tasks' rollouts."""
    return read_lines(found, report, done, partial(take, _Steps(found)))


FORMAT = Format(
    "areal",
    "AReaL",
    "rollout/{version}/{id}.jsonl with `completion` and `tail_version`",
    partial(recognise, "areal", fits=rows_fit(_fits)),
    read,
)
