"""How long a million rollouts of text take to import, and in how much memory.

    python -m tests.bench.imports [--rollouts 1000000] [--files 1000] [--folder DIR]

Makes Parquet files as TRL's trainer writes them (one a step, text alone, two reward functions, groups of 8), imports
them in a process of its own, and prints its times (on the clock and of the processor) and its largest memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

GROUP = 8
TARGET_S, TARGET_MB = 60.0, 2048.0
"""What a million rollouts may take on two cores."""
_WORDS = ("so the sum of", "both is then", "first we add", "two numbers", "carry one", "check that it holds", "wait no")


@dataclass
class Import:
    """One import, measured."""

    rollouts: int
    steps: int
    wall_s: float
    cpu_s: float
    """Of the processor, all threads: on an idle machine with two cores, no import can take less than half of it."""
    largest_mb: float
    sealed_mb: float

    def __str__(self) -> str:
        return (
            f"{self.rollouts:,} rollouts of {self.steps:,} steps: {self.wall_s:.1f} s, {self.cpu_s:.1f} s of the "
            f"processor, {self.largest_mb:.0f} MB at most, {self.sealed_mb:.0f} MB sealed"
        )


def make(folder: Path, rollouts: int, files: int) -> None:
    """Files as TRL writes them: `completions/completions_00001.parquet` and so on."""
    random = np.random.default_rng(0)
    (folder / "completions").mkdir(parents=True)
    each = rollouts // files // GROUP * GROUP
    phrases = [" ".join(random.choice(_WORDS, random.integers(20, 120))) for _ in range(2000)]
    for step in range(1, files + 1):
        reward = (random.random(each) < 0.4).astype(np.float64)
        by_group = reward.reshape(-1, GROUP)
        spread = by_group.std(axis=1, ddof=1, keepdims=True) + 1e-4
        numbers = random.integers(0, 10**6, each // GROUP)
        table = pa.table(
            {
                "step": pa.array([step] * each),
                "prompt": [f"What is {n} + {step}? Think step by step." for n in numbers for _ in range(GROUP)],
                "completion": [f"{phrases[i]} {i * step}" for i in random.integers(0, len(phrases), each)],
                "accuracy_reward": reward,
                "format_reward": np.zeros(each),
                "advantage": ((by_group - by_group.mean(axis=1, keepdims=True)) / spread).ravel(),
            }
        )
        pq.write_table(table, folder / "completions" / f"completions_{step:05d}.parquet")


def measure(source: Path, runs: Path) -> Import:
    """Import in a new process, so that its memory is its own."""
    command = [sys.executable, "-m", "tests.bench.imports", "--child", str(source), str(runs)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return Import(**json.loads(done.stdout.splitlines()[-1]))


def child(source: Path, runs: Path) -> Import:
    """Import here, once."""
    from core.importers.formats import all_formats, find
    from core.importers.write import bring_in

    started, before = time.perf_counter(), time.process_time()
    found = find(source)
    made = bring_in(runs, all_formats()[found.format], found)
    return Import(
        rollouts=made.manifest.rollouts,
        steps=made.manifest.steps,
        wall_s=time.perf_counter() - started,
        cpu_s=time.process_time() - before,
        largest_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1024 if sys.platform == "linux" else 2**20),
        sealed_mb=(made.path / "rollouts.duckdb").stat().st_size / 2**20,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rollouts", type=int, default=1_000_000)
    parser.add_argument("--files", type=int, default=1000)
    parser.add_argument("--folder", type=Path, help="Where files and run go; a temporary folder otherwise.")
    parser.add_argument("--child", nargs=2, type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child:
        print(json.dumps(asdict(child(*given.child))))
        return
    with tempfile.TemporaryDirectory(prefix="lab-imports-", dir=given.folder) as folder:
        source = Path(folder, "trl")
        make(source, given.rollouts, given.files)
        found = measure(source, Path(folder, "runs"))
        print(found)
        print(f"target for 1,000,000: under {TARGET_S:.0f} s on two cores, under {TARGET_MB:.0f} MB")


if __name__ == "__main__":
    main()
