"""How long a run will take: from finished runs of the same model, else from measured defaults."""

from __future__ import annotations

import statistics
from pathlib import Path

from core.config import ConfigError, RunConfig, read_run
from core.runs.folders import list_runs, runs_root

LOAD_S = 6.0
"""Starting a process, importing torch, loading the embedded model (2 cores)."""
EMBEDDED_S_PER_ROLLOUT = 0.0047
"""A step of the embedded model over its rollouts, all recordings on (2 cores)."""
EVALUATED = 0.24
"""What an evaluated rollout costs against a trained one: it is only sampled."""
_NEWEST = 20


def estimate(config: RunConfig, root: Path | None = None) -> float | None:
    """Seconds that a run of this config takes here; None where nothing like it has been run."""
    pace = _pace_seen(config, runs_root() if root is None else root)
    if pace is None:
        pace = EMBEDDED_S_PER_ROLLOUT if config.model == "embedded" else None
    return None if pace is None else LOAD_S + pace * work(config)


def estimate_of(path: Path) -> float | None:
    """The same for a run folder."""
    try:
        return estimate(read_run(path / "config.yaml"), path.parent)
    except ConfigError:
        return None


def work(config: RunConfig) -> float:
    """The size of a run in trained rollouts of its length limit's cost; evaluated ones count by what they cost."""
    per_step = config.prompts_per_step * config.group_size
    evaluations = config.steps / config.evaluate.every + 1 if config.evaluate.every else 0.0
    evaluated = config.evaluate.prompts * config.evaluate.rollouts + config.evaluate.probes * config.group_size
    return config.steps * per_step * _passes(config) + EVALUATED * evaluations * evaluated


def _passes(config: RunConfig) -> float:
    """Sampling and recording are about half of a step's time, each epoch of updates the other half."""
    return 0.5 + 0.5 * config.updates.epochs


def _pace_seen(config: RunConfig, root: Path) -> float | None:
    """Median seconds per unit of work over the newest runs here with this model and length limit."""
    paces = []
    for run in list_runs(root, examples=False):
        if run.state != "finished" or not run.step_s or not run.host_is_here or run.model != config.model:
            continue
        try:
            ran = read_run(run.path / "config.yaml")
        except ConfigError:
            continue
        if ran.sampling.max_new_tokens == config.sampling.max_new_tokens and ran.device == config.device:
            paces.append(run.step_s * ran.steps / work(ran))
        if len(paces) == _NEWEST:
            break
    return statistics.median(paces) if paces else None
