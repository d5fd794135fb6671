"""What pages read: the runs on disk and the store over them, cached where the folders have not changed."""

from __future__ import annotations

import argparse
import sys
import threading
import weakref
from collections.abc import Hashable, Sequence
from pathlib import Path

import streamlit as st
import yaml

from core import runs as core_runs
from core.config import ExperimentConfig, dump, parse
from core.models.catalog import ModelInfo, models_here
from core.runs import Preset, RunError, RunInfo, list_runs, runs_root
from core.store import Lab, fingerprint, open_runs

ENDED = ("stopped", "finished", "failed")
"""States in which nothing will be written any more, unless somebody resumes the run."""


def root() -> Path:
    """The folder of runs: `--runs DIR` after `streamlit run app/main.py --`, else ADVANTAGE_LAB_RUNS, else runs/.

    Raises RunError for a `--runs` without a folder.
    """
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--runs", nargs="?", const="")
    given = parser.parse_known_args(sys.argv[1:])[0].runs
    if given == "":
        raise RunError("--runs names no folder: write streamlit run app/main.py -- --runs DIR")
    return runs_root(given)


def runs() -> list[RunInfo]:
    """All runs, newest first, examples included; read from the folders on each call, a second's worth of cache."""
    return _runs(str(root()))


def refresh() -> None:
    """Forget the cached list: call it after starting, stopping or deleting a run."""
    _runs.clear()


def run(run_id: str) -> RunInfo | None:
    """One run by its id; None if there is none."""
    return next((info for info in runs() if info.id == run_id), None)


def lab(runs: RunInfo | Sequence[RunInfo]) -> Lab:
    """The store over one or several runs: `lab(info).df("SELECT … FROM metrics")`. Reopened when a step was added."""
    return _open(tuple(info.path for info in ([runs] if isinstance(runs, RunInfo) else runs))).lab()


def ended(info: RunInfo) -> bool:
    """Whether the run will write nothing more by itself."""
    return info.state in ENDED


def presets() -> list[Preset]:
    """The presets to start from, quickstart first."""
    return _presets()


def seconds_for(experiment: ExperimentConfig) -> float | None:
    """How long all runs of an experiment take here, one after the other; None where nothing like it has been run."""
    return _seconds(dump(experiment), str(root()))


@st.cache_data(ttl=30.0, show_spinner=False, max_entries=1)
def models() -> list[ModelInfo]:
    """What is on this machine, in the order of `models_here`; not everything of it can be trained."""
    return models_here()


@st.cache_data(ttl=30.0, show_spinner=False, max_entries=2)
def _presets() -> list[Preset]:
    return core_runs.presets()


@st.cache_data(ttl=60.0, show_spinner=False, max_entries=64)
def _seconds(config: str, root_path: str) -> float | None:
    experiment = parse(yaml.safe_load(config))
    each = [core_runs.estimate(run, Path(root_path)) for run in experiment.expand(None)]
    return None if None in each else sum(each)


@st.cache_data(ttl=1.0, show_spinner=False, max_entries=4)
def _runs(root_path: str) -> list[RunInfo]:
    return list_runs(Path(root_path), examples=True)


MEMORY_MB, LEAST_MB = 640, 64
"""What the databases of all open Labs may have in memory together, and each of them at least."""
_labs: weakref.WeakSet[Lab] = weakref.WeakSet()
_sharing = threading.Lock()


class _Open:
    """The store over some runs, opened anew once they have changed: one Lab at a time, however long they train."""

    def __init__(self, paths: Sequence[Path]) -> None:
        self._paths, self._lock = paths, threading.Lock()
        self._lab: Lab | None = None
        self._mark: Hashable = None

    def lab(self) -> Lab:
        """The Lab that shows the runs as they are now; one that was handed out before stays usable."""
        with self._lock:
            mark = fingerprint(self._paths)
            if self._lab is None or mark != self._mark:
                self._lab, self._mark = open_runs(self._paths), mark
                _share_memory(self._lab)
            return self._lab


def _share_memory(lab: Lab) -> None:
    """Divide the memory anew among the Labs that are open, this one among them."""
    with _sharing:
        _labs.add(lab)
        labs = list(_labs)
        for one in labs:
            one.limit_memory(max(MEMORY_MB // len(labs), LEAST_MB))


@st.cache_resource(max_entries=16, show_spinner=False)
def _open(paths: tuple[Path, ...]) -> _Open:
    return _Open(paths)
