"""The process that vLLM lives in, before vLLM is in it: how it ends, and what is said then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from core.engines.base import EngineError
from core.engines.vllm_messages import Start
from core.engines.vllm_process import VllmProcess, environment

ROOT = Path(__file__).parents[3]
START = Start({}, one_adapter=False)
TRAINER = """
import os, sys, time
from pathlib import Path
from core.engines.vllm_process import VllmProcess, environment
process = VllmProcess(Path(sys.argv[1]), environment("cpu", None, 1, Path(sys.argv[1]).parent))
print(process.pid, flush=True)
time.sleep(60)
"""


def gone(process: psutil.Process, seconds: float = 10) -> bool:
    """Whether the process ends within this time; a zombie has ended."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            if process.status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.05)
    return False


def test_a_killed_process_is_told_with_its_last_words(tmp_path: Path) -> None:
    process = VllmProcess(tmp_path / "vllm.txt", environment("cpu", None, 1, tmp_path))
    with (tmp_path / "vllm.txt").open("a") as log:
        log.write("INFO loading\nValueError: no room for weights\nINFO leaving\n")
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(EngineError) as caught:
        process.ask(START)
    assert str(caught.value) == (
        "vLLM's process was killed by SIGKILL (the machine's memory ran out, perhaps); its last words, in vllm.txt: "
        "ValueError: no room for weights"
    )
    process.close()


def test_a_killed_process_without_an_error_has_no_last_words(tmp_path: Path) -> None:
    process = VllmProcess(tmp_path / "vllm.txt", environment("cpu", None, 1, tmp_path))
    with (tmp_path / "vllm.txt").open("a") as log:
        log.write("INFO loading\nWARNING [base.py:380] ValueError: no tokenizer\n")
    os.kill(process.pid, signal.SIGABRT)
    with pytest.raises(EngineError, match=r"^vLLM's process was killed by SIGABRT; all it said is in vllm\.txt$"):
        process.ask(START)
    process.close()


def test_a_process_that_leaves_is_told_with_its_code(tmp_path: Path) -> None:
    process = VllmProcess(tmp_path / "vllm.txt", environment("cpu", None, 1, tmp_path) | {"PYTHONHOME": str(tmp_path)})
    with pytest.raises(EngineError, match=r"^vLLM's process ended with code 1; its last words, in vllm.txt: "):
        process.ask(START)
    process.close()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_request_to_stop_is_left_to_the_trainer(tmp_path: Path) -> None:
    """A machine that shuts down asks every process, and the step in hand still has to be sampled."""
    process = VllmProcess(tmp_path / "vllm.txt", environment("cpu", None, 1, tmp_path))
    asked = 1 << signal.SIGINT - 1 | 1 << signal.SIGTERM - 1
    deadline = time.monotonic() + 30
    while True:
        fields = dict(line.split(":\t") for line in Path(f"/proc/{process.pid}/status").read_text().splitlines())
        if int(fields["SigIgn"], 16) & asked == asked:
            break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.close()


def test_closing_ends_the_process(tmp_path: Path) -> None:
    process = VllmProcess(tmp_path / "vllm.txt", environment("cpu", None, 1, tmp_path))
    assert psutil.pid_exists(process.pid)
    process.close()
    assert not psutil.pid_exists(process.pid)


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_the_trainer(tmp_path: Path, sign: signal.Signals) -> None:
    command = [sys.executable, "-c", TRAINER, str(tmp_path / "vllm.txt")]
    trainer = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    child = psutil.Process(int(trainer.stdout.readline()))
    assert child.is_running()
    trainer.send_signal(sign)
    trainer.wait()
    assert gone(child)
    trainer.stdout.close()


def test_its_variables(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("MASTER_ADDR", "elsewhere")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    on_cpu = environment("cpu", None, 3, tmp_path)
    assert on_cpu["TMPDIR"] == str(tmp_path)
    assert on_cpu["OMP_NUM_THREADS"] == "3"
    assert not {"WORLD_SIZE", "MASTER_ADDR"} & set(on_cpu)
    assert on_cpu["VLLM_ENABLE_V1_MULTIPROCESSING"] == "0"
    assert environment("cuda", 1, 3, tmp_path)["CUDA_VISIBLE_DEVICES"] == "7", "the second of those in sight"
    assert environment("cuda", None, 3, tmp_path)["CUDA_VISIBLE_DEVICES"] == "4,7"
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert environment("cuda", 1, 3, tmp_path)["CUDA_VISIBLE_DEVICES"] == "1"
