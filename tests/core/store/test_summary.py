"""The summary equals what the tokens say, counted one by one."""

from __future__ import annotations

import math
from collections import defaultdict

import pytest

from core.store import Lab, open_runs, schema

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
}


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
