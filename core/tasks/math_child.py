"""The process that math-verify lives in: `python -m core.tasks.math_child FD`, started by `core.tasks.mathematics`.

It never reads a formula itself: a forked child of its own does, and is killed when it takes too long, since a sympy
that hangs cannot be stopped in any other way. A fork has everything imported already, so the next one starts at once.
Both end with the trainer: its end of the socket closes. Messages are JSON, never pickles: the child reads hostile text.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import signal
import sys
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

PR_SET_PDEATHSIG = 1
MEMORY = 4 * 2**30
"""Bytes of address space that a formula may take: 9**9**9 takes as much as it gets."""
REQUESTS = 5000
"""After so many a fresh child takes over: sympy's caches only grow."""


def main() -> None:
    """Answer questions, each [answer, response, seconds], with the name of an outcome."""
    connection = Connection(int(sys.argv[1]))
    try:
        compare("1", r"the answer is 2, or $\frac{2}{2}$")  # so that every fork has all of it imported and warm
    except Exception as error:  # noqa: BLE001 - whatever it is, the trainer has to hear of it
        connection.send_bytes(json.dumps(f"{type(error).__name__}: {error}").encode())
        return
    connection.send_bytes(b'"ready"')
    judge: Judge | None = None
    try:
        while True:
            question = connection.recv_bytes()
            judge = judge or Judge(connection)
            outcome = judge.ask(question, float(json.loads(question)[2]))
            if judge.spent:
                judge.end()
                judge = None
            connection.send_bytes(json.dumps(outcome).encode())
    except (EOFError, OSError):
        pass
    finally:
        if judge:
            judge.end()


class Judge:
    """A forked child that compares; this is its parent's side."""

    def __init__(self, outside: Connection) -> None:
        self.asked, self.spent = 0, False
        self.connection, theirs = Pipe()
        self.pid = os.fork()
        if self.pid == 0:
            outside.close()
            self.connection.close()
            _serve(theirs)
            os._exit(0)
        theirs.close()

    def ask(self, question: bytes, seconds: float) -> str:
        """The outcome; a child that gave none in time, or died, is spent."""
        self.asked += 1
        self.spent = self.asked >= REQUESTS
        try:
            self.connection.send_bytes(question)
            if self.connection.poll(seconds):
                return self.connection.recv_bytes().decode()
            outcome = "timed_out"
        except (EOFError, OSError):
            outcome = "failed"
        self.spent = True
        return outcome

    def end(self) -> None:
        self.connection.close()
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def _serve(connection: Connection) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        while True:
            answer, response, _ = json.loads(connection.recv_bytes())
            try:
                outcome = compare(answer, response)
            except (Exception, RecursionError, MemoryError):  # noqa: BLE001 - a formula that breaks sympy is a wrong one
                outcome = "failed"
            connection.send_bytes(outcome.encode())
    except (EOFError, OSError):
        pass


def compare(answer: str, response: str) -> str:
    """right, wrong, no_answer (the response has nothing to compare) or failed (the answer itself is no formula)."""
    from math_verify import parse, verify

    untimed: dict[str, Any] = {"parsing_timeout": None}  # its own limit is a SIGALRM; this process is killed instead
    formula = answer if "$" in answer or r"\boxed" in answer else rf"\boxed{{{answer}}}"
    gold = parse(formula, **untimed) or parse(answer, **untimed)
    if not gold:
        return "failed"
    said = parse(response, **untimed)
    if not said:
        return "no_answer"
    return "right" if verify(gold, said, timeout_seconds=None) else "wrong"


if __name__ == "__main__":
    main()
