"""verifiers: `outputs/evals/…/results.jsonl` beside `metadata.json`. Evaluations, so no file says a step.

Where several evaluations lie below one folder, each is a step of its own, in the order of their folders. `timing` is
`{"total_ms": …}` in older files and `{"total": {"duration": …}}`, in seconds, in newer ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from core.importers.base import Format, Found, Places, Report
from core.importers.formats._lines import Line, name_of
from core.importers.formats._look import recognise, rows_fit
from core.importers.formats._messages import as_text
from core.importers.formats._rows import Rollout, read_lines
from core.importers.formats._values import Refused, flag, label, number, numbers, text

KNOWN = {"example_id", "id", "reward", "is_completed", "is_truncated"}


def _fits(row: dict[str, Any]) -> bool:
    return "example_id" in row and bool({"completion", "reward"} & set(row))


def seconds(timing: Any) -> dict[str, float]:
    """What a rollout took, in seconds by phase, from either shape."""
    found = {}
    for key, value in timing.items() if isinstance(timing, dict) else ():
        if isinstance(value, dict):
            value = value.get("duration")
        named = numbers({key.removesuffix("_ms"): value}, "seconds_")
        found |= {name: each / 1000 if key.endswith("_ms") else each for name, each in named.items()}
    return {name: value for name, value in found.items() if not name.endswith(("start", "start_time", "end"))}


def take(evaluations: dict[str, int], row: dict[str, Any], line: Line) -> Iterator[Rollout]:
    """The rollout of a row."""
    group = label(row.get("example_id"))
    if group is None:
        raise Refused("`example_id` is missing")
    extras = numbers({key: value for key, value in row.items() if key not in KNOWN})
    yield {
        "step": evaluations.get(line.file),
        "split": "eval",
        "group": group,
        "prompt": as_text(row.get("prompt")),
        "answer": text(row.get("answer")),
        "text": as_text(row.get("completion")),
        "reward": number(row, "reward"),
        "traits": extras | numbers(row.get("metrics")) | seconds(row.get("timing")),
        "truncated": flag(row.get("is_truncated")),
    }


def read(found: Found, report: Report, done: Places) -> Iterator[Any]:
    """Tables of the evaluations' rollouts."""
    several = {name_of(found, path): step for step, path in enumerate(found.files)} if len(found.files) > 1 else {}
    if several:
        listed = ", ".join(several)
        report.note(f"Each of the {len(several)} evaluations is a step of its own, in this order: {listed}.")
    return read_lines(found, report, done, partial(take, several))


FORMAT = Format(
    "verifiers",
    "verifiers",
    "results.jsonl with `example_id`, `completion` and `reward`",
    partial(recognise, "verifiers", fits=rows_fit(_fits)),
    read,
)
