"""The strings part: what each polarity pushes, and where both pull, on a frame small enough to check by hand."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from app.palette import DARK, LIGHT
from app.views import polarity_strings as view

WHERE = {"run": "a&b", "split": "train", "steps": [3, 4]}


def frame(**changes: object) -> pd.DataFrame:
    rows = [
        (-1, 7, " so ", 12, 10, -9.0, -0.02, 1),
        (-1, 8, "<img src=x>", 5, 5, -2.0, np.nan, 2),
        (-1, 9, None, 3, 3, 0.5, 0.01, 1),
        (1, 7, " so ", 20, 20, 8.0, 0.03, 1),
        (1, 9, None, 4, 4, 3.0, 0.02, 2),
        (1, 8, "<img src=x>", 2, 2, 0.5, 0.0, np.nan),
    ]
    columns = ["polarity", "token_id", "token", "tokens", "trained", "push", "change", "rank"]
    return pd.DataFrame(rows, columns=columns).assign(kept=30, **changes)


def test_contested_are_pulled_both_ways_by_the_weaker_pull():
    got = view.contested(frame())
    assert got["token_id"].tolist() == [7, 8]  # 9 is reinforced by both
    assert got["net"].tolist() == [-1.0, -1.5] and got["n_right"].tolist() == [20, 2]
    assert view.contested(frame()[frame()["polarity"] > 0]).empty


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_lists_have_sums_means_and_counts(theme):
    html = view.lists(frame(), theme, WHERE)
    row = re.search(r"<tr data-testid='wrong-answers-suppressed-0' data-value='-9.0'>(.*?)</tr>", html).group(1)
    assert [*re.findall(r"text-align:right'>([^<]*)</td>", row)] == ["−9", "−0.9", "10", "−0.02"]
    assert "width:100.0%" in row and theme.suppressed[1:3] != ""
    assert html.index("wrong-answers-suppressed-0") < html.index("wrong-answers-reinforced-0")
    assert html.index("right-answers-reinforced-0") < html.index("No string is suppressed.")
    assert "right-answers-reinforced-2" not in html  # without a rank it only stands for the other side


def test_strings_lead_to_their_places_and_stay_inert():
    html = view.lists(frame(), LIGHT, WHERE) + view.contested_table(view.contested(frame()), LIGHT, WHERE)
    link = (
        "href='tokens?run=a%26b&amp;split=train&amp;steps=3&amp;steps=4&amp;view=find&amp;find=tokens&amp;extreme=push"
    )
    assert f"{link}&amp;end=smallest&amp;token=7&amp;answers=wrong'" in html
    assert f"{link}&amp;end=largest&amp;token=7&amp;answers=right'" in html
    assert f"{link}&amp;end=largest&amp;token=7'" in html  # both sides at once
    assert "<img" not in html and "&lt;img" in html
    assert "#9" in html  # a token without a text has its number
    assert "net −1" in html


def test_changes_that_were_not_recorded_have_no_column():
    assert "Δ log p" in view.lists(frame(), LIGHT, WHERE)
    assert "Δ log p" not in view.lists(frame(change=None), LIGHT, WHERE)


def test_without_any_finite_push_nothing_is_said_to_push():
    assert "Right answers push nothing. Wrong answers push nothing." in view.verdict(frame(push=np.nan), "", True)


def test_verdict_names_the_hardest_push_and_what_is_left():
    words = view.verdict(frame(), "steps 3 to 4", True)
    assert "Right answers reinforce **“␣so␣”** most: push +8 over 20\u00a0tokens." in words
    assert "Wrong answers suppress **“␣so␣”** most: push −9 over 10\u00a0tokens." in words
    assert "After both, “\\#9” gains most (+3.5) and “\\<img␣src\\=x\\>” loses most (−1.5)." in words.replace(
        "\u2060", ""
    )
    only = frame()[frame()["polarity"] > 0]
    assert "Wrong answers push nothing." in view.verdict(only, "step 3", True)
    assert "After both" not in view.verdict(only, "step 3", True)
    assert "They push nothing" in view.lists(only, LIGHT, WHERE)
    assert "they were not trained" in view.verdict(frame(), "step 3", False)


def test_long_strings_are_cut():
    html = view.lists(frame(token="x" * 90), LIGHT, WHERE)
    assert "x" * 23 + "…" in html and ">" + "x" * 30 not in html
