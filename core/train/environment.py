"""What "the same to the last bit" rests on: the machine, the thread count and torch."""

from __future__ import annotations

import platform
from pathlib import Path

import torch

from core.train.reporter import TrainingError


def environment(device: str) -> dict[str, str | int]:
    """The machine that computes (its processor, or its GPU), the threads it uses and torch's version."""
    machine = torch.cuda.get_device_name() if device == "cuda" else _processor()
    return {"machine": machine, "threads": torch.get_num_threads(), "torch": torch.__version__}


def check_same(then: dict[str, str | int], now: dict[str, str | int]) -> None:
    """Raises TrainingError where a resumed run would not continue as if it had never stopped."""
    different = [f"{name} was {then.get(name)}, now {value}" for name, value in now.items() if then.get(name) != value]
    if different:
        raise TrainingError(
            f"cannot go on exactly as before: {'; '.join(different)}. Resume where nothing differs, or set "
            "checkpoint.exact: false in the run's config.yaml to go on with small rounding differences"
        )


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    named = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{platform.machine()} {named[0] if named else platform.processor()}".strip()
