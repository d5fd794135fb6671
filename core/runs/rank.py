"""The process of a rank > 0: `python -m core.runs.rank RUN_DIR RANK WORLD FOLDER PARENT`, started by `core.runs.team`.

It trains with the others and writes nothing but its own rows of each step. What it prints goes to the run's log; what
ends it, one sentence, to FOLDER/error-RANK. It never outlives PARENT, the pid of rank 0.
"""

from __future__ import annotations

import faulthandler
import os
import shutil
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from core.runs.loading import heavy_imports
from core.runs.status import write_atomic
from core.runs.worker import in_one_sentence

POLL_S = 0.2


class Silent:
    """The reporter of a rank that is not asked."""

    def loading(self, text: str) -> None: ...

    def started(self, total: int, start_step: int) -> None: ...

    def step_done(self, step: int, metrics: dict[str, Any]) -> None: ...

    def should_stop(self) -> bool:
        return False

    def log(self, text: str) -> None: ...


def main(run_dir: Path, rank: int, world: int, folder: Path, parent: int) -> int:
    watch = threading.Thread(target=_end_with, args=(parent, folder), daemon=True)
    watch.start()
    for asked in (signal.SIGINT, signal.SIGTERM):
        signal.signal(asked, signal.SIG_IGN)  # rank 0 hears of it too, and all stop after the same step
    faulthandler.enable()
    sys.stdout.reconfigure(errors="backslashreplace")
    sys.stderr.reconfigure(errors="backslashreplace")
    try:
        with heavy_imports():
            from core.config import read_run
            from core.train.loop import train
            from core.train.policy import device_of
            from core.train.ranks import joined

        device = device_of(read_run(run_dir / "config.yaml"))
        with joined(rank, world, folder / "meeting", device) as ranks:
            train(run_dir, Silent(), ranks)
    except BaseException as error:
        watch.join(2 * POLL_S)  # if rank 0 is gone, that is the reason, and there is nobody to tell
        traceback.print_exc()
        write_atomic(folder / f"error-{rank}", in_one_sentence(error))
        raise SystemExit(1) from error
    return 0


def _end_with(parent: int, folder: Path) -> None:
    """End this process, whatever it does, when its parent has ended, and clear what that one left."""
    while os.getppid() == parent:
        time.sleep(POLL_S)
    shutil.rmtree(folder, ignore_errors=True)
    os._exit(1)


if __name__ == "__main__":
    words = sys.argv[1:]
    sys.exit(main(Path(words[0]), int(words[1]), int(words[2]), Path(words[3]), int(words[4])))
