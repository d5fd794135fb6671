"""What the machine has: nvidia-smi is a real program on the PATH here, with the answers that drivers give."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from core.runs import hardware
from core.runs.hardware import Memory, gpu_memory, host_memory

MIB = 2**20


@pytest.fixture
def smi(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """`smi(answer)` puts an nvidia-smi on the PATH that prints it, if it is asked the right thing."""
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(hardware, "WSL", tmp_path / "none")

    def install(answer: str, code: int = 0, wait: float = 0) -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(
            "#!/bin/sh\n"
            f'[ "$1" = "{hardware.QUERY[0]}" ] || exit 9\n'
            f"sleep {wait}\ncat <<'EOF'\n{answer}\nEOF\nexit {code}\n"
        )
        program.chmod(0o755)
        hardware._ask.cache_clear()

    yield install
    hardware._ask.cache_clear()


TWO = "0, GPU-aaaa-1, NVIDIA L4, 23034, 20000\n1, GPU-bbbb-2, NVIDIA H200, 143771, 143000"


def test_the_first_card(smi) -> None:
    smi(TWO)
    assert gpu_memory() == Memory("NVIDIA L4", 23034 * MIB, 20000 * MIB)


@pytest.mark.parametrize(
    ("visible", "name"),
    [("1", "NVIDIA H200"), (" 1 ,0", "NVIDIA H200"), ("GPU-bbbb", "NVIDIA H200"), ("0,1", "NVIDIA L4")],
)
def test_the_card_that_cuda_would_see(smi, monkeypatch, visible: str, name: str) -> None:
    smi(TWO)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_memory().where == name


@pytest.mark.parametrize("visible", ["", "-1", "7", "MIG-1234"])
def test_a_card_out_of_sight(smi, monkeypatch, visible: str) -> None:
    smi(TWO)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert gpu_memory() is None


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "No devices were found",
        "0, GPU-a, NVIDIA GB10, [N/A], [N/A]",
        "0, GPU-a, Slice, 0, 0",
        "0, GPU-a, 5",
        "\x00,,,,",
    ],
)
def test_an_answer_without_the_numbers(smi, answer: str) -> None:
    smi(answer)
    assert gpu_memory() is None


def test_a_name_with_commas(smi) -> None:
    smi("0, GPU-a, Some, odd card, 100, 50")
    assert gpu_memory() == Memory("Some, odd card", 100 * MIB, 50 * MIB)


def test_a_program_that_fails_hangs_or_is_not_there(smi, monkeypatch, tmp_path: Path) -> None:
    smi(TWO, code=9)
    assert gpu_memory() is None
    monkeypatch.setattr(hardware, "ANSWER_S", 0.2)
    smi(TWO, wait=5)
    assert gpu_memory() is None
    (tmp_path / "nvidia-smi").write_text("no program")
    hardware._ask.cache_clear()
    assert gpu_memory() is None
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    hardware._ask.cache_clear()
    assert gpu_memory() is None


def test_it_is_asked_once_a_moment(smi, tmp_path: Path) -> None:
    smi(TWO)
    assert gpu_memory() is not None
    (tmp_path / "nvidia-smi").unlink()
    assert gpu_memory() is not None


def test_the_machines_own_memory() -> None:
    memory = host_memory()
    assert memory.total == psutil.virtual_memory().total
    assert 0 < memory.free <= memory.total
