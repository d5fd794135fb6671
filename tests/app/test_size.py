"""What pages ask of a long run, and how much they send of it: structure and bytes, never the clock."""

from __future__ import annotations

import inspect
import re
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.testing.v1 import local_script_runner
from streamlit.testing.v1.element_tree import ElementTree

from app.urls import PAGES
from core.store import open_runs
from core.store.open import Lab
from tests.bench import made, pages
from tests.bench.views import addresses, sent

MADE, TIMES = 60, 20
"""Steps that are made, and how often they come: 1,200 steps, more than a figure has points for."""
SMALL = {"GROUPS": 4, "SIZE": 4, "LENGTH": 12}
READS_TOKENS = re.compile(r"\b(?:FROM|JOIN)\s+tokens\b", re.IGNORECASE)
MAY_READ_TOKENS = {
    "tokens.steps_with_tokens": ("SELECT DISTINCT step", "steps alone, once as long as the run stays as it is"),
    "tokens_run.prompt_tokens": ("prompt_id = ?", "the tokens of one prompt"),
    "find.extremes": ("t.step BETWEEN $first AND $last", "a window of steps, a hundred unless the reader wants more"),
    "find.with_value": ("t.step BETWEEN $first AND $last", "how many tokens that window has"),
    "find.tokens_of": ("t.step IN (", "the answers on the page of hits"),
}
"""Questions without a step that may read tokens, with the words that narrow them, and why."""
VIEWS = addresses(MADE * TIMES)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The benches' runs, 1,200 steps long and narrow, and a running one of 60."""
    folder = tmp_path_factory.mktemp("size")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SMALL.items():
            patch.setattr(made, name, value)
        patch.setattr(pages, "MADE_STEPS", MADE)
        root = pages.build(folder, MADE * TIMES * made.per_step())
        shutil.copytree(folder / f"{MADE} steps" / pages.LIVE, root / pages.LIVE)
        with pages.as_served(root):
            yield root


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The whole-run statements that were run: the query's function (`module.name`), and the SQL."""
    found: list[tuple[str, str]] = []
    once = Lab._once

    def listening(self: Lab, sql: str, params: Any, fetch: Any, scope: tuple[str, int] | None) -> Any:
        if scope is None:
            modules = [
                f"{Path(frame.filename).stem}.{frame.function}"
                for frame in inspect.stack()
                if frame.filename.endswith(".py") and Path(frame.filename).parent.name == "queries"
            ]
            found.append((modules[0] if modules else "", sql))
        return once(self, sql, params, fetch, scope)

    monkeypatch.setattr(Lab, "_once", listening)
    return found


def test_every_page_has_a_view_here() -> None:
    assert {page for page, _ in VIEWS.values()} == set(PAGES)


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_of_a_long_run_is_small_and_leaves_its_tokens_alone(root: Path, asked: list, view: str) -> None:
    pages.forget()
    with sent() as sizes:
        _, at = pages.open_view(VIEWS[view])
    assert at.header and 500 < sizes[-1] < 1e6 * pages.TARGET_MB
    for name, sql in asked:
        if READS_TOKENS.search(sql):
            assert name in MAY_READ_TOKENS, f"{name} reads the tokens of the whole run: {sql}"
            assert MAY_READ_TOKENS[name][0] in sql


def test_the_long_run_is_what_it_says(root: Path) -> None:
    with open_runs([root / pages.RUN]) as lab:
        counted = lab.rows("SELECT count(DISTINCT step) AS steps, min(step) AS low, max(step) AS high FROM metrics")
        assert counted == [{"steps": MADE * TIMES, "low": 0, "high": MADE * TIMES - 1}]
        assert lab.rows("SELECT max(step) AS last FROM evals") == [{"last": MADE * TIMES}]
        twice = lab.rows("SELECT count(*) AS n FROM (SELECT step, split FROM groups GROUP BY ALL HAVING count(*) > 16)")
        assert twice == [{"n": 0}]


def test_what_has_not_changed_is_not_sent_again(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streamlit names an element of minCachedMessageSize or more instead of sending it, if it is the same as before."""
    least = tomllib.loads((pages.MAIN.parents[1] / ".streamlit/config.toml").read_text(encoding="utf-8"))["global"]
    runs: list[list[str]] = []
    parse = local_script_runner.parse_tree_from_messages

    def listening(messages: list[ForwardMsg]) -> ElementTree:
        runs.append([message.hash for message in messages if message.ByteSize() > least["minCachedMessageSize"]])
        return parse(messages)

    monkeypatch.setattr(local_script_runner, "parse_tree_from_messages", listening)
    _, at = pages.open_view(VIEWS["Live: running"])
    at.run()
    first, again = runs[-2:]
    assert len(first) >= 16 and all(first) and first == again
