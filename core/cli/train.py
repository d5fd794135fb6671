"""Commands that start and stop training: run, resume, stop."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from core.cli.common import RunNames, RunsFolder, find_run
from core.cli.launched import launched
from core.runs import RunError, runs_root
from core.runs.folders import run_info

Detach = Annotated[bool, typer.Option("--detach", help="Do not follow: return as soon as the runs are queued.")]


def register(app: typer.Typer) -> None:
    app.command()(run)
    app.command()(resume)
    app.command()(stop)


def run(
    config: Annotated[str, typer.Argument(metavar="CONFIG", help="A YAML config, or the name of a preset.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A setting to change: optimizer.lr=5e-4."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="A name for the run or the experiment.")] = None,
    runs: RunsFolder = None,
    detach: Detach = False,
) -> None:
    """Train a config, or every run of an experiment, and follow it; Ctrl-C stops cleanly."""
    from core.config import load
    from core.runs import start
    from core.runs.preset import find_config

    launch = launched()
    if launch.copy:
        return
    root = runs_root(runs)
    experiment = load(find_config(config), [*launch.settings, *(settings or ())], name)
    paths = start(root, experiment, code=True)
    _follow(root, paths, detach)


def resume(
    names: RunNames,
    to: Annotated[int | None, typer.Option(metavar="STEPS", help="Extend the runs to this many steps.")] = None,
    runs: RunsFolder = None,
    detach: Detach = False,
) -> None:
    """Go on with stopped or failed runs from their last checkpoint; with --to, also with finished ones."""
    from core.runs import check_resume
    from core.runs import resume as resume_run

    if launched().copy:
        return
    paths = list(dict.fromkeys(find_run(name, runs).path for name in names))
    for path in paths:
        check_resume(path, to, code=True)
    for path in paths:
        resume_run(path, to, code=True)
    _follow(runs_root(runs), paths, detach)


def stop(
    names: RunNames,
    runs: RunsFolder = None,
    now: Annotated[bool, typer.Option("--now", help="Do not wait for the current step to end.")] = False,
) -> None:
    """Stop runs at their next step boundary (a run that waits in line just leaves it)."""
    from core.runs import stop as stop_run

    infos = [find_run(name, runs) for name in names]
    for info in infos:
        if not info.live:
            raise RunError(f"{info.id} is not running: it is {info.state}")
    for info in infos:
        stop_run(info.path, now=now)
        if not info.host_is_here:
            typer.echo(f"{info.id}: asked; it runs on {info.host}, which sees to it at the next step boundary")
    here = [info.path for info in infos if info.host_is_here]
    while any(run_info(path).live for path in here):
        time.sleep(0.2)
    for path in here:
        info = run_info(path)
        typer.echo(f"{info.id}: {info.state} after step {info.step} of {info.total}")


def _follow(root: Path, paths: list[Path], detach: bool) -> None:
    if detach:
        for path in paths:
            typer.echo(path.name)
        return
    from core.cli.follow import follow

    raise typer.Exit(follow(root, paths))
