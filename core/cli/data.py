"""Commands on what runs have stored: open, check, seal, delete."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from core.cli.common import AsJson, RunName, RunNames, RunsFolder, find_run, one_line, print_json
from core.runs import RunError, runs_root
from core.runs.folders import runs_option


def register(app: typer.Typer) -> None:
    app.command("open")(open_)
    app.command()(check)
    app.command()(seal)
    app.command()(delete)


def open_(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `export run` wrote, a .zip.")],
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Open a run that somebody sent: every page reads it, and nothing starts it or goes on with it."""
    from core.exporters.bundle import open_bundle, origin

    path = open_bundle(file, runs_root(runs))
    if as_json:
        print_json({"id": path.name, "path": str(path), "opened": True})
        return
    came = origin(path)
    other = f" (there it is {came.run})" if came and came.run != path.name else ""
    typer.echo(f"{path.name}: opened from {one_line(file.name)}{other}")
    where = runs_option(runs_root(runs))
    typer.echo(f"Check it: python -m core check {path.name}{where}")
    typer.echo(f"Look inside: python -m streamlit run app/main.py{f' --{where}' if where else ''}")


def check(name: RunName, runs: RunsFolder = None) -> None:
    """Check a run's store: every step whole, and advantages recomputed from it equal to the trained ones."""
    from core.store.check import check as check_run

    run = find_run(name, runs)
    report = check_run(run.path)
    where = f" ({report.where})" if report.where else ""
    typer.echo(f"{run.id}: {report.steps} steps, {report.rollouts} rollouts, {report.tokens} tokens")
    if report.recomputed is not None:
        steps = ", ".join(map(str, report.recomputed))
        typer.echo(f"packed: advantages are recomputed at the steps whose tokens were kept ({steps})")
    typer.echo(f"largest difference of a recomputed advantage: {report.largest_difference:.3g}{where}")
    for problem in report.problems:
        typer.echo(f"problem: {one_line(problem, 500)}", err=True)
    if report.problems:
        raise typer.Exit(1)
    typer.echo("whole: nothing missing, nothing double, factors multiply, advantages are as trained")


def seal(name: RunName, runs: RunsFolder = None) -> None:
    """Make a finished run's steps one DuckDB file; its Parquet steps go after a grace period."""
    from core.runs.sealing import seal_run

    run = find_run(name, runs)
    sealed = seal_run(run.path)
    typer.echo(f"{sealed} ({sealed.stat().st_size / 2**20:.1f} MB)")


def delete(
    names: RunNames,
    runs: RunsFolder = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete runs with everything they stored."""
    from core.runs import delete as delete_run

    infos = [find_run(name, runs) for name in names]
    for info in infos:
        if info.live and not info.abandoned:
            raise RunError(f"{info.id} is {info.state}: stop it first")
    if not yes and not typer.confirm(f"Delete {', '.join(info.id for info in infos)} for good?"):
        raise typer.Exit(1)
    for info in infos:
        delete_run(info.path)
        typer.echo(f"deleted {info.id}")
