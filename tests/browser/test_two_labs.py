"""Two labs on one folder of runs: what one starts, the other shows and stops."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Page, expect

from core.runs import list_runs
from tests.browser.conftest import serve
from tests.browser.test_quickstart import until


def test_a_run_started_in_one_lab_is_stopped_in_the_other(page: Page, tmp_path: Path) -> None:
    runs, locks = tmp_path / "runs", tmp_path / "locks"
    with serve(runs, locks) as first, serve(runs, locks) as second:
        page.goto(first.url)
        page.get_by_role("button", name="Start the Quick start").click()
        page.wait_for_url(re.compile(r"/live"))
        until(lambda: any(run.state == "running" for run in list_runs(runs, examples=False)), 60, "a running run")

        page.goto(second.url)
        expect(page.get_by_text("Running now")).to_be_visible()
        expect(page.get_by_text("GRPO, seed 0").first).to_be_visible()
        page.get_by_test_id("stPopover").first.get_by_role("button").click()
        page.get_by_role("button", name=re.compile(r"Stop \d runs")).click()
        until(lambda: not any(run.live for run in list_runs(runs, examples=False)), 60, "all runs stopped")

        page.goto(first.url)
        expect(page.get_by_text("Nothing is running now")).to_be_visible()
        expect(page.get_by_text("stopped").first).to_be_visible()
