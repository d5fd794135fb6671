"""A lab of its own, served as README says, and a real Chromium looking at it."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest
from playwright.sync_api import Browser, BrowserContext, Error, Page, ViewportSize, expect, sync_playwright

PROJECT = Path(__file__).parents[2]
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
REQUIRED = os.environ.get("LAB_REQUIRE_BROWSER") == "1"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip

SIZE: ViewportSize = {"width": 1280, "height": 900}
"""Of a page, unless a test sets another."""

expect.set_options(timeout=30_000)  # a fresh server draws its first page late where other tests keep the cores busy


@dataclass(frozen=True)
class Served:
    """A running lab: its address, its folder of runs, its server's process."""

    url: str
    runs: Path
    pid: int


@contextlib.contextmanager
def serve(runs: Path, locks: Path, program: Sequence[str] = ("-m", "streamlit")) -> Iterator[Served]:
    """Start the lab on a free port; afterwards, end it and every trainer it started. `program` runs Streamlit."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        port = probe.getsockname()[1]
    env = {**os.environ, "ADVANTAGE_LAB_RUNS": str(runs), "ADVANTAGE_LAB_LOCKS": str(locks)}
    command = [sys.executable, *program, "run", "app/main.py", "--server.port", str(port)]
    process = subprocess.Popen([*command, "--server.headless", "true"], cwd=PROJECT, env=env, stdin=subprocess.DEVNULL)
    try:
        url = f"http://localhost:{port}"
        deadline = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{url}/_stcore/health", timeout=2):
                break
            assert process.poll() is None, "the lab did not start"
            assert time.monotonic() < deadline, "the lab did not answer within a minute"
            time.sleep(0.2)
        yield Served(url, runs, process.pid)
    finally:
        process.terminate()
        for other in psutil.process_iter(["cmdline"]):
            words = other.info["cmdline"] or ()
            if "core.runs.worker" in words and any(str(runs) in word for word in words):
                with contextlib.suppress(psutil.NoSuchProcess):
                    other.kill()
        process.wait(20)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        message = "no chromium on the path: install it to run the browser tests"
        if REQUIRED:
            pytest.fail(message)
        pytest.skip(message)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture(scope="session")
def context(browser: Browser) -> Iterator[BrowserContext]:
    """One for all tests: what Streamlit and plotly.js load and compile is then kept from page to page."""
    context = browser.new_context(viewport=SIZE)
    yield context
    context.close()


@pytest.fixture(scope="module")
def tab(context: BrowserContext) -> Iterator[Page]:
    """One for a module: a new tab starts a process, which compiles the scripts again."""
    page = context.new_page()
    page.set_default_timeout(60_000)
    yield page
    page.close()


@pytest.fixture
def page(tab: Page) -> Iterator[Page]:
    """A light page of the usual size, on which nothing is shown yet, whose script errors fail the test."""
    errors: list[str] = []

    def heard(error: Error) -> None:
        errors.append(str(error))

    tab.set_viewport_size(SIZE)
    tab.emulate_media(color_scheme="light")
    tab.on("pageerror", heard)
    yield tab
    tab.remove_listener("pageerror", heard)
    tab.goto("about:blank")
    assert not errors, errors
