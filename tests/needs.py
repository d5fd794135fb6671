"""What some tests need and a machine may lack: they skip there and say why, unless the run insists on all of them."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from core.engines.choose import INSTALL, vllm_build
from core.models.packaged import SMOLLM2
from core.runs import sinks
from core.tasks import generators, mathematics


def need_vllm() -> None:
    """Skip without vLLM for a CPU, or fail where LAB_REQUIRE_VLLM=1."""
    if vllm_build() != "cpu":
        _lack("LAB_REQUIRE_VLLM", f"no vLLM for a CPU is installed ({INSTALL['cpu']})")


def need_smollm2() -> None:
    """Skip without the packaged SmolLM2, or fail where LAB_REQUIRE_SMOLLM2=1."""
    if problem := SMOLLM2.problem():
        _lack("LAB_REQUIRE_SMOLLM2", problem)


def need_verl() -> Path:
    """The Python of verl's own environment; skip without that, or fail where LAB_REQUIRE_VERL=1."""
    python = Path(__file__).parents[1] / ".venv-verl" / "bin" / "python"
    if not python.exists():
        _lack("LAB_REQUIRE_VERL", "verl is not installed (.venv-test/bin/python .ci/verl.py makes .venv-verl for it)")
    return python


def need_math() -> None:
    """Skip without math-verify, or fail where LAB_REQUIRE_TASKS=1."""
    if importlib.util.find_spec("math_verify") is None:
        _lack("LAB_REQUIRE_TASKS", f"math-verify is not installed: {mathematics.INSTALL}")


def need_gym() -> None:
    """Skip without reasoning-gym, or fail where LAB_REQUIRE_TASKS=1."""
    if importlib.util.find_spec("reasoning_gym") is None:
        _lack("LAB_REQUIRE_TASKS", f"reasoning-gym is not installed: {generators.INSTALL}")


def need_sinks() -> None:
    """Skip without TensorBoard, Weights & Biases or trackio, or fail where LAB_REQUIRE_SINKS=1."""
    if missing := [command for name, command in sinks.PACKAGES.items() if not sinks.installed(name)]:
        _lack("LAB_REQUIRE_SINKS", f"not installed: {'; '.join(missing)}")


def _lack(variable: str, reason: str) -> None:
    if os.environ.get(variable) == "1":
        pytest.fail(reason)
    pytest.skip(reason)
