"""How long a slider move takes on the What if page: 64 rollouts x 512 tokens, beside an empty page's rerun.

    python -m tests.bench.sliders

The page runs in this process through Streamlit's AppTest: its script, the rules, masses, pairs, ledgers and what it
sends to the browser, without the browser that draws it. Medians of eight moves of A3PO's rho, each followed by a rerun
of the empty page.
"""

from __future__ import annotations

import logging
import os
import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

from streamlit.testing.v1 import AppTest

from tests.bench import made, store
from tests.bench.pages import EMPTY_PAGE, MAIN, RUN, as_served

MOVES = 8
SLOTS = (["a3po", "grpo"], ["a3po", "grpo", "adora_amplify", "dapo"])


@dataclass
class Line:
    """One view: its scope and number of methods, median and slowest seconds of a move, and the empty page's."""

    scope: str
    methods: int
    move_s: float
    slowest_s: float
    empty_page_s: float

    def __str__(self) -> str:
        words = f"{self.scope}, {self.methods} methods"
        return f"{words:<22}" + "".join(f"{s:13.3f}" for s in (self.move_s, self.slowest_s, self.empty_page_s))


HEAD = f"{'seconds':<22}{'a move':>13}{'slowest':>13}{'empty page':>13}"


def bench(root: Path, moves: int = MOVES) -> Iterator[Line]:
    """Move a slider in every view, with a rerun of the empty page after each."""
    with as_served(root):
        for scope in ("group", "step"):
            for methods in SLOTS:
                at, empty = _open(scope, methods), AppTest.from_string(EMPTY_PAGE).run()
                times = []
                for move in range(moves + 1):
                    slider = next(one for one in at.slider if one.label == "rho positive")
                    slider.set_value(round(2.05 + 0.05 * move, 2))
                    times.append((store.once_ms(at.run) / 1e3, store.once_ms(empty.run) / 1e3))
                    if not at.query_params["m"][0].startswith("a3po;rho_positive="):
                        raise RuntimeError("the slider did not reach the address")
                (own, beside) = zip(*times[1:], strict=True)
                yield Line(scope, len(methods), statistics.median(own), max(own), statistics.median(beside))


def _open(scope: str, methods: list[str]) -> AppTest:
    at = AppTest.from_file(str(MAIN), default_timeout=600).run()
    for name, value in {"run": RUN, "step": "1", "scope": scope, "m": methods}.items():
        at.query_params[name] = value
    at.switch_page("pages/whatif.py").run()
    if at.exception or at.error:
        raise RuntimeError((at.exception or at.error)[0].value)
    return at


def main() -> None:
    logging.disable(logging.WARNING)  # Streamlit has much to say of running without a server
    with tempfile.TemporaryDirectory() as folder, patch.multiple(made, GROUPS=8, SIZE=8, LENGTH=512):
        made.make(Path(folder) / RUN, 3)
        print(f"load when it began {os.getloadavg()[0]:.1f}\n{HEAD}")
        for line in bench(Path(folder)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
