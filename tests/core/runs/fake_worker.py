"""The real worker around a pretended training loop, told what to do by FAKE (JSON): step_s, fail_at, kind, die_at."""

import json
import os
import signal
import sys
import time
import types
from pathlib import Path

FAKE = json.loads(os.environ.get("FAKE", "{}"))


def train(run_dir: Path, reporter) -> str:
    from core.config import read_run

    assert "torch" not in sys.modules
    assert os.environ["OMP_WAIT_POLICY"] == "PASSIVE"
    steps = read_run(run_dir / "config.yaml").steps
    timeline = run_dir.parent / "timeline.txt"
    done = run_dir / "done.txt"
    first = int(done.read_text()) if done.exists() else 0
    reporter.loading("loading the model")
    time.sleep(FAKE.get("load_s", 0))
    with timeline.open("a") as file:
        file.write(f"start {run_dir.name}\n")
    reporter.started(steps, first)
    for step in range(first, steps):
        if reporter.should_stop():
            break
        time.sleep(FAKE.get("step_s", 0.01))
        if step == FAKE.get("fail_at"):
            raise {
                "memory": MemoryError(),
                "disk": OSError(28, "No space left on device"),
                "rust": RuntimeError("I/O error: No space left on device"),
            }.get(FAKE.get("kind"), ZeroDivisionError("the loss is <b>not</b> a number\x1b[31m"))
        if step == FAKE.get("die_at"):
            reporter.log("about to take up all memory")
            os.kill(os.getpid(), signal.SIGKILL)
        done.write_text(str(step + 1))
        reporter.step_done(step, {"reward": step / steps, "pass_at_1": None, "loss": float("nan")})
    with timeline.open("a") as file:
        file.write(f"end {run_dir.name}\n")
    return "finished" if int(done.read_text() if done.exists() else 0) == steps else "stopped"


loop = types.ModuleType("core.train.loop")
loop.train = train
sys.modules["core.train.loop"] = loop

from core.runs.worker import main  # noqa: E402

sys.exit(main())
