"""A rank > 0 that trains nothing: FAKE_RANK (JSON, by rank) says how it ends: error, killed, crashed, silent, done, or
never."""

import json
import os
import signal
import sys
import time
from pathlib import Path

from core.runs.status import write_atomic

_, rank, world, folder, parent = sys.argv[1:]
Path(folder, f"here-{rank}").write_text(f"{os.getpid()} {world} {os.environ.get('CUDA_VISIBLE_DEVICES')}")
assert os.getppid() == int(parent)
what = json.loads(os.environ["FAKE_RANK"]).get(rank, "never")
if what == "error":
    write_atomic(Path(folder, f"error-{rank}"), "step 3: the <b>verifier</b> gave nothing")
    sys.exit(1)
if what == "killed":
    os.kill(os.getpid(), signal.SIGKILL)
if what == "crashed":
    os.kill(os.getpid(), signal.SIGABRT)
if what == "silent":
    sys.exit(7)
while what == "never":
    time.sleep(0.1)
