"""From an empty lab to a token's numbers, as a person goes: Quick start, a live point, Tokens."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from core.runs import list_runs
from core.store import open_runs
from tests.browser.conftest import serve

POINTS = """() => [...document.querySelectorAll('.js-plotly-plot')].map(plot => ({
  title: plot.closest('[data-testid="stVerticalBlock"]')?.innerText.slice(0, 200) ?? '',
  traces: (plot.calcdata ?? []).map(points => points.map(point => [point.x, point.y])),
}))"""


def until(condition: Callable[[], object], seconds: float, what: str) -> object:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"within {seconds:.0f} s there was not: {what}"
        time.sleep(0.3)
    return found


def test_quick_start_to_a_tokens_numbers(page: Page, tmp_path: Path) -> None:
    with serve(tmp_path / "runs", tmp_path / "locks") as lab:
        page.goto(lab.url)
        expect(page.get_by_text("No run yet")).to_be_visible()
        page.get_by_role("button", name="Start the Quick start").click()
        page.wait_for_url(re.compile(r"/live"))

        runs = until(lambda: [r for r in list_runs(lab.runs, examples=False) if r.experiment], 20, "an experiment")
        assert sorted(run.method for run in runs) == ["grpo", "nsr", "psr"]
        first = next(run for run in runs if run.method == "grpo")
        until(lambda: _stored(lab.runs, first.id), 120, "a stored step")
        drawn = until(lambda: [p for p in page.evaluate(POINTS) if any(p["traces"])], 60, "a live point")
        with open_runs([first.path]) as stored:
            rewards = {row["step"]: row["reward"] for row in stored.rows("SELECT step, reward FROM metrics")}
        points = [(x, y) for plot in drawn for trace in plot["traces"] for x, y in trace]
        assert any(x == 0 and y == pytest.approx(rewards[0]) for x, y in points), "step 0's reward is not on the page"

        until(lambda: _stored(lab.runs, first.id) >= 3, 60, "three steps")
        before = page.evaluate(POINTS)
        until(lambda: page.evaluate(POINTS) != before, 30, "curves that move while it trains")

        page.goto(f"{lab.url}/runs")
        page.get_by_test_id("stPopover").first.get_by_role("button").click()
        page.get_by_role("button", name=re.compile(r"Stop \d runs")).click()
        until(lambda: not any(run.live for run in list_runs(lab.runs, examples=False)), 60, "all runs stopped")
        assert {run.state for run in list_runs(lab.runs, examples=False)} == {"stopped"}

        _read_a_token(page, lab.url, first.path)


def _stored(root: Path, run: str) -> int:
    info = next(info for info in list_runs(root, examples=False) if info.id == run)
    assert info.state != "failed", info.error
    return info.step


def _read_a_token(page: Page, url: str, path: Path) -> None:
    """Choose tokens on the page and compare what it says with the store."""
    with open_runs([path]) as lab:
        row = lab.rows(
            "SELECT t.* FROM tokens t JOIN groups g USING (step, split, \"group\") WHERE t.split = 'train' "
            "AND t.step = 1 AND g.correct BETWEEN 1 AND g.n - 1 ORDER BY abs(advantage) DESC, t.sampler_logprob LIMIT 1"
        )[0]
        other = lab.step(path.name, 1).rows(
            "SELECT * FROM tokens WHERE split = 'train' AND \"group\" = ? AND rollout = ? AND position = 0",
            [row["group"], row["rollout"]],
        )[0]
    place = f"run={path.name}&step=1&group={row['group']}&rollout={row['rollout']}&position={row['position']}"
    page.goto(f"{url}/tokens?{place}")
    _compare(page, row)
    page.get_by_test_id("token-0").click()
    _compare(page, other)
    page.wait_for_url(re.compile(r"position=0"))


def _compare(page: Page, row: dict) -> None:
    expect(page.get_by_test_id("why-where")).to_contain_text(f"rollout {row['rollout']}, position {row['position']} of")
    expect(page.get_by_test_id("why-advantage")).to_have_attribute("data-value", re.compile(r"\d"))
    for name, stored in (("advantage", row["advantage"]), ("base_advantage", row["base_advantage"])):
        shown = float(page.get_by_test_id(f"why-{name}").get_attribute("data-value"))
        assert shown == pytest.approx(stored, rel=1e-5), name
