"""How much memory the lab takes with ten sessions open on a run of 10 million tokens or 100.

    python -m tests.bench.memory [--tokens 10240000] [--folder DIR] [--sessions 10] [--rounds 3]

Serves the lab as README says, and opens a Chromium tab for each session. In every round each session goes to another
view of `tests.bench.views`, so that caches fill with what all of them ask; no tab is ever closed. Printed after every
round: the server's resident memory then, and the most that it had by then (looked at ten times a second).
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import psutil
from playwright.sync_api import Page, sync_playwright

from tests.bench import made, pages
from tests.bench.views import LIVE, Address, addresses
from tests.browser.conftest import CHROMIUM, FLAGS, serve

TARGET_GB = 1.5


@dataclass
class Watch:
    """Resident memory of one process, in bytes."""

    process: psutil.Process
    most: int = 0

    def now(self) -> int:
        now = self.process.memory_info().rss
        self.most = max(self.most, now)
        return now


@contextmanager
def watched(pid: int) -> Iterator[Watch]:
    """A process, looked at all the time."""
    watch, done = Watch(psutil.Process(pid)), threading.Event()

    def look() -> None:
        while not done.wait(0.1):
            watch.now()

    looking = threading.Thread(target=look)
    looking.start()
    try:
        yield watch
    finally:
        done.set()
        looking.join()


def go(page: Page, url: str, address: Address) -> None:
    """Open a view and wait until its script has ended."""
    name, parameters = address
    page.goto(f"{url}/{'' if name == 'runs' else name}?{urlencode(parameters, doseq=True)}")
    page.wait_for_selector('[data-testid="stApp"][data-test-script-state="notRunning"]', timeout=120_000)
    page.wait_for_function("!document.querySelector('[data-testid=stSkeleton]')", timeout=120_000)


def bench(root: Path, steps: int, sessions: int, rounds: int) -> Iterator[tuple[str, float, float]]:
    """What was done, the server's resident memory then, and the most so far, in GB."""
    views = list(addresses(steps, live=(root / LIVE).exists()).values())
    with (
        tempfile.TemporaryDirectory() as locks,
        serve(root, Path(locks)) as lab,
        watched(lab.pid) as watch,
        sync_playwright() as playwright,
    ):
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield "started", watch.now() / 1e9, watch.most / 1e9
        tabs = [chromium.new_context().new_page() for _ in range(sessions)]
        for round_ in range(rounds):
            for i, tab in enumerate(tabs):
                go(tab, lab.url, views[(i + round_ * sessions // 2) % len(views)])
            time.sleep(1)
            yield f"round {round_ + 1}: {sessions} sessions open", watch.now() / 1e9, watch.most / 1e9
        chromium.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.memory", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=10_240_000)
    parser.add_argument("--folder", type=Path, help="where to keep the runs; without it they are deleted afterwards")
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = pages.build(options.folder or Path(folder), options.tokens)
        print(f"load when it began {os.getloadavg()[0]:.1f}; the server may have {TARGET_GB} GB")
        for words, now, most in bench(root, made.steps_of(options.tokens), options.sessions, options.rounds):
            print(f"{words:<32} {now:6.2f} GB now {most:6.2f} GB at most", flush=True)


if __name__ == "__main__":
    main()
