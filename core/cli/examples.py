"""The command that records the shipped examples: trains them, packs them, puts them in place of the old ones."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from core.runs import RunError
from core.runs.folders import EXAMPLES, run_info, slug

EXPERIMENT = "recorded-examples"
"""The experiment that all of them belong to."""
PREFIX = "example-"
FURTHER_SEEDS = 6
"""Steps whose tokens are kept of a method's second seed and on: they are there for their curves."""
MOST_BYTES = 15 * 10**6
"""Of all examples together, since everyone who gets the project gets them."""


def register(app: typer.Typer) -> None:
    app.command()(examples)


def examples(
    configs: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[CONFIG…]", help="YAML configs to train; else those in runs/examples."),
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where they go, in place of the examples there.")] = EXAMPLES,
) -> None:
    """Record the examples that the pages show before the first run: train, pack, replace. Takes some minutes."""
    from core.cli.follow import follow
    from core.config import load
    from core.runs import start

    experiments = [load(path) for path in configs or sorted(EXAMPLES.glob("*.yaml"))]
    if not experiments:
        raise RunError(f"{EXAMPLES}: holds no YAML config to train; name one")
    names = [_name(run.method.name, run.seed) for each in experiments for run in each.expand(None)]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise RunError(f"{twice}: two of the runs would have this id; give a method and a seed once")
    _check_place(out, names)
    with tempfile.TemporaryDirectory(prefix="advantage-lab-examples-") as scratch:
        runs, packs = Path(scratch, "runs"), Path(scratch, "packs")
        packs.mkdir()
        for experiment in experiments:
            paths = start(runs, experiment)
            if code := follow(runs, paths, stay=False):
                raise typer.Exit(code)
            for path in paths:
                _pack(path, packs, further=any(packs.glob(_name(run_info(path).method, "*"))))
        _replace(packs, out)


def _pack(path: Path, packs: Path, further: bool) -> None:
    """Pack a finished run under its readable id, and say how large it came out."""
    from core.store import pack
    from core.store.pack import TOKEN_STEPS

    info = run_info(path)
    steps = FURTHER_SEEDS if further else TOKEN_STEPS
    packed = pack(path, packs / _name(info.method, info.seed), steps, experiment=EXPERIMENT)
    typer.echo(f"{packed.name}: {_megabytes(size(packed))}, pass@1 {info.pass_at_1 or 0:.2f}")


def _name(method: str, seed: int | str) -> str:
    return f"{PREFIX}{slug(method).replace('_', '-')}-s{seed}"


def _check_place(out: Path, names: Sequence[str]) -> None:
    """Raise RunError, before anything is trained, where the examples could not go."""
    if out.exists() and not out.is_dir():
        raise RunError(f"{out} is a file: name a folder for the examples")
    for name in names:
        if (out / name).exists() and not run_info(out / name).packed:
            raise RunError(f"{out / name}: already there, and no packed run; move it away or choose another --out")


def _replace(packs: Path, out: Path) -> None:
    """Put the packs where the examples are; those that were there go, each when its successor is in place.

    Raises RunError where they are too large.
    """
    total = sum(size(path) for path in packs.iterdir())
    if total > MOST_BYTES:
        raise RunError(f"the examples take {_megabytes(total)} of at most {_megabytes(MOST_BYTES)}: record fewer")
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".replacing-", dir=out) as aside:
        new, old = Path(aside, "new"), Path(aside, "old")
        shutil.copytree(packs, new)  # maybe from another disk: from here on all is done by renaming
        old.mkdir()
        for path in sorted(new.iterdir()):
            _swap(path, out / path.name, old / path.name)
        for gone in out.glob(f"{PREFIX}*"):
            if run_info(gone).packed and not (packs / gone.name).exists():
                gone.rename(old / gone.name)
    typer.echo(f"{out}: {_megabytes(total)} in all")


def _swap(new: Path, place: Path, old: Path) -> None:
    """Move a folder to its place, and what is there to `old`: whatever happens, one of them is there."""
    try:
        if place.exists():
            place.rename(old)
        new.rename(place)
    except BaseException:
        if old.exists() and not place.exists():
            old.rename(place)
        raise


def size(folder: Path) -> int:
    """Bytes of all files in a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.2f} MB"
