"""status.json: what a run says about itself, and what a reader makes of it.

Written by the one process that owns the run at the time (whoever creates or launches it, then its worker), in one
atomic move. Read by anyone, at any time: a missing, half-written or foreign file is an unknown status, never an error.
A process that died cannot say so, so readers derive `failed` (and `stopping`, `stopped`); they never write it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from core.runs import machine
from core.runs.log import last_words

STATES = ("queued", "loading", "running", "stopping", "stopped", "finished", "failed")
LIVE = ("queued", "loading", "running", "stopping")
"""States in which a process has the run, or is about to."""

SILENT_S = 60.0
"""Seconds without a heartbeat after which another host's run is shown as silent; heartbeats come every few seconds."""


@dataclass(frozen=True)
class Status:
    """The content of status.json. Times are seconds since the epoch."""

    state: str = "queued"
    step: int = 0
    """Steps done."""
    total: int = 0
    message: str = ""
    """What it is doing while no step is running: "waiting for cpu, 2nd in line"."""
    error: str = ""
    pid: int | None = None
    pid_started: float = 0.0
    host: str = ""
    boot_id: str = ""
    heartbeat: float = 0.0
    created: float = 0.0
    started: float | None = None
    """When the process that wrote this began to load; a resumed run starts anew."""
    finished: float | None = None
    eta_s: float | None = None
    step_s: float | None = None
    """Seconds a step, evaluations and writing spread over all steps."""
    sealed: bool = False
    metrics: dict[str, float] = field(default_factory=dict)
    """The last metrics by name, `pass_at_1` of the last evaluation among them."""
    label: str = ""
    """The method as pages show it."""
    experiment_name: str = ""
    look_for: str = ""
    """What the experiment says to watch in the curves."""

    def is_alive(self) -> bool:
        """Whether the process that wrote it lives, on this machine."""
        here = self.pid is not None and self.host == machine.host() and self.boot_id == machine.boot_id()
        return here and machine.same_process(self.pid or 0, self.pid_started)


_MOST_STEPS = 2**62
_LATEST = 2.5e11
"""Seconds since the epoch, before the year 10000: no clock shows later times."""


def read_status(run_dir: Path) -> Status | None:
    """The status as written; None if there is none that can be read. Fields of the wrong type get their defaults."""
    try:
        data = json.loads((run_dir / "status.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or data.get("state") not in STATES:
        return None
    known = {f.name: f for f in fields(Status)}
    return Status(**{name: value for name, value in data.items() if name in known and _fits(name, value)})


def _fits(name: str, value: Any) -> bool:
    if name == "sealed":
        return isinstance(value, bool)
    if name == "metrics":
        return isinstance(value, dict) and all(_is_number(number) for number in value.values())
    if name in ("state", "message", "error", "host", "boot_id", "label", "experiment_name", "look_for"):
        return isinstance(value, str)
    if name in ("step", "total", "pid"):
        whole = isinstance(value, int) and not isinstance(value, bool) and abs(value) < _MOST_STEPS
        return whole or (value is None and name == "pid")
    if name in ("heartbeat", "created", "started", "finished") and _is_number(value):
        return abs(value) < _LATEST
    return _is_number(value) or (value is None and name in ("started", "finished", "eta_s", "step_s"))


def _is_number(value: Any) -> bool:
    """Whether it is a finite number that a float can hold: JSON has whole numbers of any length."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def write_status(run_dir: Path, status: Status | Mapping[str, Any]) -> None:
    """Replace status.json in one move, on the disk before it is visible. Non-finite numbers are left out."""
    status = status if isinstance(status, Status) else Status(**status)
    data = asdict(status)
    data["metrics"] = {name: float(value) for name, value in status.metrics.items() if _is_number(value)}
    for name in ("eta_s", "step_s"):
        data[name] = data[name] if _is_number(data[name]) else None
    write_atomic(run_dir / "status.json", json.dumps(data, indent=1) + "\n")


def write_atomic(path: Path, text: str) -> None:
    """Write a text file so that readers see the old one or the new one, also after a power cut."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    try:
        with beside.open("w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def derive(run_dir: Path, status: Status | None, now: float | None = None) -> Status:
    """What the status means now: the state of a run whose process died, was asked to stop, or fell silent."""
    if status is None:
        return Status(state="failed", error="status.json is missing or unreadable; resume the run or delete it")
    if status.state not in LIVE:
        return status
    now = time.time() if now is None else now
    asked_to_stop = (run_dir / "stop").exists()
    if status.host and status.host != machine.host():
        return _elsewhere(status, asked_to_stop, now)
    if status.pid is None:
        if now - max(status.heartbeat, status.created) < SILENT_S:
            return status
        if asked_to_stop:
            return replace(status, state="stopped", message="", eta_s=None)
        words = last_words(run_dir / "log.txt")
        error = "its process never started" + (f"; last words: {words}" if words else "; resume it to start it")
        return replace(status, state="failed", message="", eta_s=None, error=error)
    if status.is_alive():
        return replace(status, state="stopping") if asked_to_stop else status
    if asked_to_stop:
        return replace(status, state="stopped", message="", eta_s=None)
    return replace(status, state="failed", message="", eta_s=None, error=_obituary(run_dir, status))


def _elsewhere(status: Status, asked_to_stop: bool, now: float) -> Status:
    age = now - status.heartbeat
    status = replace(status, state="stopping") if asked_to_stop else status
    if age < SILENT_S:
        return status
    return replace(status, message=f"no heartbeat for {duration(age)} on {status.host}", eta_s=None)


def _obituary(run_dir: Path, status: Status) -> str:
    """One sentence about a process that died without a word of its own."""
    if status.boot_id and status.boot_id != machine.boot_id():
        cause = "the machine was restarted while it ran"
    else:
        cause = "its process died without saying why (killed, or out of memory or disk space)"
    words = last_words(run_dir / "log.txt")
    where = f" after step {status.step} of {status.total}" if status.step else ""
    return f"{cause}{where}" + (f"; last words: {words}" if words else "")


def duration(seconds: float) -> str:
    """A time span for people: 42 s, 3 min, 2.5 h, 3 days."""
    if seconds < 90:
        return f"{max(0, seconds):.0f} s"
    if seconds < 90 * 60:
        return f"{seconds / 60:.0f} min"
    if seconds < 48 * 3600:
        return f"{seconds / 3600:.1f} h"
    return f"{seconds / 86400:.0f} days"
