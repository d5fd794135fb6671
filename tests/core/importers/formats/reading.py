"""Reading in tests: rows as dictionaries, and files written the way trainers do."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from core.importers.base import SCHEMA, Places, Report
from core.importers.formats import all_formats, find

EXAMPLES = Path(__file__).parent / "examples"


def read(path: Path, report: Report | None = None, done: Places | None = None) -> list[dict[str, Any]]:
    """All rollouts of a path as dictionaries, without what is null; maps as dictionaries too."""
    found = find(path)
    report = Report() if report is None else report
    rows = []
    for table in all_formats()[found.format].read(found, report, {} if done is None else done):
        assert table.schema.equals(SCHEMA)
        table.validate(full=True)
        rows += table.to_pylist(maps_as_pydicts="strict")
    return [{key: value for key, value in row.items() if value is not None} for row in rows]


def write_lines(path: Path, rows: Iterable[Any], mode: str = "w") -> Path:
    """A JSONL file, its folders made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open(mode, encoding="utf-8") as handle:
        handle.writelines(json.dumps(row) + "\n" for row in rows)
    return path


def example_rows(name: str) -> list[dict[str, Any]]:
    """The rows of an example's JSONL."""
    return [json.loads(line) for line in (EXAMPLES / name).read_text(encoding="utf-8").splitlines()]
