"""How fast the store answers at 10 million tokens, each number beside a named peer in the same run.

    python -m tests.bench.store [--tokens 10000000] [--json] [--folder DIR]

Makes the run of `tests.bench.made` (128 rollouts of some 200 tokens a step), seals it, and asks what pages ask. Times
are medians; the first calls of each question are not counted. What was seen: README.md beside this file.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import duckdb

from core.store import open_runs, seal, sweep
from core.store.queries import polarity as polarity_queries
from core.store.queries import tokens as token_queries
from tests.bench import made

GROUP_QUESTION = "sealed: one group's tokens"
WHOLE_RUN = "entropy and mass by step and polarity, from `summary`"
ROUNDS, WARM_UP = 21, 2
TARGET_MS = 20.0
"""What one group's tokens may take from a sealed run of 10 million."""


@dataclass
class Line:
    """One question: its median, and the peer that it is measured against."""

    question: str
    ms: float
    peer: str = ""
    peer_ms: float | None = None

    def __str__(self) -> str:
        beside = (
            f"   {self.peer_ms / self.ms:6.1f}x faster than {self.peer} ({self.peer_ms:.1f} ms)" if self.peer_ms else ""
        )
        return f"{self.question:<58} {self.ms:9.1f} ms{beside}"


def measure(
    question: str, ask: Callable[[], object], peer: str = "", ask_peer: Callable[[], object] | None = None
) -> Line:
    """Ask in turn with the peer, so that whatever else the machine does slows both; medians over up to ROUNDS calls."""
    asked = [ask] if ask_peer is None else [ask, ask_peer]
    times: list[list[float]] = [[] for _ in asked]
    started = time.perf_counter()
    for round_ in range(-WARM_UP, ROUNDS):
        for call, taken in zip(asked, times, strict=True):
            ms = once_ms(call)
            if round_ >= 0:
                taken.append(ms)
        if round_ >= 2 and time.perf_counter() - started > 10:
            break
    medians = [statistics.median(taken) for taken in times]
    return Line(question, medians[0], peer, medians[1] if ask_peer else None)


def once_ms(do: Callable[[], object]) -> float:
    started = time.perf_counter()
    do()
    return 1e3 * (time.perf_counter() - started)


def bench(folder: Path, tokens: int) -> list[Line]:
    """Make the run in `folder` and ask every question."""
    path, steps = folder / "bench", made.steps_of(tokens)
    written = made.make(path, steps)
    lines = [Line(f"write a step of {made.per_step():,} tokens, on the disk", statistics.median(written))]
    lines += _live(path, steps)
    lines.append(Line(f"seal {steps * made.per_step():,} tokens", once_ms(lambda: seal(path))))
    sweep(path, grace_s=0)
    return lines + _sealed(path, folder / "lists.duckdb", steps)


def _live(path: Path, steps: int) -> list[Line]:
    lab, plain, middle = open_runs([path]), duckdb.connect(), steps // 2
    files = (
        f"SELECT * FROM read_parquet('{path}/steps/*/tokens.parquet') "
        f'WHERE step = {middle} AND "group" = 7 ORDER BY rollout, position'
    )
    return [
        measure("live: open the run", lambda: open_runs([path])),
        measure(
            "live: one group's tokens, its step by its own path",
            lambda: token_queries.group_tokens(lab, "bench", middle, "train", 7),
            f"a plain query over the {steps} files",
            lambda: plain.execute(files).df(),
        ),
        measure("live: the metrics of all steps", lambda: lab.df("SELECT * FROM metrics ORDER BY step")),
        measure("live: " + WHOLE_RUN, lambda: polarity_queries.fields_by_step(lab, "bench")),
    ]


def _sealed(path: Path, lists_file: Path, steps: int) -> list[Line]:
    lab, middle = open_runs([path]), steps // 2
    lists = _as_lists(path / "rollouts.duckdb", lists_file)
    unnested = (
        'SELECT * EXCLUDE (step, split) FROM (SELECT step, split, "group", rollout, unnest(position) AS position, '
        + ", ".join(f"unnest({name}) AS {name}" for name in LISTED)
        + f' FROM rollouts WHERE step = {middle} AND "group" = 7) ORDER BY rollout, position'
    )
    four = 'SELECT rollout, position, advantage, entropy FROM tokens WHERE "group" = 7 ORDER BY rollout, position'
    return [
        measure("sealed: open the run", lambda: open_runs([path])),
        measure(
            GROUP_QUESTION,
            lambda: token_queries.group_tokens(lab, "bench", middle, "train", 7),
            "the same tokens kept as LIST columns",
            lambda: lists.execute(unnested).df(),
        ),
        measure("sealed: the same, four columns, as arrays", lambda: lab.step("bench", middle).arrays(four)),
        measure(
            "sealed: " + WHOLE_RUN,
            lambda: polarity_queries.fields_by_step(lab, "bench"),
            "the same from all tokens",
            lambda: lab.df(FROM_TOKENS),
        ),
    ]


LISTED = [
    "token_id", "token", "sampler_logprob", "trainer_logprob", "ref_logprob", "entropy", "base_advantage", "advantage",
    "kept", "loss_weight", "ratio", "clipped", "after_logprob", "entropy_after", "f_a3po",
]  # fmt: skip
FROM_TOKENS = """
    SELECT t.step, r.polarity, count(*) AS tokens, avg(t.entropy) AS entropy,
           avg(exp(t.sampler_logprob)) AS probability, sum(t.loss_weight * abs(t.advantage)) AS mass,
           sum(t.loss_weight * abs(t.base_advantage)) AS base_mass
    FROM tokens t JOIN rollouts r USING (run, step, split, "group", rollout) GROUP BY ALL ORDER BY ALL
"""


def _as_lists(sealed: Path, path: Path) -> duckdb.DuckDBPyConnection:
    """The same tokens as one row a rollout, sorted, with a LIST for each column: the peer."""
    connection = duckdb.connect(str(path))
    connection.execute(f"ATTACH '{sealed}' AS s (READ_ONLY)")
    listed = ", ".join(f"list({name} ORDER BY position) AS {name}" for name in ["position", *LISTED])
    steps = connection.execute("SELECT max(step) FROM s.rollouts").fetchone()[0] + 1
    for first in range(0, steps, 50):
        select = (
            f'SELECT step, split, "group", rollout, {listed} FROM s.tokens WHERE step BETWEEN {first} AND {first + 49} '
            "GROUP BY ALL ORDER BY ALL"
        )
        connection.execute(f"INSERT INTO rollouts {select}" if first else f"CREATE TABLE rollouts AS {select}")
    connection.execute("DETACH s")
    return connection


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=10_240_000)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--folder", type=Path, help="where to make the run; it is deleted afterwards")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        started = time.perf_counter()
        lines = bench(Path(folder), options.tokens)
        size = (Path(folder) / "bench/rollouts.duckdb").stat().st_size / 1e6
        seconds = time.perf_counter() - started
    group_ms = next(line.ms for line in lines if line.question == GROUP_QUESTION)
    if options.json:
        print(json.dumps({"lines": [asdict(line) for line in lines], "sealed_mb": size, "seconds": seconds}, indent=1))
        return
    print(*lines, sep="\n")
    print(f"sealed file {size:.0f} MB; the bench took {seconds:.0f} s")
    met = "met" if group_ms < TARGET_MS else "MISSED"
    print(f"{GROUP_QUESTION}: {group_ms:.1f} ms, target {TARGET_MS:.0f} ms: {met}")


if __name__ == "__main__":
    main()
