"""Writes steps until it is killed: for each line `RUN_DIR FIRST_STEP` of its input a fork that does so; prints its pid.

Forks, so that a kill costs milliseconds and not the import of everything. Steps FIRST_STEP, FIRST_STEP + 1, … are new
ones; every third write replaces an earlier step.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
from dataclasses import replace

from core.config import parse_run
from core.store import drop_steps_from, write_step
from tests.synthetic import records

RECORD = records(parse_run({"prompts_per_step": 4, "group_size": 8, "task": {"pool_size": 8}}), 1)[0]

SERVER = os.getpid()


def write(run_dir: str, first: int) -> None:
    drop_steps_from(run_dir, first)
    for step in itertools.takewhile(lambda _: os.getppid() == SERVER, itertools.count(first)):
        write_step(run_dir, replace(RECORD, step=step))
        if step % 3 == 2:
            write_step(run_dir, replace(RECORD, step=step // 2))


with tempfile.TemporaryDirectory() as warm_up:  # the first write of a process takes a quarter of a second
    write_step(warm_up, RECORD)
for line in sys.stdin:
    where, start = line.rsplit(maxsplit=1)
    pid = os.fork()
    if pid == 0:
        write(where, int(start))
        os._exit(0)
    print(pid, flush=True)
    os.waitpid(pid, 0)
    print("gone", flush=True)
