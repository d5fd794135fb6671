"""The folders that runs live in: which there are, and what each is doing. Read anew from the disk each time."""

from __future__ import annotations

import functools
import os
import re
import secrets
import shlex
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from core.runs import machine
from core.runs.status import LIVE, Status, derive, read_status

REPO = Path(__file__).resolve().parents[2]
PRESETS = REPO / "runs" / "presets"
EXAMPLES = REPO / "runs" / "examples"
RESERVED = ("presets", "examples")
PACKED = "tables"
"""The folder that makes a run a pack: that of `core.store.files`, which takes long to load."""

ABANDONED_S = 600.0

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,119}")


class RunError(ValueError):
    """Something that cannot be done to a run; one sentence that names the run."""


@dataclass(frozen=True)
class RunInfo:
    """One run as lists show it. Texts come from files that may be anyone's: show them inert."""

    id: str
    name: str
    path: Path
    state: str
    step: int
    total: int
    method: str
    label: str
    model: str
    seed: int
    experiment: str | None
    experiment_name: str
    look_for: str
    message: str
    error: str
    created: float
    updated: float
    started: float | None
    finished: float | None
    eta_s: float | None
    step_s: float | None
    reward: float | None
    pass_at_1: float | None
    sealed: bool
    heartbeat_age_s: float | None
    imported: bool
    packed: bool
    """A pack: read, never resumed."""
    example: bool
    host: str
    host_is_here: bool

    @property
    def live(self) -> bool:
        """A process has it, or is about to."""
        return self.state in LIVE

    @property
    def abandoned(self) -> bool:
        """Another host had it and has been silent for so long that it may be resumed or deleted here."""
        return self.live and not self.host_is_here and (self.heartbeat_age_s or 0.0) > ABANDONED_S


def runs_root(explicit: str | Path | None = None) -> Path:
    """The folder of runs: the argument, else ADVANTAGE_LAB_RUNS, else `runs/` of the project."""
    chosen = explicit or os.environ.get("ADVANTAGE_LAB_RUNS") or REPO / "runs"
    return Path(chosen).expanduser().resolve()


def runs_option(root: Path) -> str:
    """What a shown command needs to find the same folder from any shell: ` --runs DIR`, quoted; "" for the default."""
    return "" if root == REPO / "runs" else f" --runs {shlex.quote(str(root))}"


def list_runs(root: Path, examples: bool = True) -> list[RunInfo]:
    """Every run in the folder, newest first; the shipped examples too, where no run of the same id hides them.

    No folder means no run; raises RunError for a file.
    """
    if root.is_file():
        raise RunError(f"{root} is a file: name the folder of runs")
    found = {path.name: (path, root == EXAMPLES) for path in _run_dirs(root)}
    if examples:
        for path in _run_dirs(EXAMPLES):
            found.setdefault(path.name, (path, True))
    infos = [run_info(path, example) for path, example in found.values()]
    return sorted(infos, key=lambda run: (run.example, -run.created, run.id))


def get_run(root: Path, run_id: str) -> RunInfo:
    """One run by its id. Raises RunError with the nearest id."""
    for folder in (root, EXAMPLES):
        if is_run_id(run_id) and is_run_dir(folder / run_id):
            return run_info(folder / run_id, folder == EXAMPLES)
    from difflib import get_close_matches

    ids = [path.name for folder in (root, EXAMPLES) for path in _run_dirs(folder)]
    near = get_close_matches(run_id, ids, n=1)
    hint = f"did you mean {near[0]}?" if near else f"it holds {len(ids)} runs"
    raise RunError(f"{run_id!r}: no such run in {root}; {hint}")


def is_run_id(name: str) -> bool:
    """Whether a name may be a run's folder: no path in it, not hidden, not reserved."""
    return bool(_ID.fullmatch(name)) and name not in RESERVED


def is_run_dir(path: Path) -> bool:
    """Whether a folder is a run's: it has a config or a status."""
    return any(os.path.isfile(path / name) for name in ("config.yaml", "status.json"))  # also where it may not look


def new_id(method: str, seed: int) -> str:
    """A readable, sortable id: 20261130-150312-grpo-s0-4f2a (UTC)."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    return f"{stamp}-{slug(method)}-s{seed}-{secrets.token_hex(2)}"


def slug(text: str, limit: int = 40) -> str:
    """Text as a part of an id: lower-case ASCII letters, digits, `_` and `-`."""
    return re.sub(r"[^a-z0-9_]+", "-", text.lower()).strip("-")[:limit].strip("-") or "run"


def run_info(path: Path, example: bool = False) -> RunInfo:
    """What one run folder says of itself, whatever is missing or broken in it."""
    written = read_status(path)
    status = derive(path, written)
    config = raw_config(path)
    method = config.get("method")
    method = method if isinstance(method, dict) else {"name": method}
    method_name = _text(method.get("name")) or "?"
    if written is None and (example or config.get("imported") is True):
        steps = _number(config.get("steps"), 0)
        status = Status(state="finished", step=steps, total=steps)
    error = status.error
    if not config:
        error = error or "config.yaml is missing or unreadable"
    updated = max(status.heartbeat, status.finished or 0.0, status.created) or _modified(path)
    return RunInfo(
        id=path.name,
        name=_text(config.get("name")) or status.label or method_name,
        path=path,
        state=status.state,
        step=status.step,
        total=status.total or _number(config.get("steps"), 0),
        method=method_name,
        label=status.label or method_name,
        model=_text(config.get("model")) or "?",
        seed=_number(config.get("seed"), 0),
        experiment=_text(config.get("experiment")) or None,
        experiment_name=status.experiment_name,
        look_for=status.look_for,
        message=status.message,
        error=error,
        created=status.created or _modified(path),
        updated=updated,
        started=status.started,
        finished=status.finished,
        eta_s=status.eta_s if status.state in LIVE else None,
        step_s=status.step_s,
        reward=status.metrics.get("reward"),
        pass_at_1=status.metrics.get("pass_at_1"),
        sealed=status.sealed,
        heartbeat_age_s=max(0.0, time.time() - status.heartbeat) if status.heartbeat else None,
        imported=config.get("imported") is True,
        packed=os.path.isdir(path / PACKED),
        example=example,
        host=status.host,
        host_is_here=not status.host or status.host == machine.host(),
    )


def _run_dirs(root: Path) -> Iterator[Path]:
    try:
        entries = sorted(root.iterdir())
    except OSError:
        return
    for path in entries:
        if is_run_id(path.name) and is_run_dir(path):
            yield path


def raw_config(path: Path) -> dict[str, Any]:
    file = path / "config.yaml"
    try:
        now = file.stat()
        return _parsed(file, now.st_ino, now.st_mtime_ns, now.st_size)
    except (OSError, ValueError, yaml.YAMLError, RecursionError):
        return {}


@functools.lru_cache(maxsize=4096)
def _parsed(file: Path, inode: int, modified_ns: int, size: int) -> dict[str, Any]:
    """A config as plain data; parsing is what makes a long list slow."""
    data = yaml.load(file.read_text(encoding="utf-8"), Loader=_Loader)
    return data if isinstance(data, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _number(value: Any, default: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else default


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
