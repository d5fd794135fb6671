"""Checkpoints: `checkpoint/step=N` is all that a run needs to go on after N steps as if it had never stopped.

    adapter.safetensors    the trainable weights by name
    optimizer.safetensors  the optimizer's tensors, <index of the weight>.<name>
    state.json             steps done, optimizer steps, the walk through the prompts, the environment, the schedule's N

Random numbers need no state: every draw is keyed by the step. A checkpoint is written aside, flushed to the disk and
renamed; `LATEST` (the folder's name) moves after that, so it always names a whole one. No pickle anywhere.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from core.store.files import flush, replace_text
from core.train.policy import Policy
from core.train.reporter import TrainingError
from core.train.update import Updater

FOLDER = "checkpoint"
LATEST = "LATEST"
_STATE = {"step": int, "schedule_steps": int, "optimizer_steps": int, "cursor": dict, "environment": dict}


def save(run_dir: Path, state: dict[str, Any], policy: Policy, updater: Updater, keep: int) -> None:
    """Write the checkpoint of `state["step"]` steps done, move LATEST to it, and drop all but the newest `keep`."""
    folder = run_dir / FOLDER
    folder.mkdir(exist_ok=True)
    for leftover in folder.glob(".step=*"):
        shutil.rmtree(leftover)
    place = folder / f"step={state['step']}"
    new = folder / f".{place.name}"
    new.mkdir()
    adapter = {name: p.detach().cpu().contiguous() for name, p in policy.parameters.items()}
    save_file(adapter, new / "adapter.safetensors")
    save_file(_optimizer_tensors(updater), new / "optimizer.safetensors")
    (new / "state.json").write_text(json.dumps({**state, "optimizer_steps": updater.count}), encoding="utf-8")
    for path in (*new.iterdir(), new):
        flush(path)
    if place.exists():
        shutil.rmtree(place)
    new.rename(place)
    flush(folder)
    replace_text(folder / LATEST, place.name + "\n")
    for number in sorted(_numbers(folder), reverse=True)[keep:]:
        if f"step={number}" != place.name:
            shutil.rmtree(folder / f"step={number}")


def latest(run_dir: Path) -> Path | None:
    """The checkpoint that LATEST names; None before the first. Raises TrainingError where it is not there."""
    try:
        name = (run_dir / FOLDER / LATEST).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return None
    place = run_dir / FOLDER / name
    if not name.startswith("step=") or not (place / "state.json").is_file():
        raise TrainingError(f"{FOLDER}/{LATEST} names {name[:40]!r}, which is no checkpoint: put the name of one there")
    return place


def read_state(place: Path) -> dict[str, Any]:
    """The state that `save` was given, and `optimizer_steps`. Raises TrainingError."""
    try:
        state = json.loads((place / "state.json").read_text(encoding="utf-8"))
        if not isinstance(state, dict) or not all(isinstance(state.get(name), kind) for name, kind in _STATE.items()):
            raise ValueError(f"state.json must have {', '.join(_STATE)}")
        return state
    except (OSError, ValueError, RecursionError) as error:
        raise _unreadable(place, error) from error


def restore(place: Path, policy: Policy, updater: Updater) -> None:
    """Load a checkpoint's weights into the policy and its optimizer. Raises TrainingError."""
    try:
        adapter = load_file(place / "adapter.safetensors")
        tensors = load_file(place / "optimizer.safetensors")
        parameters = list(policy.parameters.items())
        if {name: t.shape for name, t in adapter.items()} != {name: p.shape for name, p in parameters}:
            raise TrainingError(
                f"{FOLDER}/{place.name}: its adapter is not this config's: set lora back to what it was"
            )
        with torch.no_grad():
            for name, parameter in parameters:
                parameter.copy_(adapter[name])
        for key, tensor in tensors.items():
            index, _, name = key.partition(".")
            parameter = parameters[int(index)][1]
            device = "cpu" if name == "step" and not parameter.is_cuda else parameter.device
            updater.optimizer.state[parameter][name] = tensor.to(device)
        updater.count = int(read_state(place)["optimizer_steps"])
    except TrainingError:
        raise
    except (OSError, ValueError, KeyError, IndexError, RuntimeError, SafetensorError) as error:
        raise _unreadable(place, error) from error


def _unreadable(place: Path, error: Exception) -> TrainingError:
    advice = f"put the name of an older one in {FOLDER}/{LATEST}, or start the run anew"
    return TrainingError(f"{FOLDER}/{place.name} cannot be read ({error}): {advice}")


def _optimizer_tensors(updater: Updater) -> dict[str, torch.Tensor]:
    tensors = {}
    for index, parameter in enumerate(updater.policy.parameters.values()):
        for name, value in updater.optimizer.state.get(parameter, {}).items():
            if value is not None:
                tensors[f"{index}.{name}"] = value.detach().cpu().contiguous()
    return tensors


def _numbers(folder: Path) -> list[int]:
    names = [path.name.removeprefix("step=") for path in folder.glob("step=*")]
    return [int(name) for name in names if name.isdecimal()]
