"""The bench of the pages answers for each of them, on a small store; its times are for reading, not for testing."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.urls import PAGES
from tests.bench import pages as bench
from tests.bench import sliders


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


def test_the_bench_moves_sliders_in_every_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"GROUPS": 2, "SIZE": 4, "LENGTH": 12}.items():
        monkeypatch.setattr(sliders.store, name, value)
    sliders.store.make(tmp_path / bench.RUN, 2)
    lines = list(sliders.bench(tmp_path, moves=1))
    assert [(line.scope, line.methods) for line in lines] == [("group", 2), ("group", 4), ("step", 2), ("step", 4)]
    assert all(line.empty_page_s > 0 and 0 < line.move_s == line.slowest_s for line in lines)
