"""The bench of the pages answers for each of them, on a small store; its times are for reading, not for testing."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.urls import PAGES
from tests.bench import pages as bench


def test_the_bench_opens_every_page_and_its_runs_are_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "ROUNDS", 1)
    monkeypatch.setattr(bench.store, "PER_STEP", 10_000)
    root = bench.build(tmp_path, tokens=20_000)
    lines = {line.page: line for line in bench.bench(root, steps=2)}
    assert list(lines) == list(PAGES)
    for line in lines.values():
        assert min(line.first_s, line.second_s, line.empty_page_s, line.all_tokens_s) > 0
        assert line.figures or line.page in ("runs", "launch"), line
    made = (root / bench.RUN / "config.yaml").stat().st_mtime_ns
    assert bench.build(tmp_path, tokens=20_000) == root
    assert (root / bench.RUN / "config.yaml").stat().st_mtime_ns == made
