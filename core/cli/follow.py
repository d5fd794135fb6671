"""Following runs in a terminal: one bar and one ETA over all of them, until the last has ended."""

from __future__ import annotations

import time
from pathlib import Path

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from core.cli.common import number, one_line
from core.runs import RunInfo, duration, stop
from core.runs.folders import RunError, run_info, runs_option
from core.runs.progress import progress
from core.runs.status import read_status

POLL_S = 0.5
SEALING_S = 60.0
"""Seconds to wait for the last run to be sealed after it has finished."""
LINES = 10
"""Lines a run where there is no terminal to draw a bar in."""


def follow(root: Path, paths: list[Path], stay: bool = True) -> int:
    """Show progress until every run has ended; Ctrl-C stops them. Returns the exit code.

    What can be done with the runs is said at the end, unless they do not `stay`.
    """
    console = Console(highlight=False)
    show = _Bar(console) if console.is_terminal else _Lines(console)
    interrupted = False
    with show:
        while True:
            try:
                infos = [run_info(path) for path in paths]
                show.update(infos)
                if not any(info.live for info in infos):
                    break
                time.sleep(POLL_S)
            except KeyboardInterrupt:
                show.say("Stopping now." if interrupted else "Stopping at the next step (Ctrl-C again: at once).")
                _stop(paths, now=interrupted)
                interrupted = True
    _wait_for_seal(infos)
    return _farewell(console, root, infos, interrupted, stay)


def headline(infos: list[RunInfo]) -> str:
    """What is going on, in one line: which run of how many, its step, reward and pass@1."""
    current = next((info for info in infos if info.state in ("running", "stopping", "loading")), None)
    current = current or next((info for info in infos if info.live), infos[-1])
    place = f"{infos.index(current) + 1}/{len(infos)} " if len(infos) > 1 else ""
    words = [f"{place}{one_line(current.name, 40)}"]
    if current.state != "running":
        words.append(one_line(current.message, 60) or current.state)
    if current.step or current.state == "running":
        words.append(f"step {current.step}/{current.total}")
    if current.reward is not None:
        words.append(f"reward {number(current.reward, 2)}")
    if current.pass_at_1 is not None:
        words.append(f"pass@1 {number(current.pass_at_1, 2)}")
    return " · ".join(words)


class _Bar:
    """A bar that redraws itself."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(None), TextColumn("{task.percentage:>3.0f} %"))
        self._bar = Progress(*columns, TextColumn("{task.fields[left]}"), console=console, refresh_per_second=4)
        self._task = self._bar.add_task("", total=None, left="")

    def __enter__(self) -> _Bar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def update(self, infos: list[RunInfo]) -> None:
        now = progress(infos)
        self._bar.update(
            self._task,
            description=Text(headline(infos)).markup,
            completed=now.done,
            total=now.total,
            left=f"{duration(now.eta_s)} left" if now.eta_s else "",
        )

    def say(self, words: str) -> None:
        self._bar.console.print(words)


class _Lines:
    """One line for each change of state and every few steps, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._last: object = None

    def __enter__(self) -> _Lines:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def update(self, infos: list[RunInfo]) -> None:
        mark = [(info.state, LINES * info.step // max(1, info.total)) for info in infos]
        if mark != self._last:
            self._last = mark
            left = progress(infos).eta_s
            self.say(headline(infos) + (f" · {duration(left)} left" if left else ""))

    def say(self, words: str) -> None:
        self._console.print(words, markup=False, soft_wrap=True)


def _stop(paths: list[Path], now: bool) -> None:
    """Stop all that have not ended, those in line first, so that none takes its turn meanwhile."""
    infos = sorted((run_info(path) for path in paths), key=lambda info: info.state != "queued")
    for info in infos:
        try:
            stop(info.path, now=now)
        except RunError:
            continue  # it has ended by itself


def _wait_for_seal(infos: list[RunInfo]) -> None:
    deadline = time.monotonic() + SEALING_S
    for info in infos:
        while info.state == "finished" and info.host_is_here and time.monotonic() < deadline:
            status = read_status(info.path)
            if status is None or status.sealed or not status.is_alive():
                break
            time.sleep(0.1)


def _farewell(console: Console, root: Path, infos: list[RunInfo], interrupted: bool, stay: bool) -> int:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("run", "state", "step", "reward", "pass@1", "id"):
        table.add_column(title, overflow="fold")
    for info in infos:
        step = f"{info.step}/{info.total}"
        cells = (one_line(info.name, 60), info.state, step, number(info.reward), number(info.pass_at_1), info.id)
        table.add_row(*map(Text, cells))
    console.print(table)
    elsewhere = runs_option(root)
    for info in infos:
        if info.state == "failed":
            console.print(f"{info.id} failed: {one_line(info.error, 500)}", markup=False, soft_wrap=True)
    unfinished = [info.id for info in infos if info.state != "finished"]
    if unfinished:
        if stay:
            command = f"python -m core resume {' '.join(unfinished)}{elsewhere}"
            console.print(f"To go on: {command}", markup=False, soft_wrap=True)
        return 130 if interrupted else 1
    if stay:
        pages = f"python -m streamlit run app/main.py{elsewhere and ' --' + elsewhere}"
        console.print(f"Look inside: {pages}", markup=False, soft_wrap=True)
    return 0
