"""The bench of the store runs, on a small store; its times are for reading, not for testing."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.store import check
from tests.bench import store as bench


def test_the_bench_answers_every_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ROUNDS", 1)
    lines = bench.bench(tmp_path, tokens=2 * bench.PER_STEP)
    assert bench.GROUP_QUESTION in {line.question for line in lines}
    assert all(line.ms > 0 and (line.peer_ms or 1) > 0 for line in lines)
    assert sum(line.peer_ms is not None for line in lines) >= 3
    report = check(tmp_path / "bench")
    assert (report.tokens, report.problems) == (2 * bench.PER_STEP, [])
