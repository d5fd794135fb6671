"""What "the same to the last bit" rests on: machine, processes and threads, torch, and the engine that samples."""

from __future__ import annotations

import os
import platform
from importlib.metadata import version
from pathlib import Path

import torch

import core
from core.config import RunConfig
from core.train.reporter import TrainingError


def use_threads(config: RunConfig, then: dict[str, str | int] | None, processes: int) -> None:
    """Compute with the config's thread count, else with that of the environment `then` that a checkpoint names, else
    with what suits the model; of several processes each gets its part of the cores."""
    if then and then.get("processes", 1) != processes:
        then = None
    threads = config.threads or (then and then["threads"]) or config.cpu_threads
    if threads is None and processes > 1:
        threads = max(1, _cores() // processes)
    if threads:
        torch.set_num_threads(int(threads))


def environment(device: str, processes: int = 1, engine: str = "transformers") -> dict[str, str | int]:
    """The machine that computes (its processor, or its GPU), the processes and the threads of each, torch's version,
    and the engine that samples."""
    machine = torch.cuda.get_device_name() if device == "cuda" else _processor()
    threads = torch.get_num_threads()
    return {
        "machine": machine, "processes": processes, "threads": threads, "torch": torch.__version__, "engine": engine,
    }  # fmt: skip


def versions() -> dict[str, str]:
    """The lab and the libraries that train, by name."""
    return {"lab": core.__version__, **{name: version(name) for name in ("torch", "transformers", "peft")}}


def check_same(then: dict[str, str | int], now: dict[str, str | int]) -> None:
    """Raises TrainingError where a resumed run would not continue as if it had never stopped."""
    then = {"processes": 1, "engine": "transformers", "prompts": now.get("prompts", ""), **then}
    different = [f"{name} was {then.get(name)}, now {value}" for name, value in now.items() if then.get(name) != value]
    if different:
        raise TrainingError(
            f"cannot go on exactly as before: {'; '.join(different)}. Resume where nothing differs, or set "
            "checkpoint.exact: false in the run's config.yaml to go on with small rounding differences"
        )


def _cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{platform.machine()} {named[0] if named else platform.processor()}".strip()
