"""The bench of imports runs, on a few files; and a reader that gives a step bit by bit costs no more than its rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from core.importers.base import SCHEMA, Report
from core.importers.stage import Stage
from core.store import check
from tests.bench import imports as bench


def test_the_bench_imports_what_it_makes(root: Path, tmp_path: Path) -> None:
    source = tmp_path / "trl"
    bench.make(source, rollouts=480, files=6)
    found = bench.child(source, root)
    assert (found.rollouts, found.steps) == (480, 6)
    assert min(found.wall_s, found.cpu_s, found.largest_mb, found.sealed_mb) > 0
    assert "480 rollouts of 6 steps" in str(found)
    (run,) = root.iterdir()
    assert check(run).problems == []


def test_rows_come_back_in_any_order_from_many_tables(tmp_path: Path) -> None:
    stage, random = Stage(tmp_path), np.random.default_rng(0)
    for table in range(9):
        texts = [f"{table}.{row}" for row in range(table + 1)]
        stage.add(pa.table({"text": texts, "step": [table] * len(texts)}), Report())
    wanted = random.permutation(stage.rows)
    everything = [f"{table}.{row}" for table in range(9) for row in range(table + 1)]
    for part in (wanted, wanted[:7], np.sort(wanted)[3:20], wanted[:1]):
        got = stage.fetch(part)
        assert got["text"].to_pylist() == [everything[i] for i in part]
        assert got.schema == SCHEMA
    assert stage.keys()["step"].tolist() == [table for table in range(9) for _ in range(table + 1)]
    assert (stage.have["text"], stage.have["reward"]) == (45, 0)
    stage.close()
