"""Real workers without the seconds of importing torch for each: a server that forks them, and its client.

Run as a script it is the server: one run folder a line in, its pid and then "ended" out.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


class Workers:
    """Starts real worker processes, one at a time."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.warm"]
        self._server = subprocess.Popen(
            command, cwd=Path(__file__).parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        assert self._server.stdout.readline() == "ready\n"

    def begin(self, run_dir: Path) -> int:
        """Start a worker on a run; returns its pid."""
        self._server.stdin.write(f"{run_dir}\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())

    def end(self) -> None:
        """Wait for the worker's end."""
        assert self._server.stdout.readline() == "ended\n"

    def close(self) -> None:
        self._server.kill()
        self._server.wait()


def work(run_dir: str) -> None:
    """The forked process: what `python -m core.runs.worker RUN_DIR` does, its output in the run's log."""
    from core.runs.worker import main

    os.setsid()
    log = os.open(f"{run_dir}/log.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    sys.argv = ["worker", run_dir]
    os._exit(main())


def serve() -> None:
    import core.train.loop  # noqa: F401

    print("ready", flush=True)
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            try:
                work(line.strip())
            finally:
                os._exit(1)
        print(pid, flush=True)
        os.waitpid(pid, 0)
        print("ended", flush=True)


if __name__ == "__main__":
    serve()
