"""Imports that a page starts: each a process of its own, `python -m core import --progress`, with a folder of its own.

    RUNS/.imports/ID/asked.json    what is imported, how, and by which process
    RUNS/.imports/ID/told.jsonl    what the process says on its way and at its end
    RUNS/.imports/ID/error.txt     its one sentence where it refuses
    RUNS/.imports/ID/files/        what was dropped, gone once it is imported

A page only reads these files, so that an import goes on when its page is closed, and any page can show it. Folders are
removed a day after their import has ended.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from core.importers.base import ImportFailed
from core.runs import machine
from core.runs.folders import REPO
from core.runs.log import plain
from core.runs.status import write_atomic

FOLDER = ".imports"
ASKED, TOLD, ERROR, FILES, STOP = "asked.json", "told.jsonl", "error.txt", "files", "stop"
KEPT_S = 24 * 3600.0
TAIL = 4 * 2**20
"""Bytes of what a process told that are read: its last words hold all that counts."""
STOP_S = 5.0
"""Seconds that a process has to clear up after itself; what is left, the next import removes."""
_ID = re.compile(r"[0-9a-f]{12}")

_children: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class Asked:
    """What is to be imported. Texts may be anybody's."""

    path: str
    format: str | None = None
    convention: str | None = None
    name: str | None = None
    tokenizer: str | None = None
    origin: str | None = None
    """What was dropped; None for a file or folder of this machine."""


@dataclass(frozen=True)
class Job:
    """An import that was started."""

    id: str
    asked: Asked
    state: str
    """running, done, failed or stopped."""
    doing: str = ""
    """reading or writing."""
    done: int = 0
    of: int | None = None
    made: dict[str, Any] = field(default_factory=dict)
    """What the command says of it at the end, as `--json` does."""
    error: str = ""

    @property
    def live(self) -> bool:
        return self.state == "running"


def new_folder(root: Path) -> Path:
    """A folder for an import to come; what is dropped goes into its `files`. Old ones are removed."""
    tidy(root)
    folder = root / FOLDER / secrets.token_hex(6)
    folder.mkdir(parents=True)
    return folder


def start(root: Path, asked: Asked, job: str | None = None) -> str:
    """Start an import, in the folder of what was dropped or in a new one; returns its id. Raises ImportFailed.

    One that is there and has not ended well is started anew.
    """
    folder = new_folder(root) if job is None else root / FOLDER / job
    if job is not None and (not _ID.fullmatch(job) or not folder.is_dir()):
        raise ImportFailed("what was dropped is gone: drop it again")
    before = read(root, folder.name)
    if before is not None and before.live:
        return folder.name
    for name in (TOLD, ERROR, STOP):
        (folder / name).unlink(missing_ok=True)
    try:
        with (folder / TOLD).open("wb") as told, (folder / ERROR).open("wb") as error:
            process = subprocess.Popen(
                _command(root, asked), cwd=REPO, stdin=subprocess.DEVNULL, stdout=told, stderr=error,
                start_new_session=True,
            )  # fmt: skip
    except (OSError, ValueError) as error:
        raise ImportFailed(f"the import cannot be started ({error})") from error
    _children[:] = [child for child in _children if child.poll() is None] + [process]
    write_atomic(folder / ASKED, json.dumps({"asked": asdict(asked), **machine.process(process.pid)}))
    return folder.name


def _command(root: Path, asked: Asked) -> list[str]:
    """The command line; every value is one word of it, whatever it begins with."""
    nice = ["nice", "-n", "5"] if shutil.which("nice") else []  # as a trainer: pages go first
    words = [*nice, sys.executable, "-m", "core", "import", "--progress", f"--runs={root}"]
    for option, value in asdict(asked).items():
        if option != "path" and value:
            words.append(f"--{option}={_word(value)}")
    return [*words, "--", _word(asked.path)]


def _word(text: str) -> str:
    """A text as a process can be given it."""
    return text.replace("\0", "\ufffd").encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def read(root: Path, job: str) -> Job | None:
    """An import by its id, as it is now; None where there is none, or it was not started yet."""
    folder = root / FOLDER / job
    if not _ID.fullmatch(job):
        return None
    try:
        data = json.loads((folder / ASKED).read_text(encoding="utf-8"))
        asked = Asked(**data["asked"])
        alive = data["host"] == machine.host() and data["boot_id"] == machine.boot_id()
        alive = alive and machine.same_process(int(data["pid"]), float(data["pid_started"]))
        last = _last(folder / TOLD)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    if isinstance(made := last.get("made"), dict):
        return Job(job, asked, "done", made=made)
    way = {name: last[name] for name in ("doing", "done", "of") if name in last}
    if alive:
        return Job(job, asked, "running", **way)
    if (folder / STOP).exists():
        return Job(job, asked, "stopped", **way)
    error = _error(folder / ERROR)
    if asked.origin:
        error = error.replace(asked.path, asked.origin)  # of what was dropped, nobody knows the copy's place
    return Job(job, asked, "failed", error=error, **way)


def running(root: Path) -> list[Job]:
    """The imports that are on their way."""
    found = [read(root, folder.name) for folder in sorted((root / FOLDER).glob("*"))]
    return [job for job in found if job is not None and job.live]


def _last(path: Path) -> Mapping[str, Any]:
    """The last whole line of what was told, {} before there is one."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - TAIL))
        whole, _, _ = file.read().rpartition(b"\n")
    found = json.loads(whole.rpartition(b"\n")[2]) if whole else {}
    return found if isinstance(found, dict) else {}


def _error(path: Path) -> str:
    """Why it failed: the last words on its stderr."""
    try:
        words = plain(path.read_text(encoding="utf-8", errors="replace")).strip().splitlines()
    except OSError:
        words = []
    return words[-1].removeprefix("error: ")[:2000] if words else "its process ended without a word; import it again"


def stop(root: Path, job: str) -> None:
    """End an import; it clears up after itself, and the runs stay as they were."""
    found = read(root, job)
    if found is None or not found.live:
        return
    folder = root / FOLDER / job
    (folder / STOP).touch()
    data = json.loads((folder / ASKED).read_text(encoding="utf-8"))
    for sign in (
        signal.SIGTERM,
        signal.SIGKILL,
    ):  # no SIGINT: what a shell starts with `&` ignores it, children and all
        if not machine.same_process(int(data["pid"]), float(data["pid_started"])):
            return
        os.kill(int(data["pid"]), sign)
        deadline = time.monotonic() + STOP_S
        while machine.same_process(int(data["pid"]), float(data["pid_started"])) and time.monotonic() < deadline:
            time.sleep(0.05)


def settle(root: Path, job: Job) -> None:
    """Remove what was dropped for an import that has ended well: it is in the run now."""
    if job.state == "done":
        shutil.rmtree(root / FOLDER / job.id / FILES, ignore_errors=True)


def tidy(root: Path) -> None:
    """Remove the folders of imports that ended, or were never started, a day ago."""
    for folder in (root / FOLDER).glob("*"):
        job = read(root, folder.name)
        try:
            old = time.time() - folder.stat().st_mtime > KEPT_S
        except OSError:
            continue
        if old and (job is None or not job.live):
            shutil.rmtree(folder, ignore_errors=True)
