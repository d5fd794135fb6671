"""Keeps status.json fresh while the run's process lives, from a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.runs.status import Status, write_status

BEAT_S = 3.0
"""Seconds between heartbeats when there is nothing else to say."""
SOON_S = 0.5
"""Seconds that news may wait, so that fast steps do not each flush the disk."""


class Heartbeat:
    """The one writer of a live run's status. `on_stop_file` is called once when somebody asks the run to stop."""

    def __init__(self, run_dir: Path, status: Status, on_stop_file: Callable[[], None]) -> None:
        self.run_dir = run_dir
        self.status = status
        self._on_stop_file = on_stop_file
        self._lock = threading.RLock()
        self._news = False
        self._written = 0.0
        self._ended = False

    def start(self, also: Callable[[], None]) -> None:
        """Begin to beat; `also` is called with each heartbeat."""
        self.now()
        threading.Thread(target=self._beat, args=(also,), name="heartbeat", daemon=True).start()

    def now(self, **changes: Any) -> None:
        """Change the status and write it before returning. A disk that refuses must not end the run: it beats again."""
        with self._lock:
            self.soon(**changes)
            self._write()

    def stop(self, **changes: Any) -> None:
        """Write the last status; the next writer may be another process."""
        with self._lock:
            self.now(**changes)
            self._ended = True

    def soon(self, **changes: Any) -> None:
        """Change the status; the thread writes it shortly."""
        with self._lock:
            self.status = replace(self.status, **changes)
            self._news = True

    def _write(self) -> None:
        with self._lock:
            if self._ended:
                return
            self._news = False
            self._written = time.monotonic()
            self.status = replace(self.status, heartbeat=time.time())
            try:
                write_status(self.run_dir, self.status)
            except OSError as error:
                print(f"status.json cannot be written: {error}", flush=True)

    def _beat(self, also: Callable[[], None]) -> None:
        told = False
        while not self._ended:
            time.sleep(SOON_S)
            if not told and (self.run_dir / "stop").exists():
                told = True
                self._on_stop_file()
            if time.monotonic() - self._written >= BEAT_S:
                self._write()
                also()
            elif self._news:
                self._write()
