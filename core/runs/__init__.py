"""Run folders and the processes that own them: list, create, queue, launch, stop, resume, delete.

Light names (listing) load at once; what needs the config's checks (pydantic, numpy) loads when it is first used, so
that `python -m core list` stays fast. Nothing here imports torch.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from core.runs.folders import RunError, RunInfo, get_run, list_runs, runs_option, runs_root
from core.runs.log import last_words, log_tail, plain
from core.runs.status import LIVE, STATES, Status, duration, read_status, write_status

if TYPE_CHECKING:
    from core.runs.command import command_for
    from core.runs.control import check_resume, delete, launch, resume, start, stop
    from core.runs.create import create_runs
    from core.runs.preset import Preset, presets
    from core.runs.timing import estimate

_LATER = {
    "check_resume": "control",
    "create_runs": "create",
    "start": "control",
    "launch": "control",
    "stop": "control",
    "resume": "control",
    "delete": "control",
    "estimate": "timing",
    "Preset": "preset",
    "presets": "preset",
    "command_for": "command",
}

__all__ = [
    "LIVE", "STATES", "Preset", "RunError", "RunInfo", "Status", "check_resume", "command_for", "create_runs", "delete",
    "duration", "estimate", "get_run", "last_words", "launch", "list_runs", "log_tail", "plain", "presets",
    "read_status", "resume", "runs_option", "runs_root", "start", "stop", "write_status",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _LATER:
        return getattr(importlib.import_module(f"core.runs.{_LATER[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
