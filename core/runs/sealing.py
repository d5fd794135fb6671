"""Sealing, as runs see it: who may do it when, and the status that says it was done."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

from filelock import Timeout

from core.runs.folders import RunError, run_info
from core.runs.locks import run_lock
from core.runs.status import Status, read_status, write_status
from core.store import StoreError, seal, sweep
from core.store.files import live_steps


def seal_run(run_dir: Path) -> Path:
    """Seal a finished run from outside its process; returns the sealed file. Raises RunError, StoreError."""
    info = run_info(run_dir)
    if info.state != "finished":
        raise RunError(f"{info.id} is {info.state}: only finished runs are sealed")
    try:
        with run_lock(run_dir).acquire(timeout=0):
            return seal(run_dir, mark=mark_sealed)
    except Timeout:
        raise RunError(f"{info.id} is being sealed by its own process; wait a moment") from None


def mark_sealed(run_dir: Path) -> None:
    """Flip `sealed` in a run's status, whatever else it says by now."""
    write_status(run_dir, replace(read_status(run_dir) or Status(state="finished"), sealed=True))


def sweep_sealed(root: Path) -> None:
    """Remove the live steps that sealed runs of this folder no longer need, of runs that nobody is writing.

    A run whose sealed file is damaged keeps its steps.
    """
    for path in root.iterdir():
        status = read_status(path)
        if status is None or not status.sealed or status.state != "finished" or not live_steps(path):
            continue
        with contextlib.suppress(Timeout, StoreError), run_lock(path).acquire(timeout=0):
            sweep(path)
