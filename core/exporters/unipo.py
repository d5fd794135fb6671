"""UNIPO's canonical JSON of a run: `{header, entries}`, an entry a step with its prompts, their responses and tokens.

All on one line, as UNIPO's own: lines that are objects by themselves would make a file of lines of it.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from core.config import read_run
from core.exporters.adapter import ExportError
from core.store import Lab
from core.store.open import StepLab

SERIES = {
    "ids": "token_id",
    "strings": "token",
    "old_log_probs": "sampler_logprob",
    "log_probs": "trainer_logprob",
    "ref_log_probs": "ref_logprob",
    "advantages": "advantage",
    "entropy": "entropy",
}
"""UNIPO's names of what a token has, and the store's."""
METRICS = ("reward", "pass_rate", "loss", "policy_loss", "entropy", "kl", "grad_norm", "length", "lr")


def write_unipo(run_dir: Path, out: Path) -> int:
    """Write the training rollouts, a step at a time; returns how many. Of steps without tokens, texts and advantages.

    Raises ExportError where `out` is there already, StoreError where the run cannot be read.
    """
    if out.exists():
        raise ExportError(f"{out} is already there: name a file that is not")
    config = read_run(run_dir / "config.yaml")
    part, count = out.with_name(f".{out.name}.{os.getpid()}"), 0
    try:
        with Lab([run_dir]) as lab, part.open("w", encoding="utf-8", errors="replace") as file:
            run = lab.runs[0]
            steps = lab.steps(run)
            if not steps:
                raise ExportError(f"the run {run} has no step yet to export")
            header = {
                "algorithm": config.build_method().name,
                "totalSteps": len(steps),
                "hparams": {"clip_eps": config.build_method().loss.clip_low, "group_size": config.group_size},
            }
            file.write(f'{{"header": {_text(header)}, "entries": [')
            for i, step in enumerate(steps):
                entry, rollouts = _entry(lab.step(run, step), step)
                file.write(("" if i == 0 else ", ") + _text(entry))
                count += rollouts
            file.write("]}\n")
        os.replace(part, out)
    finally:
        part.unlink(missing_ok=True)
    return count


def _entry(lab: StepLab, step: int) -> tuple[dict[str, Any], int]:
    """A step and the number of its rollouts."""
    metrics = next(iter(lab.rows(f"SELECT {', '.join(METRICS)} FROM metrics")), {})
    groups = lab.rows("""SELECT "group", prompt, answer FROM groups WHERE split = 'train' ORDER BY "group" """)
    rollouts = lab.rows(
        """SELECT "group", rollout, text, reward, length, coalesce(base_advantage, imported_advantage) AS advantage
        FROM rollouts WHERE split = 'train' ORDER BY "group", rollout"""
    )
    tokens = lab.arrays(
        f"""SELECT "group", rollout, {", ".join(SERIES.values())} FROM tokens WHERE split = 'train'
        ORDER BY "group", rollout, position"""
    )
    rows = _rows_of(tokens)
    prompts = {one["group"]: {"prompt": one["prompt"], "answer": one["answer"], "responses": []} for one in groups}
    for one in rollouts:
        place = one["group"], one["rollout"]
        response = {
            "id": f"s{step}_p{place[0]}_{place[1]}",
            "reward": one["reward"],
            "advantage": one["advantage"],
            "response_text": one["text"],
            "response_length": one["length"],
        }
        if place in rows:
            series = {name: tokens[column][rows[place]].tolist() for name, column in SERIES.items()}
            response["tokens"] = {name: values for name, values in series.items() if _known(values)}
        prompts[place[0]]["responses"].append(response)
    entry = {"step": step, "is_first_step_after_rollout_phase": True, "metrics": metrics}
    return entry | {"prompts": list(prompts.values())}, len(rollouts)


def _rows_of(tokens: dict[str, np.ndarray]) -> dict[tuple[int, int], slice]:
    """Where each rollout's tokens lie."""
    group, rollout = tokens["group"], tokens["rollout"]
    if not len(group):
        return {}
    starts = np.flatnonzero(np.r_[True, (np.diff(group) != 0) | (np.diff(rollout) != 0)])
    ends = np.r_[starts[1:], len(group)]
    return {(int(group[a]), int(rollout[a])): slice(a, b) for a, b in zip(starts, ends, strict=True)}


def _known(values: Iterable[Any]) -> bool:
    return any(value is not None and value == value for value in values)


def _text(value: Any) -> str:
    return json.dumps(_finite(value), ensure_ascii=False, allow_nan=False)


def _finite(value: Any) -> Any:
    """The same with null for what is no number."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return {name: _finite(item) for name, item in value.items()} if isinstance(value, dict) else value
