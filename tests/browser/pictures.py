"""The pictures of README, and the contact sheets that a reviewer looks at: every page as a browser shows it.

    python -m tests.browser.pictures --runs DIR --out DIR [--width 1280] [--dark] [PAGE ...]

`DIR` holds finished runs of the Quick start; the pages show its newest experiment.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from urllib.parse import urlencode

from playwright.sync_api import Page, sync_playwright

from core.runs import RunInfo, list_runs
from core.store import open_runs
from tests.browser.conftest import CHROMIUM, FLAGS, serve

MIXED_GROUP = """
SELECT step, "group" FROM groups WHERE split = 'train' AND step <= 20 AND correct BETWEEN 3 AND 5
ORDER BY step DESC, "group" LIMIT 1
"""


def addresses(runs: list[RunInfo]) -> dict[str, dict[str, object]]:
    """Each page with the parameters of a telling view."""
    first = runs[0]
    with open_runs([first.path]) as lab:
        mixed = lab.rows(MIXED_GROUP)
    everyone = [run.id for run in runs]
    return {
        "runs": {},
        "launch": {"preset": "a3po"},
        "live": {"run": everyone},
        "tokens": {"run": first.id, **(mixed[0] if mixed else {})},
        "polarity": {"run": first.id},
        "favorability": {"run": first.id},
        "whatif": {"run": first.id, **(mixed[0] if mixed else {})},
        "compare": {"run": everyone},
    }


def settled(page: Page) -> None:
    """Wait until the page has drawn: no running script, no skeleton, figures in place."""
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]', timeout=60_000)
    page.wait_for_function("!document.querySelector('[data-testid=stSkeleton]')", timeout=60_000)
    page.wait_for_timeout(1200)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.browser.pictures", description=__doc__.partition("\n")[0])
    parser.add_argument("pages", nargs="*", metavar="PAGE", help="pages to show; all of them if none is named")
    parser.add_argument("--runs", type=Path, required=True, metavar="DIR")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--width", type=int, default=1280)
    parser.add_argument("--height", type=int, help="of the picture; the whole page if not given")
    parser.add_argument("--dark", action="store_true")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)

    finished = [info for info in list_runs(arguments.runs, examples=False) if info.state == "finished"]
    newest = [info for info in finished if info.experiment == finished[0].experiment]
    views = addresses(sorted(newest, key=lambda info: (info.created, info.id))[:6])
    with (
        tempfile.TemporaryDirectory() as locks,
        serve(arguments.runs, Path(locks)) as lab,
        sync_playwright() as playwright,
    ):
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for name in arguments.pages or views:
            page = chromium.new_page(
                viewport={"width": arguments.width, "height": arguments.height or 900},
                color_scheme="dark" if arguments.dark else "light",
            )
            page.goto(f"{lab.url}/{'' if name == 'runs' else name}?{urlencode(views[name], doseq=True)}")
            settled(page)
            if not arguments.height:
                page.set_viewport_size({"width": arguments.width, "height": _full_height(page)})
                settled(page)
            page.screenshot(path=arguments.out / f"{name}.png")
            page.close()
        chromium.close()


def _full_height(page: Page) -> int:
    """The page scrolls inside its own box, so a full-page screenshot needs a window as tall as that."""
    inside = "document.querySelector('[data-testid=stMain]')?.scrollHeight ?? document.body.scrollHeight"
    return min(6000, max(700, int(page.evaluate(inside)) + 20))


if __name__ == "__main__":
    main()
