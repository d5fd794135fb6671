"""What an imported run says of itself: its status, its log, and why nothing could be taken."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from core.importers.base import Report
from core.importers.manifest import Manifest
from core.importers.steps import Last
from core.runs.status import Status, write_atomic


def status_of(earlier: Status, manifest: Manifest, last: Last, label: str) -> Status:
    """The status of a run that was imported, or brought up to date."""
    now = time.time()
    metrics = {name: value for name, value in last.metrics.items() if isinstance(value, float)}
    return replace(
        earlier, state="finished", step=manifest.steps, total=manifest.steps, finished=now, heartbeat=now, sealed=True,
        label=label, metrics=metrics,
    )  # fmt: skip


def reasons(report: Report) -> str:
    """Why, in a few words."""
    found = [f"{reason} ({report.examples[reason]})" for reason, _ in report.refused.most_common(3)]
    words = "; ".join([*found, *report.notes[:3]])
    return f": {words}" if words else "; its files have no rows"


def write_log(path: Path, manifest: Manifest) -> None:
    """What log pages show of an imported run."""
    lines = [f"{manifest.rollouts} rollouts of {manifest.steps} steps, from {manifest.label}", manifest.sentence]
    lines += [f"refused: {rows} rows: {reason}" for reason, rows in manifest.refused.items()]
    lines += [*manifest.notes, *(f"not in the files: {words}" for words in manifest.lacking())]
    write_atomic(path / "log.txt", "".join(f"{line}\n" for line in lines))
