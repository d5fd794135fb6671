"""An import on its way: a process of its own, so that a million rollouts never weigh on the pages, and what it says.

The process is `python -m core import --lines`; it goes on when the browser is closed, and what it makes lies among the
runs when it is whole.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from core.runs.folders import REPO

OUT, ERR = "said.jsonl", "error.txt"
LONGEST_ERROR = 2000


@dataclass(frozen=True)
class Job:
    """A running import. `dropped` is the scratch folder with what was dropped on the page, which goes at its end."""

    process: subprocess.Popen[bytes]
    folder: Path
    source: str
    dropped: Path | None


@dataclass(frozen=True)
class State:
    """What an import last said."""

    running: bool
    what: str = ""
    """reading (rollouts) or writing (steps)."""
    done: int = 0
    of: int | None = None
    made: dict[str, Any] | None = None
    """The result, once there is one: `id`, `followed`, `new_steps`, `taken`, …"""
    error: str = ""


def start(
    root: Path, source: Path, *, form: str | None = None, name: str = "", convention: str | None = None,
    tokenizer: str = "", dropped: Path | None = None,
) -> Job:  # fmt: skip
    """Begin to import a file or folder into the folder of runs. Raises OSError where no process can be started."""
    folder = Path(tempfile.mkdtemp(prefix="advantage-lab-import-"))
    given = {"--format": form, "--name": name, "--convention": convention, "--tokenizer": tokenizer}
    options = [f"{option}={value}" for option, value in given.items() if value]
    command = [sys.executable, "-m", "core", "--runs", str(root), "import", "--lines", *options, "--", str(source)]
    with (folder / OUT).open("wb") as out, (folder / ERR).open("wb") as err:
        process = subprocess.Popen(command, cwd=REPO, stdin=subprocess.DEVNULL, stdout=out, stderr=err)
    return Job(process, folder, source.name, dropped)


def state(job: Job) -> State:
    """What the import says now."""
    code = job.process.poll()
    lines = [line for raw in _text(job.folder / OUT).splitlines() if (line := _parsed(raw))]
    last = lines[-1] if lines else {}
    if "made" in last:
        return State(code is None, made=last["made"])
    if code is None:
        return State(True, str(last.get("what", "")), int(last.get("done", 0)), last.get("of"))
    said = _text(job.folder / ERR).strip().splitlines()
    words = next((line.removeprefix("error: ") for line in reversed(said) if line.startswith("error: ")), "")
    ended = f"The import ended without a result (exit code {code}); the same on the command line says more."
    return State(False, error=words[:LONGEST_ERROR] or ended)


def finish(job: Job) -> None:
    """Take away what it leaves beside the run; ends it where it still works."""
    if job.process.poll() is None:
        job.process.terminate()
    job.process.wait()
    for folder in (job.folder, job.dropped):
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _parsed(line: str) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
