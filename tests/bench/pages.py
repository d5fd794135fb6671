"""How fast each page opens over 10 million tokens or 100, beside an empty page and a query over all tokens.

    python -m tests.bench.pages [--tokens 10240000] [--json] [--folder DIR] [VIEW ...]

The run of `tests.bench.made`, sealed; the same file as another seed for Compare; and up to 10 million tokens also a run
that is not sealed and still trains. Each view runs in this process through Streamlit's AppTest: the script, its queries
and its figures, and what is sent, without a browser that draws it. The first open has empty caches, the second is
another visitor's. Medians of three rounds, in which the view and both peers take turns. With --folder the runs are kept
there and used again. Above 10 million tokens the run is made by repeating the steps of the one of 10 million.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from unittest.mock import patch

import streamlit as st
from streamlit.runtime.pages_manager import PagesManager
from streamlit.testing.v1 import AppTest, app_test

from core.config import dump, read_run
from core.store import open_runs
from core.store.files import SEALED
from tests.bench import made, store
from tests.bench.views import LIVE, OTHER, RUN, Address, addresses, sent

ROUNDS = 3
MAIN = Path(__file__).parents[2] / "app" / "main.py"
EMPTY_PAGE = "import streamlit as st\nst.header('An empty page')\n"
MADE_STEPS = 400
"""Longer runs are this one, its steps over and over."""
TARGET_MB = 3.0


@dataclass
class Line:
    """One view: median seconds of its two opens and of the peers in the same rounds, what it sends and draws."""

    view: str
    first_s: float
    second_s: float
    empty_page_s: float
    all_tokens_s: float
    sent_mb: float
    figures: int

    def __str__(self) -> str:
        times = (self.first_s, self.second_s, self.empty_page_s, self.all_tokens_s, self.sent_mb)
        return f"{self.view:<24}" + "".join(f"{value:13.2f}" for value in times) + f"{self.figures:9}"


HEAD = f"{'seconds':<24}{'first open':>13}{'second open':>13}{'empty page':>13}{'all tokens':>13}{'MB sent':>13}" + (
    f"{'figures':>9}"
)


class _Pages(PagesManager):
    """AppTest forgets before each run that the app has called `st.navigation`; a server does not."""


@contextmanager
def as_served(root: Path) -> Iterator[None]:
    """Pages see the runs of `root` alone, and run through main.py as in a server that has shown a page."""
    with (
        patch.object(app_test, "PagesManager", _Pages),
        patch.object(PagesManager, "uses_pages_directory", False),
        patch("core.runs.folders.EXAMPLES", root / "no examples"),
        patch.dict(os.environ, ADVANTAGE_LAB_RUNS=str(root)),
    ):
        yield


def build(folder: Path, tokens: int) -> Path:
    """The folder of the runs, made unless they are there; its name tells the number of steps."""
    steps = made.steps_of(tokens)
    root = folder / f"{steps} steps"
    path, other, live = root / RUN, root / OTHER, root / LIVE
    if (other / SEALED).exists():
        return root
    shutil.rmtree(root, ignore_errors=True)
    if steps > MADE_STEPS:
        made.repeat(build(folder, MADE_STEPS * made.per_step()) / RUN, path, steps // MADE_STEPS)
    else:
        made.make(path, steps)
        made.still_running(path, live)
        made.seal_at_once(path)
    other.mkdir()
    config = read_run(path / "config.yaml").model_copy(update={"name": OTHER, "seed": 1})
    (other / "config.yaml").write_text(dump(config), encoding="utf-8")
    for name in ("status.json", "schema.json", SEALED):
        os.link(path / name, other / name)
    return root


def open_view(address: Address, before: Callable[[], object] = lambda: None) -> tuple[float, AppTest]:
    """Seconds of a page's script, asked for by somebody who comes from the home page."""
    page, parameters = address
    at = AppTest.from_file(str(MAIN), default_timeout=600).run()
    for name, value in parameters.items():
        at.query_params[name] = value
    at.switch_page(f"pages/{page}.py")
    before()
    seconds = store.once_ms(at.run) / 1e3
    if at.exception or at.error:
        raise RuntimeError(f"{page}: {(at.exception or at.error)[0].value}")
    return seconds, at


def forget() -> None:
    """Empty what pages have cached."""
    st.cache_data.clear()
    st.cache_resource.clear()


def bench(root: Path, steps: int, only: list[str] | None = None) -> Iterator[Line]:
    """Open every view, in turn with both peers."""
    views = addresses(steps, live=(root / LIVE).exists())
    with as_served(root), open_runs([root / RUN]) as lab, sent() as sizes:
        for name in only or views:
            times: list[tuple[float, ...]] = []
            for _ in range(ROUNDS):
                first, _ = open_view(views[name], forget)
                second, at = open_view(views[name])
                size = sizes[-1]
                empty = store.once_ms(AppTest.from_string(EMPTY_PAGE).run) / 1e3
                times.append((first, second, empty, store.once_ms(lambda: lab.df(store.FROM_TOKENS)) / 1e3))
            figures = len(at.get("plotly_chart")) + len(at.get("bidi_component"))
            yield Line(name, *map(statistics.median, zip(*times, strict=True)), size / 1e6, figures)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.pages", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("views", nargs="*", metavar="VIEW", help="views to open; all of them if none is named")
    parser.add_argument("--tokens", type=int, default=10_240_000)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--folder", type=Path, help="where to keep the runs; without it they are deleted afterwards")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # Streamlit has much to say of running without a server
    with tempfile.TemporaryDirectory() as folder:
        steps = made.steps_of(options.tokens)
        root = build(options.folder or Path(folder), options.tokens)
        lines = bench(root, steps, options.views)
        load = os.getloadavg()
        if options.json:
            found = [asdict(line) for line in lines]
            print(json.dumps({"steps": steps, "load_at_start": load, "views": found}, indent=1))
            return
        print(f"{steps} steps of {made.per_step():,} tokens; load when it began {load[0]:.1f}\n{HEAD}")
        for line in lines:
            print(line, flush=True)
        print(f"load when it ended {os.getloadavg()[0]:.1f}; no view may send more than {TARGET_MB:.0f} MB")


if __name__ == "__main__":
    main()
