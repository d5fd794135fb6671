"""Commands that make something of a run for elsewhere: `python -m core export WHAT RUN -o PLACE`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from core.cli.common import RunName, RunsFolder, find_run, one_line

TABLES = ("metrics", "evals", "groups", "rollouts", "tokens", "summary", "positions", "strings")
"""Those of `core.store.schema`, which takes long to load."""


def register(app: typer.Typer) -> None:
    group = typer.Typer(no_args_is_help=True, help="Make something of a run for elsewhere.")
    for command in (run, table, unipo, adapter, merged, verl, trl):
        group.command()(command)
    app.add_typer(group, name="export")


def run(
    name: RunName,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write, a .zip.")],
    runs: RunsFolder = None,
) -> None:
    """The run as one file for a colleague, whose lab opens it: `core open FILE`, or dropped on the Import page."""
    from core.exporters.bundle import write_bundle

    write_bundle(find_run(name, runs).path, out)
    typer.echo(f"{out} ({out.stat().st_size / 2**20:.1f} MB). A colleague opens it: python -m core open {out.name}")


def table(
    name: RunName,
    table: Annotated[str, typer.Argument(metavar="TABLE", help=f"One of {', '.join(TABLES)}.")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write: .parquet, .csv, .json or .jsonl.")
    ],
    runs: RunsFolder = None,
) -> None:
    """A whole table of a run, whatever its size, as Parquet, CSV or JSON."""
    from core.exporters.tables import write_table

    rows = write_table(find_run(name, runs).path, table, out)
    typer.echo(f"{out}: {rows:,} rows ({out.stat().st_size / 2**20:.1f} MB)")


def unipo(
    name: RunName,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The file to write, a .json.")],
    runs: RunsFolder = None,
) -> None:
    """The run's training rollouts as UNIPO's canonical JSON, token by token."""
    from core.exporters.unipo import write_unipo

    steps, responses = write_unipo(find_run(name, runs).path, out)
    typer.echo(f"{out}: {responses:,} responses of {steps:,} steps ({out.stat().st_size / 2**20:.1f} MB)")


def adapter(
    name: RunName,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The archive to write, a .zip.")],
    runs: RunsFolder = None,
) -> None:
    """A run's trained adapter with its model card, in one archive that PEFT and vLLM read."""
    from core.exporters.adapter import ExportError, adapter_zip

    if out.exists():
        raise ExportError(f"{out} is already there: name a file that is not")
    content = adapter_zip(find_run(name, runs).path)
    out.write_bytes(content)
    typer.echo(f"{out} ({len(content) / 2**20:.1f} MB)")


def merged(
    name: RunName,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The folder to make.")],
    runs: RunsFolder = None,
) -> None:
    """A whole model: a copy of the run's base model, in float32, with the trained adapter merged into it."""
    from core.exporters.merged import merge

    merge(find_run(name, runs).path, out)
    typer.echo(f"{out} ({sum(file.stat().st_size for file in out.iterdir()) / 2**20:.1f} MB)")


RunOrConfig = Annotated[str, typer.Argument(metavar="RUN_OR_CONFIG", help="A run, a YAML config, or a preset's name.")]
Folder = Annotated[Path, typer.Option("--out", "-o", metavar="DIR", help="The folder to make.")]
ConfigSettings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A setting of the config to change.")
]


def verl(name: RunOrConfig, out: Folder, settings: ConfigSettings = None, runs: RunsFolder = None) -> None:
    """What a verl user runs on Ray: a launch script, the lab's advantages, prompts and reward; rollouts import back."""
    from core.exporters.cluster import one_run
    from core.exporters.verl import export_verl

    config = one_run(name, settings or (), lambda text: find_run(text, runs).path)
    _told(out, export_verl(config, out), "verl", f"bash {out}/run.sh", f"{out}/rollouts")


def trl(name: RunOrConfig, out: Folder, settings: ConfigSettings = None, runs: RunsFolder = None) -> None:
    """A TRL script: a GRPOTrainer that uses the lab's advantages, with prompts and reward; rollouts import back."""
    from core.exporters.cluster import one_run
    from core.exporters.trl import export_trl

    config = one_run(name, settings or (), lambda text: find_run(text, runs).path)
    _told(out, export_trl(config, out), "TRL", f"python {out}/train.py", f"{out}/output")


def _told(out: Path, fates: Any, trainer: str, start: str, rollouts: str) -> None:
    """Print what was written, what has no twin and why, and how to go on."""
    from core.exporters.twins import as_text, lacking

    without = lacking(fates)
    typer.echo(f"{out}: {len(fates) - len(without)} settings have a twin in {trainer}; these have none:")
    for fate in without:
        typer.echo(f"  {one_line(as_text(fate), 300)}")
    typer.echo(f"README.md there has all of them. Start: {start}; then here: python -m core import {rollouts}")
