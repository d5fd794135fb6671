"""`bench`: the lab's speed beside its peers'. The benches live in `tests/bench/speed`, in a process of their own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer

from core.runs import RunError

ROOT = Path(__file__).resolve().parents[2]
BENCHES = Path("tests/bench/speed/__main__.py")


def register(app: typer.Typer) -> None:
    app.command()(bench)


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="NAME…", help="embedded, smollm2-135m, rollouts, what-if, vllm; else all that can run here."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    write: Annotated[bool, typer.Option("--write", help="Keep the results in tests/bench/README.md.")] = False,
    rounds: Annotated[int | None, typer.Option(min=1, max=1000, help="Turns that are measured.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, max=1024, help="CPU threads of both sides.")] = None,
) -> None:
    """Time a training step, rollouts or what-if questions, ours and a peer's in turn, and print the ratio."""
    if not (ROOT / BENCHES).is_file():
        raise RunError(f"{BENCHES} is not here: benches come with the project's repository, run it from a checkout")
    command = [sys.executable, "-m", "tests.bench.speed", *(names or [])]
    command += ["--json"] * as_json + ["--write"] * write
    command += [f"--rounds={rounds}"] if rounds else []
    command += [f"--threads={threads}"] if threads else []
    raise typer.Exit(subprocess.run(command, cwd=ROOT).returncode)
