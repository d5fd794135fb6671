"""The trainer's side of the vLLM process: its start, its messages, its last words and its end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

from core.engines.base import EngineError
from core.engines.vllm_messages import Failure
from core.runs.log import last_words, log_tail

REPO = Path(__file__).parents[2]
ALWAYS = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",  # no processes besides the one
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}
ON_CPU = {
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # bound threads wait for the very cores that others use
    "TORCH_COMPILE_DISABLE": "1",  # what is left to compile with LoRA saves nothing, needs a compiler and 10 seconds
}
OF_A_LAUNCHER = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables of distributed training, which vLLM would take as meant for itself."""
LAST_WORDS = 400
"""Characters of vLLM's words in a message, at most."""
_ERROR = re.compile(r"\b(ERROR|CRITICAL|FATAL)\b|\b\w*(Error|Exception)\b: ")
_HARMLESS = re.compile(r"\b(DEBUG|INFO|WARNING)\b")
"""vLLM warns of errors that it expects."""


class VllmProcess:
    """One process with one engine, on which the trainer waits. Raises EngineError when it fails or ends."""

    def __init__(self, log: Path, environment: dict[str, str]):
        self.log = log
        self._connection, theirs = Pipe()
        command = [sys.executable, "-m", "core.engines.vllm_child", str(theirs.fileno()), str(os.getpid())]
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                command, cwd=REPO, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
            )  # fmt: skip
        theirs.close()

    @property
    def pid(self) -> int:
        return self._process.pid

    def ask(self, message: Any) -> Any:
        """Send a message and wait for its answer."""
        try:
            self._connection.send(message)
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            raise EngineError(self._death()) from error
        if isinstance(answer, Failure):
            raise EngineError(f"vLLM failed: {_cut(answer.words)} (all it said is in {self.log.name})")
        return answer

    def close(self) -> None:
        """End the process and wait until it is gone, with its memory."""
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def _death(self) -> str:
        code = self._process.wait()
        how = f"ended with code {code}"
        if code < 0:
            name = signal.Signals(-code).name
            how = f"was killed by {name}" + (" (the machine's memory ran out, perhaps)" if name == "SIGKILL" else "")
        lines = [line for line in log_tail(self.log).splitlines() if not _HARMLESS.search(line)]
        errors = [line for line in lines if _ERROR.search(line)]
        words = errors[-1] if errors else last_words(self.log) if code >= 0 else ""
        return f"vLLM's process {how}" + (
            f"; its last words, in {self.log.name}: {_cut(words.strip())}"
            if words
            else f"; all it said is in {self.log.name}"
        )


def environment(device: str, gpu: int | None, threads: int, temporary: Path) -> dict[str, str]:
    """The process's variables. `gpu` is the trainer's own as torch counts them, None for the first."""
    variables = {name: value for name, value in os.environ.items() if name not in OF_A_LAUNCHER} | ALWAYS
    variables["TMPDIR"] = str(temporary)  # what a killed process leaves there goes with the run
    variables.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if device == "cpu":
        return variables | ON_CPU | {"OMP_NUM_THREADS": str(threads)}
    if gpu:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        variables["CUDA_VISIBLE_DEVICES"] = visible.split(",")[gpu] if visible else str(gpu)
    return variables


def _cut(words: str) -> str:
    return words if len(words) <= LAST_WORDS else words[: LAST_WORDS - 1] + "…"
