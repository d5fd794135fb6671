"""Whether a Live page that is left open grows, and what it is sent while its run trains and after.

    python -m tests.bench.left_open [--refreshes 200] [--steps 1000] [--faster 6]

Serves the lab with a run of small steps that gets one more every .3 seconds, and leaves a Chromium tab open on its Live
page, whose refreshes come `--faster` times as often as for people (every two seconds). Printed after each tenth of the
refreshes: the server's resident memory, and the tab's heap, nodes and listeners once its garbage was collected. At the
end: the bytes that a refresh brought over the socket, while steps came and when none came any more.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from playwright.sync_api import Browser, CDPSession, Page, WebSocket, sync_playwright
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

from core.config import dump
from core.store import write_schema, write_step
from tests.bench import made
from tests.bench.memory import Watch, go, watched
from tests.bench.views import LIVE
from tests.browser.conftest import CHROMIUM, FLAGS, serve

STEP_S = 0.3
SMALL = {"GROUPS": 2, "SIZE": 4, "LENGTH": 24}
FASTER = """
import sys
import streamlit as st
from streamlit.web.cli import main
fragment = st.fragment
st.fragment = lambda draw, run_every=None: fragment(draw, run_every=run_every and run_every / {faster})
sys.argv[0] = "streamlit"
main()
"""


@dataclass(frozen=True)
class Sample:
    """What there was after some refreshes: bytes of memory, and counts of the tab's nodes and listeners."""

    refreshes: int
    server: int
    heap: int
    nodes: int
    listeners: int

    def __str__(self) -> str:
        sizes = f"server {self.server / 1e6:6.0f} MB   heap {self.heap / 1e6:6.1f} MB"
        return f"{self.refreshes:5} refreshes   {sizes}   {self.nodes:7} nodes   {self.listeners:6} listeners"


@dataclass(frozen=True)
class Sent:
    """The bytes that each of some refreshes was sent."""

    when: str
    refreshes: list[int]

    def __str__(self) -> str:
        median, most = statistics.median(self.refreshes) / 1e3, max(self.refreshes) / 1e3
        return f"{self.when:<34} {median:7.1f} kB a refresh, {most:7.1f} kB at most"


@dataclass
class Traffic:
    """The bytes that came to a tab, by refresh."""

    refreshes: list[int] = field(default_factory=list)
    now: int = 0

    def watch(self, page: Page) -> None:
        page.on("websocket", self._socket)

    def _socket(self, socket: WebSocket) -> None:
        socket.on("framereceived", self._frame)

    def _frame(self, frame: bytes | str) -> None:
        self.now += len(frame)
        if isinstance(frame, bytes) and ForwardMsg.FromString(frame).WhichOneof("type") == "script_finished":
            self.refreshes.append(self.now)
            self.now = 0


@contextmanager
def training(path: Path, steps: int) -> Iterator[threading.Event]:
    """A run with so many steps that goes on; setting the event ends its training, but not its state."""
    run = made.config(100_000, evaluate={"every": 0})
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(dump(run), encoding="utf-8")
    write_schema(path, run)
    world, done = made.LongWorld(run), threading.Event()
    for step in range(steps):
        write_step(path, world.step(step))
    made.say(path, run, "running", step=steps)

    def go_on() -> None:
        step = steps
        while not done.wait(STEP_S):
            write_step(path, world.step(step))
            step += 1
            made.say(path, run, "running", step=step)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield done
    finally:
        done.set()
        thread.join()


def sample(refreshes: int, server: Watch, tab: CDPSession) -> Sample:
    tab.send("HeapProfiler.collectGarbage")
    found = {metric["name"]: int(metric["value"]) for metric in tab.send("Performance.getMetrics")["metrics"]}
    return Sample(refreshes, server.now(), found["JSHeapUsedSize"], found["Nodes"], found["JSEventListeners"])


def wait(page: Page, traffic: Traffic, refreshes: int) -> None:
    """Until so many refreshes have come; the tab goes on meanwhile."""
    end = len(traffic.refreshes) + refreshes
    while len(traffic.refreshes) < end:
        page.wait_for_timeout(50)


def bench(folder: Path, refreshes: int, steps: int, faster: float, chromium: Browser) -> Iterator[Sample | Sent]:
    """A sample after each tenth of the refreshes; then what the first and the last fifth of them were sent, and what
    ten were sent when nothing changed any more.
    """
    traffic, program = Traffic(), ("-c", FASTER.format(faster=faster))
    with (
        training(folder / "runs" / LIVE, steps) as done,
        serve(folder / "runs", folder / "locks", program) as lab,
        watched(lab.pid) as server,
    ):
        page = chromium.new_page(viewport={"width": 1280, "height": 900})
        traffic.watch(page)
        go(page, lab.url, ("live", {"run": LIVE}))
        tab = page.context.new_cdp_session(page)
        tab.send("Performance.enable")
        wait(page, traffic, 5)
        before = len(traffic.refreshes)
        for _ in range(10):
            wait(page, traffic, max(refreshes // 10, 1))
            yield sample(len(traffic.refreshes) - before, server, tab)
        busy = traffic.refreshes[before:]
        fifth = max(len(busy) // 5, 1)
        yield Sent("the first fifth, while it trains", busy[:fifth])
        yield Sent("the last fifth, while it trains", busy[-fifth:])
        done.set()
        wait(page, traffic, 4)
        idle = len(traffic.refreshes)
        wait(page, traffic, 10)
        yield Sent("when nothing changes any more", traffic.refreshes[idle:])
        page.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.left_open",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--refreshes", type=int, default=200)
    parser.add_argument("--steps", type=int, default=1000, help="steps that the run has when the page is opened")
    parser.add_argument("--faster", type=float, default=6)
    options = parser.parse_args()
    print(f"load when it began {os.getloadavg()[0]:.1f}", flush=True)
    with tempfile.TemporaryDirectory() as folder, patch.multiple(made, **SMALL), sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        for line in bench(Path(folder), options.refreshes, options.steps, options.faster, chromium):
            print(line, flush=True)


if __name__ == "__main__":
    main()
