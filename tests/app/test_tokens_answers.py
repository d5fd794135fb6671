"""Tokens on runs without any: the answers of a group as texts, each on the ground of its advantage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
from streamlit.testing.v1 import AppTest

from app.palette import LIGHT
from app.views import answers as view
from core.importers.formats import all_formats, find
from core.importers.write import bring_in
from core.runs import list_runs
from tests.app.conftest import texts
from tests.core.importers.formats.reading import EXAMPLES, write_lines

HOSTILE = "<img src=x onerror=alert(1)> \u202e"
Open = Callable[..., AppTest]


def imported(root: Path, source: Path) -> str:
    found = find(source)
    return bring_in(root, all_formats()[found.format], found).path.name


def frame(**columns: list) -> pd.DataFrame:
    n = len(next(iter(columns.values())))
    base = {"text": ["a"] * n, "reward": [1.0] * n, "length": [None] * n, "truncated": [None] * n, "kept": [True] * n}
    return pd.DataFrame({"rollout": range(n), **base, "correct": [True] * n, **columns})


def tables(at: AppTest) -> str:
    return " ".join(element.proto.body for element in at.get("html"))


def test_a_text_only_import_shows_its_answers_with_their_advantages(no_runs: Path, open_page: Open) -> None:
    run = imported(no_runs, EXAMPLES / "trl")
    at = open_page("tokens", run=run, group=0, rollout=1)
    said, table = texts(at), tables(at)
    assert not at.exception and "came without tokens" in said
    assert "1 right, 1 wrong. Advantages reach from −0.707 to +0.707" in said
    assert "What is 2+3?" in table and "+0.707" in table and "−0.707" in table
    assert table.count("outline:2px") == 1  # of the answer that the address names
    assert "Step 3, the only one" in said
    assert "No signal: all 2 answers have reward 2" in texts(open_page("tokens", run=run, group=1))


def test_rollouts_without_texts_say_so(no_runs: Path, open_page: Open) -> None:
    at = open_page("tokens", run=imported(no_runs, EXAMPLES / "tinker"))
    assert not at.exception and tables(at).count("(no text)") == 2


def test_hostile_answers_are_text(no_runs: Path, tmp_path: Path, open_page: Open) -> None:
    rows = [
        {"input": HOSTILE, "output": HOSTILE + "x" * 9000, "gts": HOSTILE, "score": float(i), "step": 1} for i in (0, 1)
    ]
    write_lines(tmp_path / "1.jsonl", rows)
    imported(no_runs, tmp_path / "1.jsonl")
    at = open_page("tokens", run=list_runs(no_runs)[0].id)
    table = tables(at)
    assert "<img" not in table and "&lt;img" in table and "\u202e" not in table
    assert "and 5" in table and "more characters" in table


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"base_advantage": [None, None]}, "2 right, 0 wrong. No advantages are known."),
        ({"base_advantage": [0.0, 0.0]}, "No signal: all 2 answers have reward 1, so"),
        ({"base_advantage": [0.0, 0.0], "reward": [0.0, 1.0]}, "No signal, so"),
        ({"base_advantage": [0.5, float("nan")]}, "Advantages reach from +0.5 to +0.5"),
        (
            {"base_advantage": [float("inf"), -1.0], "correct": [True, None]},
            "Not judged. Advantages reach from −1 to +∞",
        ),
    ],
)
def test_the_sentence_and_the_table_of_odd_groups(columns: dict[str, list], words: str) -> None:
    rollouts = frame(**columns)
    rollouts["base_advantage"] = rollouts["base_advantage"].astype(float)
    assert words in view.verdict(rollouts, imported=True)
    assert view.table(rollouts, LIGHT, None).count("<tr") == 3


def test_a_run_of_the_lab_says_that_its_method_shaped_single_tokens() -> None:
    rollouts = frame(base_advantage=[1.0, -1.0])
    assert "before the method shaped" in view.verdict(rollouts, imported=False)
