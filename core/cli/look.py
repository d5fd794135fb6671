"""Commands that look at runs: list, show."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from core.cli.common import AsJson, RunName, RunsFolder, find_run, number, one_line, print_json
from core.importers.manifest import read_manifest
from core.runs import RunInfo, duration, list_runs, log_tail, runs_root


def register(app: typer.Typer) -> None:
    app.command("list")(list_)
    app.command()(show)


def list_(runs: RunsFolder = None, as_json: AsJson = False) -> None:
    """List the runs, newest first, with what each is doing."""
    root = runs_root(runs)
    found = list_runs(root)
    if as_json:
        print_json([brief(run) for run in found])
    elif not found:
        typer.echo(f"No runs in {root} yet. Start one: python -m core run quickstart")
    else:
        rows = [("id", "state", "step", "reward", "pass@1", "method", "name"), *map(_row, found)]
        widths = [max(len(row[i]) for row in rows) for i in range(6)]
        for *cells, last in rows:
            columns = [cell.ljust(width) for cell, width in zip(cells, widths, strict=True)]
            typer.echo("  ".join([*columns, last]))
        if all(run.example for run in found):
            typer.echo("These are the recorded examples. A run of your own: python -m core run quickstart")


def brief(run: RunInfo) -> dict[str, object]:
    """One run for `list --json`."""
    return {
        "id": run.id,
        "name": run.name,
        "state": run.state,
        "step": run.step,
        "total": run.total,
        "method": run.method,
        "path": str(run.path),
        "error": run.error or None,
    }


def _row(run: RunInfo) -> tuple[str, ...]:
    step = f"{run.step}/{run.total}" if run.total else "–"
    cells = (run.id, run.state, step, number(run.reward), number(run.pass_at_1), run.method)
    note = one_line(run.error or run.message, 120)
    return *(one_line(cell, 60) for cell in cells), one_line(run.name, 60) + (f"  ({note})" if note else "")


def show(
    name: RunName,
    runs: RunsFolder = None,
    log: Annotated[int, typer.Option(metavar="LINES", help="Lines of the log's end to print.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show one run: state, progress, settings, the end of its log."""
    run = find_run(name, runs)
    tail = log_tail(run.path / "log.txt", lines=log) if log > 0 else ""
    facts = facts_of(run)
    if as_json:
        print_json({**brief(run), **facts, "log": tail.splitlines()})
        return
    for key, value in {**brief(run), **facts}.items():
        if value not in (None, ""):
            typer.echo(f"{key:<12} {one_line(str(value), 400)}")
    if tail:
        typer.echo(f"\nThe end of {run.path / 'log.txt'}:")
        typer.echo(tail)


def facts_of(run: RunInfo) -> dict[str, object]:
    """What `show` says beyond `list`."""

    def moment(seconds: float | None) -> str | None:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds)) if seconds else None

    return {
        "imported": _origin(run),
        "label": run.label,
        "model": run.model,
        "seed": run.seed,
        "experiment": run.experiment,
        "doing": run.message,
        "reward": run.reward,
        "pass_at_1": run.pass_at_1,
        "created": moment(run.created),
        "finished": moment(run.finished),
        "eta": duration(run.eta_s) if run.eta_s is not None else None,
        "step time": duration(run.step_s) if run.step_s and run.step_s >= 1 else run.step_s and f"{run.step_s:.2f} s",
        "sealed": run.sealed,
        "host": run.host,
        "look for": run.look_for,
    }


def _origin(run: RunInfo) -> str | bool | None:
    """Where an imported run came from; None for a run of this lab."""
    if not run.imported:
        return None
    from core.exporters.bundle import origin

    manifest, came = read_manifest(run.path), origin(run.path)
    words = [f"from {manifest.label}, {manifest.source}"] if manifest else []
    words += [f"opened from a bundle of {came.run} (version {came.lab})"] if came else []
    return "; ".join(words) or True
