"""The summary equals what the tokens say, counted one by one."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pyarrow as pa
import pytest

from core.store import Lab, open_runs, schema
from core.store.rows import repeated
from core.store.summary import add_up

FIELDS = {
    "probability": lambda t: math.exp(t["sampler_logprob"]),
    "entropy": lambda t: t["entropy"],
    "advantage": lambda t: t["advantage"] if t["kept"] else None,
    "base_advantage": lambda t: t["base_advantage"] if t["kept"] else None,
    "push": lambda t: t["advantage"] * (1 - math.exp(t["sampler_logprob"])) if t["kept"] else None,
    "change": lambda t: t["after_logprob"] - t["trainer_logprob"],
    "mass": lambda t: t["loss_weight"] * abs(t["advantage"]) if t["kept"] and t["loss_weight"] is not None else None,
    "base_mass": lambda t: (
        t["loss_weight"] * abs(t["base_advantage"]) if t["kept"] and t["loss_weight"] is not None else None
    ),
    "logprob": lambda t: t["trainer_logprob"] if t["kept"] else None,
    "logprob_advantage": lambda t: t["trainer_logprob"] * t["advantage"] if t["kept"] else None,
    "entropy_change": lambda t: t["entropy_after"] - t["entropy"],
    "agreed": lambda t: agreed(t) if t["kept"] else None,
}


def agreed(t: dict) -> float | None:
    change = t["after_logprob"] - t["trainer_logprob"]
    return None if abs(change) < 1e-6 or not t["advantage"] else float(change * t["advantage"] > 0)


@pytest.fixture
def lab(run_dir) -> Lab:
    return open_runs([run_dir])


def test_every_row_is_the_sum_over_its_tokens(lab: Lab) -> None:
    expected = defaultdict(list)
    for t in lab.rows(
        'SELECT t.*, r.polarity, r.length FROM tokens t JOIN rollouts r USING (run, step, split, "group", rollout)'
    ):
        place = (t["step"], t["split"], t["polarity"], 10 * t["position"] // t["length"])
        for field, value_of in FIELDS.items():
            if (value := value_of(t)) is not None:
                expected[(*place, field)].append(value)
    rows = lab.rows("SELECT * FROM summary")
    assert {(r["step"], r["split"], r["polarity"], r["bin"], r["field"]) for r in rows} == set(expected)
    assert len(rows) == len(expected)
    for r in rows:
        values = expected[r["step"], r["split"], r["polarity"], r["bin"], r["field"]]
        edges = schema.SUMMARY_EDGES[r["field"]]
        histogram = [0] * (len(edges) + 1)
        for value in values:
            histogram[sum(value >= edge for edge in edges)] += 1
        assert r["n"] == len(values)
        assert r["sum"] == pytest.approx(math.fsum(values), rel=1e-6, abs=1e-9)
        assert r["sum_squares"] == pytest.approx(math.fsum(v * v for v in values), rel=1e-6, abs=1e-9)
        assert r["histogram"] == pytest.approx(histogram, abs=1)  # float32 against float64 at an edge
        assert sum(r["histogram"]) == r["n"]


@pytest.mark.parametrize(("table", "key"), [("positions", "bin"), ("strings", "token_id")])
def test_sums_by_position_and_by_token_are_those_of_the_tokens(lab: Lab, table: str, key: str) -> None:
    cells = defaultdict(list)
    for t in lab.rows(
        'SELECT t.*, t.position AS bin, r.polarity FROM tokens t JOIN rollouts r USING (run, step, split, "group", '
        "rollout)"
    ):
        cells[t["step"], t["split"], t["polarity"], t[key]].append(t)
    rows = lab.rows(f"SELECT * FROM {table}")
    assert {(r["step"], r["split"], r["polarity"], r[key]) for r in rows} == set(cells)
    assert len(rows) == len(cells)
    for r in rows:
        tokens = cells[r["step"], r["split"], r["polarity"], r[key]]
        assert r["tokens"] == r["changed"] == len(tokens)
        assert r["trained"] == sum(t["kept"] for t in tokens)
        for name in ("probability", "entropy", "advantage", "base_advantage", "push", "mass", "change", "agreed",
                     "entropy_change"):  # fmt: skip
            values = [value for t in tokens if (value := FIELDS[name](t)) is not None]
            wanted = pytest.approx(math.fsum(values), rel=1e-6, abs=1e-9) if values or name == "agreed" else None
            assert r[name] == wanted, name
        assert r["pushed"] == sum(FIELDS["agreed"](t) is not None for t in tokens)
        if table == "strings":
            assert {t["token"] for t in tokens} == {r["token"]}


def test_position_bins_are_single_then_32_to_a_doubling() -> None:
    positions = np.arange(40_000)
    bins = schema.position_bin(positions)
    assert bins[:64].tolist() == list(range(64))
    assert [int(schema.position_bin(p)) for p in (64, 65, 66, 127, 128, 256)] == [64, 64, 65, 95, 96, 128]
    starts = schema.bin_start(np.arange(bins.max() + 1))
    assert np.array_equal(schema.position_bin(starts), np.arange(bins.max() + 1))
    assert np.array_equal(np.searchsorted(starts, positions, side="right") - 1, bins)


def test_a_rollouts_mass_is_that_of_its_kept_tokens(lab: Lab) -> None:
    rows = lab.rows(
        'WITH t AS (SELECT step, split, "group", rollout, sum(loss_weight * abs(advantage)) FILTER (kept) AS mass, '
        "sum(loss_weight * abs(base_advantage)) FILTER (kept) AS base_mass FROM tokens GROUP BY ALL) "
        "SELECT split, r.mass, t.mass AS again, r.base_mass, t.base_mass AS base_again FROM rollouts r "
        'JOIN t USING (step, split, "group", rollout)'
    )
    assert {row["split"] for row in rows} == {"train", "probe"}
    assert any(row["mass"] for row in rows)
    for row in rows:
        if row["split"] == "probe":
            assert row["mass"] is row["base_mass"] is None
        else:
            assert row["mass"] == pytest.approx(row["again"] or 0.0, rel=1e-5)
            assert row["base_mass"] == pytest.approx(row["base_again"] or 0.0, rel=1e-5)


def test_repeated_counts_four_grams_seen_before() -> None:
    ids = np.array([[1, 2, 3, 4, 1, 2, 3, 4, 1], [1, 2, 3, 4, 5, 6, 7, 8, 9], [7] * 9, [1, 2, 3, 0, 0, 0, 0, 0, 0]])
    shares = repeated(ids, np.array([9, 9, 6, 3]))
    assert shares.tolist() == pytest.approx([2 / 6, 0, 2 / 3, 0])
    assert repeated(ids[:, :3], np.array([3, 3, 3, 3])).tolist() == [0, 0, 0, 0]


def test_only_the_foremost_strings_stay(monkeypatch: pytest.MonkeyPatch, lab: Lab) -> None:
    monkeypatch.setattr(schema, "STRINGS_KEPT", 3)
    names = schema.arrow("strings").names
    rows = lab.rows(f"SELECT {', '.join(names)} FROM strings WHERE split = 'train' AND step = 0")
    kept = add_up("strings", [pa.Table.from_pylist(rows, schema.arrow("strings"))]).to_pylist()
    for polarity in (-1, 1):
        pushes = sorted((abs(row["push"] or 0) for row in rows if row["polarity"] == polarity), reverse=True)
        assert (
            sorted((abs(row["push"] or 0) for row in kept if row["polarity"] == polarity), reverse=True) == pushes[:3]
        )


def test_dropped_tokens_count_in_probability_but_not_in_advantage(tmp_path) -> None:
    from tests.synthetic import make_run

    lab = open_runs([make_run(tmp_path, "nsr", method="nsr", steps=2)])
    counts = {
        row["field"]: row["n"]
        for row in lab.rows("SELECT field, sum(n)::INT AS n FROM summary WHERE split = 'train' GROUP BY field")
    }
    tokens, kept = lab.rows("SELECT count(*) AS a, count(*) FILTER (kept) AS b FROM tokens WHERE split = 'train'")[
        0
    ].values()
    assert kept < tokens
    assert (counts["probability"], counts["entropy"], counts["change"]) == (tokens, tokens, tokens)
    assert (counts["advantage"], counts["push"], counts["mass"]) == (kept, kept, kept)
