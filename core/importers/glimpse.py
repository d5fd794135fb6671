"""A look at what would be imported, before it is: which files of which format, and their first rollouts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa

from core.importers.base import ROLLOUT, Found, ImportFailed, Report
from core.importers.formats import all_formats, find
from core.importers.formats._lines import name_of
from core.importers.lab import exported
from core.importers.manifest import LACKS, in_words
from core.importers.spelling import Speller
from core.importers.stage import conform

ROWS, FILES, NAMES = 5, 4, 6
"""Rollouts that are shown; files that are looked into for them; file names that are said."""
LONGEST = 400
"""Characters of a text."""
_TEXTS = ("prompt", "answer", "text")


@dataclass(frozen=True)
class Glimpse:
    """What was seen. Names and texts are foreign."""

    found: Found
    label: str
    """The format as pages say it."""
    bytes: int
    names: tuple[str, ...]
    """The first files."""
    rows: tuple[dict[str, Any], ...] = ()
    """The first rollouts: step, split, prompt, answer, text, reward, advantage, length."""
    lacks: tuple[str, ...] = ()
    """What the first of them lack, in words."""
    ids_alone: bool = False
    """There are token ids, but no texts."""
    lab: str = ""
    """The method that a lab.json beside them names."""
    notes: tuple[str, ...] = field(default=())


def glimpse(path: Path, form: str | None = None, tokenizer: Path | None = None) -> Glimpse:
    """Look at a file or folder, as the format that is recognised or as `form`. Raises ImportFailed where there is
    nothing to take."""
    found = find(path) if form is None else all_formats()[form].sniff(path)
    if found is None:
        kind = all_formats()[form or ""]
        raise ImportFailed(f"{path}: nothing there looks like {kind.label} ({kind.looks_like})")
    report = Report()
    said = exported(found, report)
    table = _first(found, report)
    spelled = table if table is None or tokenizer is None else Speller(tokenizer).fill(table)
    return Glimpse(
        found,
        all_formats()[found.format].label,
        sum(_size(file) for file in found.files),
        tuple(name_of(found, file) for file in found.files[:NAMES]),
        () if spelled is None else tuple(_rows(spelled)),
        () if spelled is None else tuple(in_words(_lacking(spelled))),
        table is not None and _there(table, "token_ids") and not _there(table, "text"),
        said.method.label if said else "",
        tuple(report.notes),
    )


def _first(found: Found, report: Report) -> pa.Table | None:
    """The first rollouts of the first files that have some."""
    read = all_formats()[found.format].read
    for file in found.files[:FILES]:
        for table in read(replace(found, files=(file,)), report, {}):
            if table.num_rows:
                return conform(table.slice(0, ROWS)).combine_chunks()
    return None


def _there(table: pa.Table, name: str) -> bool:
    return table[name].null_count < table.num_rows


def _lacking(table: pa.Table) -> list[str]:
    """Columns that none of these rollouts has; a reward may come in parts, a length from the tokens."""
    ways = {
        "reward": ("reward", "parts"),
        "correct": ("correct", "reward", "parts"),
        "length": ("length", "token_ids", "tokens"),
        "advantage": ("advantage", "token_advantage"),
    }
    return [name for name in LACKS if not any(_there(table, way) for way in ways.get(name, (name,)))]


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    single = [column.name for column in ROLLOUT if not pa.types.is_list(column.type)]
    for row in table.select(single).to_pylist():
        reward = row["reward"]
        parts = [value for _, value in row["parts"] or () if value is not None]
        yield {
            "step": row["step"],
            "split": row["split"],
            **{name: None if row[name] is None else row[name][:LONGEST] for name in _TEXTS},
            "reward": sum(parts) if reward is None and parts else reward,
            "advantage": row["advantage"],
            "length": row["length"],
        }


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
