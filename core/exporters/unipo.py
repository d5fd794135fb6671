"""A run as UNIPO's canonical JSON, `{header, entries}`: what its site shows, and `core.importers` reads back.

    header: algorithm, totalSteps, hparams          entries: step, metrics, prompts -> responses -> tokens

An entry a step, its training prompts in order. `old_log_probs` are the sampler's, `log_probs` the trainer's at the
start of the step. `advantage` is what a whole response has, base rule times the factors of its prompt and response;
`tokens.advantages` are those that were trained on, 0 for a token that was left out. What was not recorded is null, or
not there at all; probes and evaluations are no part of the format. Texts are as the model wrote them: untrusted.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import duckdb
import numpy as np

import core
from core.advantage import Loss, Method
from core.config import RunConfig, read_run
from core.exporters.adapter import ExportError
from core.exporters.model_card import model_name
from core.store.errors import StoreError
from core.store.factors import trained_method
from core.store.open import Lab, StepLab
from core.store.schema import METRICS
from core.store.text import decode

SERIES = {
    "ids": "token_id", "strings": "token", "log_probs": "trainer_logprob", "old_log_probs": "sampler_logprob",
    "ref_log_probs": "ref_logprob", "entropy": "entropy", "advantages": "advantage",
}  # fmt: skip
"""UNIPO's lists of a response's tokens, by the column that they come from."""
MEMORY_MB = 1024
_METRICS = tuple(
    column.name
    for column in METRICS
    if not column.name.startswith("time") and column.name not in ("step", "entropy_source", "traits", "traits_correct")
)


def write_unipo(run_dir: str | Path, out: str | Path) -> tuple[int, int]:
    """Write a run into the new file `out`, a step at a time; returns its steps and responses.

    Raises ExportError for a run without training rollouts or one that cannot be read, or where `out` is there already;
    nothing is left behind then.
    """
    run_dir, out = Path(os.path.abspath(run_dir)), Path(out)
    if out.exists():
        raise ExportError(f"{out} is already there: name a file that is not")
    aside = out.with_name(f".{out.name}.{os.getpid()}")
    try:
        with Lab([run_dir]) as lab, aside.open("x", encoding="ascii") as stream:
            lab.limit_memory(MEMORY_MB)
            written = _write(lab, run_dir, stream)
        if not written[0]:
            raise ExportError(f"the run {run_dir.name} has no training rollouts to export")
        os.replace(aside, out)
    except (StoreError, duckdb.Error) as error:
        raise ExportError(f"the run {run_dir.name}: {str(error).partition(chr(10))[0]}") from error
    finally:
        aside.unlink(missing_ok=True)
    return written


def _write(lab: Lab, run_dir: Path, stream: TextIO) -> tuple[int, int]:
    config = read_run(run_dir / "config.yaml")
    method = trained_method(run_dir, config)
    head = json.dumps(header(config, method), indent=1, allow_nan=False)
    stream.write(f'{{"header": {head},\n"entries": [')
    steps = responses = 0
    for entry in _entries(lab, run_dir.name, method.loss):
        text = json.dumps(entry, allow_nan=False, separators=(",", ":"))
        stream.write(f"{',' if steps else ''}\n{text}")
        steps, responses = steps + 1, responses + sum(len(prompt["responses"]) for prompt in entry["prompts"])
    stream.write("\n]}\n")
    return steps, responses


def header(config: RunConfig, method: Method) -> dict[str, Any]:
    """What the run is: its method with every parameter, and the settings that a reader of rollouts asks for."""
    loss = method.loss
    hparams: dict[str, Any] = {
        "model": model_name(config.model),
        "task": config.task.name,
        "group_size": config.group_size,
        "prompts_per_step": config.prompts_per_step,
        "temperature": config.sampling.temperature,
        "max_tokens": config.sampling.max_new_tokens,
        "learning_rate": config.optimizer.lr,
        "objective": loss.objective,
        "aggregation": loss.aggregation,
        "clip_eps": loss.clip_low,
        "clip_eps_high": loss.clip_high,
        "kl_coef": loss.kl,
        "minibatches": config.updates.minibatches,
        "epochs": config.updates.epochs,
        "seed": config.seed,
    }
    for rule in (method.base, *method.weights):
        hparams |= {f"{rule.name}.{name}": value for name, value in rule.params.items()}
    return {
        "algorithm": method.name, "label": method.label, "totalSteps": config.steps, "hparams": hparams,
        "source": f"Advantage Lab {core.__version__}",
    }  # fmt: skip


def _entries(lab: Lab, run: str, loss: Loss) -> Iterator[dict[str, Any]]:
    named = ", ".join(_METRICS)
    metrics = {row["step"]: row for row in lab.rows(f"SELECT step, {named} FROM metrics WHERE run = ?", [run])}
    for step in lab.steps(run):
        prompts = _prompts(lab.step(run, step), loss, lab.factors("rollouts"))
        if prompts:
            values = {name: _plain(metrics.get(step, {}).get(name)) for name in _METRICS}
            known = {name: value for name, value in values.items() if value is not None}
            if "policy_loss" in known:
                known["policy_objective"] = -known["policy_loss"]
            yield {"step": step, "is_first_step_after_rollout_phase": True, "metrics": known, "prompts": prompts}


def _prompts(here: StepLab, loss: Loss, factors: list[str]) -> list[dict[str, Any]]:
    """The training groups of a step, in order."""
    names = ", ".join(("base_advantage", "kept", "reward", "correct", "length", "truncated", "text", *factors))
    rollouts = here.rows(
        f"""SELECT "group", rollout, {names} FROM rollouts WHERE split = 'train' ORDER BY "group", rollout"""
    )
    asked = here.rows("""SELECT "group", prompt, answer FROM groups WHERE split = 'train'""")
    texts = {row["group"]: (row["prompt"], row["answer"]) for row in asked}
    tokens = _tokens(here, loss)
    prompts: dict[int, dict[str, Any]] = {}
    for row in rollouts:
        group, rollout = row["group"], row["rollout"]
        if group not in prompts:
            prompt, answer = texts.get(group, (None, None))
            prompts[group] = {"prompt": _decoded(prompt), "answer": _decoded(answer), "responses": []}
        series = tokens.get((group, rollout))
        response = {
            "id": f"s{here.step}_p{group}_{rollout}",
            "reward": _plain(row["reward"], single=True),
            "advantage": _advantage(row, factors, series),
            "correct": row["correct"],
            "truncated": row["truncated"],
            "response_text": _decoded(row["text"]),
            "response_length": row["length"],
        }
        prompts[group]["responses"].append(response | ({"tokens": series} if series else {}))
    return list(prompts.values())


def _advantage(row: dict[str, Any], factors: list[str], series: dict[str, Any] | None) -> float | None:
    """What the whole response has; the mean over its tokens where the base rule gives one a token."""
    base = row["base_advantage"]
    if base is not None:
        there = [row[name] for name in factors if row[name] is not None]
        return _plain(math.prod(there, start=base)) if row["kept"] or row["kept"] is None else 0.0
    values = [value for value in (series or {}).get("advantages", ()) if value is not None]
    return _plain(math.fsum(values) / len(values)) if values else None


def _tokens(here: StepLab, loss: Loss) -> dict[tuple[int, int], dict[str, list[Any]]]:
    """UNIPO's lists of each response that has tokens, by (group, rollout)."""
    columns = here.arrays(
        f"""SELECT "group", rollout, {", ".join(SERIES.values())}, ratio, tis FROM tokens WHERE split = 'train'
        ORDER BY "group", rollout, position"""
    )
    group, rollout = columns["group"], columns["rollout"]
    if not len(group):
        return {}
    starts = np.flatnonzero(np.r_[True, (np.diff(group) != 0) | (np.diff(rollout) != 0)])
    lists = {name: _list(columns[column]) for name, column in SERIES.items()}
    lists["token_objective"] = _list(objective(loss, columns["advantage"], columns["ratio"], columns["tis"]))
    found = {}
    for start, end in zip(starts.tolist(), [*starts[1:].tolist(), len(group)], strict=True):
        own = {name: values[start:end] for name, values in lists.items()}
        found[int(group[start]), int(rollout[start])] = {
            name: values for name, values in own.items() if any(value is not None for value in values)
        }
    return found


def objective(loss: Loss, advantage: np.ndarray, ratio: np.ndarray, tis: np.ndarray) -> np.ndarray:
    """(n,) each token's term of the policy objective before its loss weight, as `core.train.losses` has it, penalties
    left out; NaN where the objective has no such term, or the token no ratio. All arrays (n,), NaN for null."""
    ratio = np.where(advantage == 0, 1.0, ratio)  # a token without an advantage has no gradient pass, and adds nothing
    term = advantage * ratio
    if loss.objective in ("clip", "gspo"):
        term = np.minimum(term, advantage * np.clip(ratio, 1 - loss.clip_low, 1 + loss.clip_high))
        if loss.dual_clip is not None:
            term = np.where(advantage < 0, np.maximum(term, advantage * loss.dual_clip), term)
    elif loss.objective != "ratio":
        return np.full(len(advantage), np.nan)
    return term * np.where(np.isnan(tis), 1.0, tis)


def _list(values: np.ndarray) -> list[Any]:
    """A column as JSON: null for NaN and null, nine digits of a single-precision number, which are all of it."""
    if values.dtype.kind == "f":
        return [float(f"{value:.9g}") if math.isfinite(value) else None for value in values.tolist()]
    if values.dtype.kind in "iu":
        return values.tolist()
    return [_decoded(value) for value in values.tolist()]  # of a masked array: None where it is null


def _plain(value: Any, single: bool = False) -> float | int | None:
    """A number for JSON; of a `single`-precision one the nine digits that are all of it."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        return float(f"{value:.9g}") if single else value
    return value


def _decoded(text: str | None) -> str | None:
    return None if text is None else decode(text)
