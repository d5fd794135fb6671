"""Mathematics: a response is right if math-verify finds it equal to the answer, in a process that can be killed.

math-verify (an optional package) reads LaTeX and plain formulas and compares them with sympy. Some formulas keep sympy
busy for ever; such a response is wrong, and counted as timed out.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path

from core.tasks.answers import LONGEST_READ, gold, marked
from core.tasks.base import Judgement, Prompt, TaskError

REPO = Path(__file__).parents[2]
INSTALL = 'pip install "math-verify>=0.9,<0.10"'
START_S = 120.0
"""Seconds for the process to start: it imports sympy, on a busy machine perhaps."""
SPARE_S = 30.0
"""Seconds beyond the limit after which the process itself is taken for lost."""


@dataclass(frozen=True)
class Mathematics:
    """Traits: `answered`, `timed_out`, and `failed` where the answer or the response broke the library."""

    read: str = "auto"
    seconds: float = 5.0

    def __post_init__(self) -> None:
        if importlib.util.find_spec("math_verify") is None:
            raise TaskError(f"task.verify.kind is math, which needs the package math-verify: {INSTALL}")

    def problem(self, answer: str) -> str:
        return "" if gold(answer) else "no answer"

    def judge(self, prompt: Prompt, response: str) -> Judgement:
        text = marked(response, self.read)
        if text is None:
            text = response[-LONGEST_READ:] if self.read == "auto" else ""
        elif "$" not in text and "\\boxed" not in text:
            text = rf"\boxed{{{text}}}"
        if not text.strip():
            return _outcome("no_answer")
        return _outcome(PROCESS.ask(gold(prompt.answer), text[-LONGEST_READ:], self.seconds))


def _outcome(name: str) -> Judgement:
    traits = {
        "answered": float(name in ("right", "wrong")),
        "timed_out": float(name == "timed_out"),
        "failed": float(name == "failed"),
    }
    return Judgement(float(name == "right"), traits)


class MathProcess:
    """One process that compares, started when it is first asked; callers of several threads take turns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def ask(self, answer: str, response: str, seconds: float) -> str:
        """The outcome's name. Raises TaskError where the process does not start, or is lost twice."""
        question = json.dumps([answer, response, seconds]).encode()
        with self._lock:
            for last in (False, True):
                if self._process is None:
                    self._start()
                try:
                    self._connection.send_bytes(question)
                    if self._connection.poll(seconds + SPARE_S):
                        return str(json.loads(self._connection.recv_bytes()))
                except (EOFError, OSError):
                    pass
                self._end()
                if last:
                    raise TaskError("task.verify: the process of math-verify was lost twice; resume to go on")
        raise AssertionError("unreachable")

    def close(self) -> None:
        """End the process; the next question starts another."""
        with self._lock:
            self._end()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def _start(self) -> None:
        self._connection, theirs = Pipe()
        command = [sys.executable, "-m", "core.tasks.math_child", str(theirs.fileno())]
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self._process = subprocess.Popen(command, cwd=REPO, pass_fds=[theirs.fileno()], **quiet)
        theirs.close()
        try:
            said = json.loads(self._connection.recv_bytes()) if self._connection.poll(START_S) else "it does not start"
        except (EOFError, OSError):
            said = "it ended at once"
        if said != "ready":
            self._end()
            raise TaskError(f"task.verify.kind is math, but math-verify cannot be used ({said}): {INSTALL}")

    def _end(self) -> None:
        if self._process:
            self._connection.close()
            self._process.kill()
            self._process.wait()
            self._process = None


PROCESS = MathProcess()
"""The process of this process: it starts with the first formula and ends when this one does."""
