"""What a step did, in words, shares and a list, on rows small enough to check by hand."""

from __future__ import annotations

import pandas as pd
import pytest

from app.palette import LIGHT
from app.views import tokens_outcome as view

NBSP = "\u00a0"


def moves(**changes: object) -> pd.DataFrame:
    """10 pushed tokens of right answers, 4 of wrong ones; one more of which nothing is known."""
    columns = {
        "polarity": [-1, 1, 1], "sure": [3, 0, 3], "pushed": [5, 8, 2], "known": [4, 8, 2], "agreed": [1, 6, 0],
        "against": [1, 2, 1], "still": [2, 0, 1], "median_change": [1e-5, 0.2, 2e-5],
    }  # fmt: skip
    return pd.DataFrame(columns | changes)


def test_the_sentence_counts_every_token():
    said = view.sentence(moves(), 7)
    assert said.startswith(f"Step 7 pushed 14{NBSP}tokens: **7{NBSP}tokens** (50{NBSP}%) moved the way")
    assert f"**4{NBSP}tokens** (29{NBSP}%) the other way" in said and f"3{NBSP}tokens did not move" in said
    assert said.endswith(f"Of 1{NBSP}more nothing is known.")
    sure = view.sentence(moves(pushed=[4, 8, 2], still=[0, 0, 0]), 7)
    assert "did not move" not in sure and "nothing is known" not in sure


def test_the_meaning_names_the_sure_and_the_unsure_with_their_counts():
    changes = pd.DataFrame({"sure": [0, 2, 3], "known": [8, 1, 6], "median_change": [0.2, 0.1, 1.5e-5]})
    said = view.meaning(changes)
    assert f"1.5e-5{NBSP}nats at p ≥ 0.99 (6{NBSP}tokens) and 0.2{NBSP}nats at p < 0.5 (8{NBSP}tokens)" in said.replace(
        "−", "-"
    )
    assert "share the same weights" in said and "0.1" not in said
    assert view.meaning(changes.iloc[:0]).endswith("pulls harder.")


def test_classes_are_named_by_the_edges_of_the_query():
    assert view.CLASSES == ("p < 0.5", "0.5 ≤ p < 0.9", "0.9 ≤ p < 0.99", "p ≥ 0.99")


def test_shares_of_a_bar_are_of_its_known_tokens_and_are_told_apart_without_colour():
    fig = view.shares(moves(), LIGHT, 7)
    by_name = {bar.name: bar for bar in fig.data}
    assert list(by_name) == ["as pushed", "did not move", "the other way"]
    assert list(fig.data[0].y) == [
        f"− p ≥ 0.99: 4{NBSP}tokens", f"+ p ≥ 0.99: 2{NBSP}tokens", f"+ p < 0.5: 8{NBSP}tokens",
    ]  # fmt: skip
    assert by_name["as pushed"].x.tolist() == [25, 0, 75] and by_name["the other way"].x.tolist() == [25, 50, 25]
    assert sum(bar.x for bar in fig.data).tolist() == pytest.approx([100] * 3)
    assert by_name["the other way"].marker.pattern.shape and not by_name["as pushed"].marker.pattern.shape
    assert len(view.shares(moves(known=[0, 8, 2]), LIGHT, 7).data[0].y) == 2


def test_the_list_says_where_a_token_is_and_keeps_hostile_text_visible():
    tokens = pd.DataFrame(
        {
            "group": [2], "rollout": [3], "position": [9], "token": [" \u202eevil"], "polarity": [-1],
            "advantage": [-1.5], "probability": [0.25], "change": [0.5],
        }
    )  # fmt: skip
    row = view.contrary_table(tokens, {2: "1+1=?\u0007"}).iloc[0]
    assert row["token"] == "␣⟨U+202E⟩evil" and row["prompt"] == "1+1=?⟨BEL⟩"
    assert row["answer"] == "− rollout 3, position 9"
    assert [row[name] for name in view.NUMBERS] == [-1.5, 0.25, 0.5]
    assert view.contrary_table(tokens, {})["prompt"].tolist() == [""]
