"""The benches of the pages answer, on a small store; its times are for reading, not for testing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench import made, sliders
from tests.bench import pages as bench


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"GROUPS": 2, "SIZE": 4, "LENGTH": 12}.items():
        monkeypatch.setattr(made, name, value)


def test_the_bench_opens_views_and_its_runs_are_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "ROUNDS", 1)
    monkeypatch.setattr(bench, "MADE_STEPS", 2)
    tokens = 4 * made.per_step()
    root = bench.build(tmp_path, tokens)
    views = ["Runs", "Live", "Tokens: one group", "Polarity: strings"]
    lines = list(bench.bench(root, 4, views))
    assert [line.view for line in lines] == views
    for line in lines:
        assert min(line.first_s, line.second_s, line.empty_page_s, line.all_tokens_s) > 0
        assert 0 < line.sent_mb < bench.TARGET_MB
        assert line.figures or line.view in ("Runs", "Polarity: strings"), line
    kept = (root / bench.RUN / "config.yaml").stat().st_mtime_ns
    assert bench.build(tmp_path, tokens) == root
    assert (root / bench.RUN / "config.yaml").stat().st_mtime_ns == kept
    assert (tmp_path / "2 steps" / bench.LIVE).is_dir(), "longer runs are made from a short one"


def test_the_bench_moves_sliders_in_every_view(tmp_path: Path) -> None:
    made.make(tmp_path / bench.RUN, 2)
    lines = list(sliders.bench(tmp_path, moves=1))
    assert [(line.scope, line.methods) for line in lines] == [("group", 2), ("group", 4), ("step", 2), ("step", 4)]
    assert all(line.empty_page_s > 0 and 0 < line.move_s == line.slowest_s for line in lines)
