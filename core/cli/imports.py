"""The command that makes a run of somebody's rollout files: import.

With `--progress` it tells a program how far it is, as the page does that starts it (`core.importers.jobs`): a line of
JSON for each bit of work, `{"doing": "reading", "done": 8192, "of": null}`, and at the end `{"made": …}`.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from core.cli.common import AsJson, RunsFolder, one_line, print_json
from core.runs import runs_root
from core.runs.folders import runs_option

if TYPE_CHECKING:
    from core.importers.base import Found, Report
    from core.importers.manifest import Manifest
    from core.importers.write import Imported

SHOWN = 5
"""Conventions of the fit that are listed."""
EVERY_S = 0.2
"""Seconds between lines of `--progress`."""


def register(app: typer.Typer) -> None:
    app.command("import")(import_)


def import_(
    path: Annotated[
        Path | None, typer.Argument(metavar="PATH", help="A file of rollouts, or a folder of them.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help="Read it as this format, instead of by content.")
    ] = None,
    formats: Annotated[bool, typer.Option("--formats", help="List the formats, and import nothing.")] = False,
    name: Annotated[str | None, typer.Option(help="A name for the run.")] = None,
    convention: Annotated[
        str | None,
        typer.Option(help="Recompute advantages so, whatever fits best: grpo-ddof0, dr_grpo, rloo, …"),
    ] = None,
    tokenizer: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="The model's folder, whose tokenizer.json spells token ids as texts."),
    ] = None,
    origin: Annotated[str | None, typer.Option(hidden=True)] = None,
    lines: Annotated[
        bool, typer.Option("--progress", help="Print a line of JSON for each bit of work, for programs.")
    ] = False,
    runs: RunsFolder = None,
    as_json: AsJson = False,
) -> None:
    """Make a run of rollouts that another trainer wrote; of the same PATH again: add what is new.

    A run from another lab, packed as one file, is opened.
    """
    from core.importers.base import ImportFailed
    from core.importers.bundles import is_bundle
    from core.importers.formats import all_formats, find

    if formats:
        for one in all_formats().values():
            typer.echo(f"{one.name:<18} {one.label}: {one.looks_like}")
        return
    if path is None:
        raise typer.BadParameter("name a PATH to import, or --formats")
    if is_bundle(path):
        given = {"--format": form, "--name": name, "--convention": convention, "--tokenizer": tokenizer}
        for option in (option for option, value in given.items() if value):
            raise ImportFailed(f"{option} is for rollout files: {path} is a whole run, which is opened as it is")
        from core.exporters.bundle import open_bundle

        with _tidy_when_ended():
            run = open_bundle(path, runs_root(runs))
        if as_json or lines:
            _say({"made": {"id": run.name, "opened": True}} if lines else {"id": run.name, "path": str(run)})
        else:
            typer.echo(f"{run.name}: opened from {one_line(path.name)}")
        return
    if form is not None and form not in all_formats():
        from core.advantage.words import nearest

        raise ImportFailed(f"--format {form}: there is no such format{nearest(form, all_formats())}")
    found = find(path) if form is None else all_formats()[form].sniff(path)
    if found is None:
        raise ImportFailed(f"{path}: nothing there looks like {form} ({all_formats()[form or ''].looks_like})")
    wishes = {"name": name, "wanted": convention, "tokenizer": tokenizer, "origin": origin}
    with _tidy_when_ended():
        if lines:
            made = _import_in_lines(runs_root(runs), found, wishes)
        else:
            made = _import(runs_root(runs), found, wishes, quiet=as_json)
    if lines:
        _say({"made": _facts(made)})
    elif as_json:
        print_json(_facts(made))
    else:
        _tell(made, runs_option(runs_root(runs)))


@contextmanager
def _tidy_when_ended() -> Iterator[None]:
    """SIGTERM, with which a page stops an import, is Ctrl-C here: what is half written is removed."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _say(value: dict[str, object]) -> None:
    """One line for a program, at once."""
    print(json.dumps(value, default=str), flush=True)


def _import_in_lines(root: Path, found: Found, wishes: dict[str, Any]) -> Imported:
    """Import with a line for each bit of work, at most a few a second."""
    from core.importers.formats import all_formats
    from core.importers.write import bring_in

    told: dict[str, float] = {}

    def progress(what: str, done: int, of: int | None) -> None:
        now = time.monotonic()
        if what not in told or done == of or now - told[what] > EVERY_S:
            told[what] = now
            _say({"doing": what, "done": done, "of": of})

    return bring_in(root, all_formats()[found.format], found, progress=progress, **wishes)


def _import(root: Path, found: Found, wishes: dict[str, Any], quiet: bool) -> Imported:
    """Import with a bar on stderr: rollouts while they are read, then steps."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from core.importers.formats import all_formats
    from core.importers.write import bring_in

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as bar:
        tasks = {"reading": bar.add_task("rollouts read", total=None), "writing": bar.add_task("steps", visible=False)}

        def progress(what: str, done: int, of: int | None) -> None:
            bar.update(tasks[what], completed=done, total=of, visible=True)

        return bring_in(root, all_formats()[found.format], found, progress=progress, **wishes)


def _tell(made: Imported, where: str) -> None:
    manifest, report = made.manifest, made.report
    if made.followed and not made.new_steps:
        typer.echo(f"{made.path.name}: nothing new in {one_line(manifest.source, 400)}")
        _reasons(report)
        return
    steps = _count(made.new_steps, "step")
    what = f"{steps} new or with new rollouts" if made.followed else steps
    typer.echo(f"{made.path.name}: {what}, {_count(report.taken, 'rollout')} taken from {one_line(manifest.label)}")
    _reasons(report)
    for lack in manifest.lacking():
        typer.echo(f"not in the files: {lack}")
    typer.echo(manifest.sentence)
    _conventions(manifest)
    typer.echo(f"Look inside: python -m streamlit run app/main.py{f' --{where}' if where else ''}")


def _count(n: int, one: str) -> str:
    return f"1 {one}" if n == 1 else f"{n:,} {one}s"


def _reasons(report: Report) -> None:
    """What was not taken and why, and what else there is to say of the files. Their words are foreign: on one line."""
    for reason, rows in report.refused.most_common():
        first = one_line(report.examples.get(reason, ""))
        typer.echo(f"refused: {_count(rows, 'row')}: {one_line(reason)} (first: {first})")
    for note in report.notes:
        typer.echo(f"note: {one_line(note, 400)}")


def _conventions(manifest: Manifest) -> None:
    if manifest.fits:
        typer.echo(f"{'convention':<24}{'largest':>12}{'mean':>12}{'agree':>9}")
    for found in manifest.fits[:SHOWN]:
        typer.echo(f"{found.name:<24}{found.largest:>12.3g}{found.mean:>12.3g}{100 * found.within:>7.1f} %")


def _facts(made: Imported) -> dict[str, object]:
    manifest, report = made.manifest, made.report
    return {
        "id": made.path.name,
        "path": str(made.path),
        "format": manifest.format,
        "label": manifest.label,
        "source": manifest.source,
        "followed": made.followed,
        "new_steps": made.new_steps,
        "steps": manifest.steps,
        "taken": report.taken,
        "refused": dict(report.refused),
        "examples": report.examples,
        "notes": report.notes,
        "lacks": list(manifest.lacks),
        "lacking": manifest.lacking(),
        "convention": manifest.convention,
        "sentence": manifest.sentence,
        "fits": [vars(found) for found in manifest.fits],
    }
