"""What the commands share: the folder of runs, finding a run by what a person types, and printing foreign text."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from core.runs import RunError, RunInfo, get_run, list_runs, plain, runs_root
from core.runs.folders import is_run_dir, run_info

BAD_INPUT = 2

RunsFolder = Annotated[
    Path | None,
    typer.Option("--runs", metavar="DIR", help="Folder of runs; else ADVANTAGE_LAB_RUNS, else the project's runs/."),
]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="A run's id, or its beginning or end, or its folder.")]
RunNames = Annotated[list[str], typer.Argument(metavar="RUN…", help="Ids, or their beginnings or ends, or folders.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def set_runs_folder(runs: RunsFolder = None) -> None:
    """Options that may also stand before the command."""
    if runs is not None:
        os.environ["ADVANTAGE_LAB_RUNS"] = str(runs)


def find_run(text: str, runs: Path | None) -> RunInfo:
    """A run by id, by the only id that begins or ends so, or by its folder. Raises RunError."""
    root = runs_root(runs)
    folder = Path(text)
    if len(folder.parts) > 1 and is_run_dir(folder):
        return run_info(folder.resolve())
    known = list_runs(root)
    exact = [run for run in known if run.id == text]
    if exact:
        return exact[0]
    alike = [run for run in known if text and (run.id.startswith(text) or run.id.endswith(text))]
    if len(alike) > 1:
        raise RunError(f"{text!r} could be any of {len(alike)} runs: {', '.join(run.id for run in alike[:6])}")
    return alike[0] if alike else get_run(root, text)


def print_json(value: Any) -> None:
    """JSON on stdout, safe on any terminal: what is not ASCII is escaped."""
    typer.echo(json.dumps(value, indent=2, default=str))


def number(value: float | None, digits: int = 3) -> str:
    """A number for people, three significant digits; – where there is none."""
    return "–" if value is None else f"{value:.{digits}g}"


def one_line(text: str, limit: int = 200) -> str:
    """Untrusted text on one line, without terminal codes."""
    text = " ".join(plain(text).split())
    return text if len(text) <= limit else text[: limit - 1] + "…"
