"""The bench of the store runs, on a small store; its times are for reading, not for testing."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.runs.folders import run_info
from core.store import check, open_runs
from tests.bench import made
from tests.bench import store as bench


def test_the_bench_answers_every_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ROUNDS", 1)
    lines = bench.bench(tmp_path, tokens=2 * made.per_step())
    assert bench.GROUP_QUESTION in {line.question for line in lines}
    assert all(line.ms > 0 and (line.peer_ms or 1) > 0 for line in lines)
    assert sum(line.peer_ms is not None for line in lines) >= 3
    report = check(tmp_path / "bench")
    assert (report.steps, report.problems) == (3, [])
    with open_runs([tmp_path / "bench"]) as lab:
        trained = lab.rows("SELECT sum(length) AS tokens FROM rollouts WHERE split = 'train'")[0]["tokens"]
    assert trained == pytest.approx(2 * made.per_step(), rel=0.1)


def test_a_repeated_run_and_one_that_still_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"GROUPS": 2, "SIZE": 4, "LENGTH": 12}.items():
        monkeypatch.setattr(made, name, value)
    short, live, long = tmp_path / "short", tmp_path / "live", tmp_path / "long"
    assert len(made.make(short, 3)) == 3
    made.still_running(short, live)
    made.seal_at_once(short)
    made.repeat(short, long, 4)
    report = check(long)
    assert (report.steps, report.problems) == (13, []), "12 steps, and the evaluation of the last policy"
    tokens = (
        "SELECT step, count(*) AS n, sum(entropy) AS sum FROM tokens WHERE split = 'train' GROUP BY step ORDER BY step"
    )
    with open_runs([short, live, long]) as lab:
        assert [lab.steps(run) for run in ("short", "live", "long")] == [[0, 1, 2, 3], [0, 1, 2], list(range(13))]
    with open_runs([short]) as one, open_runs([long]) as other:
        once, often = one.rows(tokens), other.rows(tokens)
    assert often == [{**row, "step": row["step"] + 3 * turn} for turn in range(4) for row in once]
    assert [run_info(path).state for path in (short, live, long)] == ["finished", "running", "finished"]
