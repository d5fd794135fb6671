"""Answers as coloured text stay small however long they are."""

from __future__ import annotations

import pandas as pd

from app.palette import LIGHT
from app.views import probes
from app.words import count

SIZE, LENGTH = 4, 30


def html(most: int) -> str:
    rollouts = pd.DataFrame(
        {"rollout": range(SIZE), "correct": [True, False] * 2, "length": LENGTH, "truncated": False, "text": ""}
    )
    tokens = pd.DataFrame(
        [(rollout, f"<b{rollout}-{i}>", i / LENGTH) for rollout in range(SIZE) for i in range(LENGTH)],
        columns=["rollout", "token", "advantage"],
    )
    return probes.answers(rollouts, tokens, probes.COLOURS["advantage"], 1.0, LIGHT, most=most)


def test_every_token_of_a_few_is_coloured() -> None:
    whole = html(most=SIZE * LENGTH)
    assert whole.count("<span style") == SIZE * LENGTH and "Only the first" not in whole


def test_of_many_tokens_each_answer_has_its_first_ones_coloured_and_all_of_its_text() -> None:
    cut = html(most=40)
    assert cut.count("<span style") == 40
    assert f"Only the first {count(10, 'token')} of each answer are coloured." in cut
    assert all(f"&lt;b{rollout}-{i}&gt;" in cut for rollout in range(SIZE) for i in range(LENGTH))
    assert "<b0" not in cut
    assert len(cut) < len(html(most=SIZE * LENGTH)) / 2


def test_answers_without_a_verdict_and_no_answers_at_all_are_drawn() -> None:
    """As a run from elsewhere may have them."""
    rollouts = pd.DataFrame({
        "rollout": range(2), "correct": pd.array([None, True], "boolean"), "length": [3, 3], "truncated": False,
        "text": ["<i>", "b"],
    })  # fmt: skip
    tokens = pd.DataFrame({"rollout": [], "token": [], "advantage": []})
    drawn = probes.answers(rollouts, tokens, probes.COLOURS["advantage"], 1.0, LIGHT)
    assert ">?</b>" in drawn and "&lt;i&gt;" in drawn and 'title="wrong"' not in drawn
    assert "<b" not in probes.answers(rollouts.iloc[:0], tokens, probes.COLOURS["advantage"], 1.0, LIGHT)
