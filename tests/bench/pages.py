"""How fast each page opens over 10 million tokens, beside an empty page and a query over all tokens in the same run.

    python -m tests.bench.pages [--tokens 10240000] [--json] [--folder DIR]

The run of `tests.bench.store`, sealed, and a second one beside it for Compare (the same file as another seed). Each
page runs in this process through Streamlit's AppTest: the script, its queries and its figures, without a browser that
draws them. The first open has empty caches, the second is another visitor's. Medians of three rounds, in which the page
and both peers take turns. With --folder the runs are kept there and used again.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
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

from app.urls import PAGES
from core.config import dump
from core.store import open_runs, seal, sweep
from core.store.files import SEALED
from tests.bench import store

ROUNDS = 3
MAIN = Path(__file__).parents[2] / "app" / "main.py"
RUN, OTHER = "bench", "beside"
EMPTY_PAGE = "import streamlit as st\nst.header('An empty page')\n"


@dataclass
class Line:
    """One page: median seconds of its two opens and of the peers in the same rounds, and how many figures it drew."""

    page: str
    first_s: float
    second_s: float
    empty_page_s: float
    all_tokens_s: float
    figures: int

    def __str__(self) -> str:
        times = (self.first_s, self.second_s, self.empty_page_s, self.all_tokens_s)
        return f"{self.page:<14}" + "".join(f"{value:13.2f}" for value in times) + f"{self.figures:9}"


HEAD = f"{'seconds':<14}{'first open':>13}{'second open':>13}{'empty page':>13}{'all tokens':>13}{'figures':>9}"


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
    """The folder of both runs, made unless they are there; its name tells the number of steps."""
    steps = store.steps_of(tokens)
    root = folder / f"{steps} steps"
    if (root / OTHER / SEALED).exists():
        return root
    path, other = root / RUN, root / OTHER
    store.make(path, steps)
    seal(path)
    sweep(path, grace_s=0)
    other.mkdir()
    config = store.config(steps).model_copy(update={"name": OTHER, "seed": 1})
    (other / "config.yaml").write_text(dump(config), encoding="utf-8")
    for name in ("status.json", "schema.json", SEALED):
        os.link(path / name, other / name)
    return root


def open_page(page: str, steps: int, before: Callable[[], object] = lambda: None) -> tuple[float, AppTest]:
    """Seconds of a page's script, asked for the middle of the run by somebody who comes from the home page."""
    at = AppTest.from_file(str(MAIN), default_timeout=600).run()
    choices = {"step": steps // 2, "group": 7} if page in ("tokens", "favorability", "whatif") else {}
    runs = {"run": [RUN, OTHER] if page == "compare" else RUN} if page not in ("runs", "launch") else {}
    for name, value in (runs | choices).items():
        at.query_params[name] = value if isinstance(value, list) else str(value)
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


def bench(root: Path, steps: int) -> Iterator[Line]:
    """Open every page, in turn with both peers."""
    with as_served(root), open_runs([root / RUN]) as lab:
        for page in PAGES:
            times: list[tuple[float, ...]] = []
            for _ in range(ROUNDS):
                first, _ = open_page(page, steps, forget)
                second, at = open_page(page, steps)
                empty = store.once_ms(AppTest.from_string(EMPTY_PAGE).run) / 1e3
                times.append((first, second, empty, store.once_ms(lambda: lab.df(store.FROM_TOKENS)) / 1e3))
            figures = len(at.get("plotly_chart")) + len(at.get("bidi_component"))
            yield Line(page, *map(statistics.median, zip(*times, strict=True)), figures)


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.pages", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tokens", type=int, default=10_240_000)
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the table")
    parser.add_argument("--folder", type=Path, help="where to keep the runs; without it they are deleted afterwards")
    options = parser.parse_args()
    logging.disable(logging.WARNING)  # Streamlit has much to say of running without a server
    with tempfile.TemporaryDirectory() as folder:
        steps = store.steps_of(options.tokens)
        root = build(options.folder or Path(folder), options.tokens)
        lines = bench(root, steps)
        load = os.getloadavg()
        if options.json:
            found = [asdict(line) for line in lines]
            print(json.dumps({"tokens": steps * store.PER_STEP, "load_at_start": load, "pages": found}, indent=1))
            return
        print(f"{steps * store.PER_STEP:,} tokens in {steps} steps; load when it began {load[0]:.1f}\n{HEAD}")
        for line in lines:
            print(line, flush=True)
        print(f"load when it ended {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
