"""Pages under AppTest: a folder of synthetic runs in every state, and one call that opens a page with its choices.

def test_something(states, open_page):
    at = open_page("live", run="finished")
    assert not at.exception
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from streamlit.components.v2 import manifest_scanner
from streamlit.runtime.pages_manager import PagesManager
from streamlit.testing.v1 import AppTest, app_test

from tests.synthetic import make_run

MAIN = Path(__file__).parents[2] / "app" / "main.py"
STATES = ("finished", "sealed", "running", "stopped", "failed", "queued", "empty", "garbage")
"""Ids of the runs in the `states` folder; `empty` runs without a step yet, `garbage` has a broken status.json."""


@pytest.fixture(scope="session")
def states_root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A runs folder with one small run in each state; tests only read it."""
    root = tmp_path_factory.mktemp("states")
    make_run(root, "finished", steps=6, prompts=3, group_size=4)
    make_run(root, "sealed", method="psr", steps=6, prompts=3, group_size=4, seed=1, sealed=True)
    for state in ("running", "stopped", "failed"):
        make_run(root, state, method="nsr", steps=4, prompts=3, group_size=4, state=state)
    make_run(root, "queued", steps=4, state="queued")
    break_status(make_run(root, "empty", steps=4, state="loading"), state="running")
    garbage = make_run(root, "garbage", steps=3, prompts=3, group_size=4)
    (garbage / "status.json").write_text('{"state": ["runn', encoding="utf-8")
    return root


class _Pages(PagesManager):
    """AppTest forgets before each run that the app has called `st.navigation`; a server does not."""


@pytest.fixture(scope="session", autouse=True)
def _navigation_is_known() -> Iterator[None]:
    """Pages run through main.py from the first run on, as in a server that has shown a page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app_test, "PagesManager", _Pages)
        patch.setattr(PagesManager, "uses_pages_directory", False)
        yield


@pytest.fixture(scope="session", autouse=True)
def _packages_are_looked_through_once() -> Iterator[None]:
    """Each AppTest asks every installed package whether it has components, which takes longer than most pages."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest_scanner, "scan_component_manifests", cache(manifest_scanner.scan_component_manifests))
        yield


@pytest.fixture(autouse=True)
def _no_examples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages see no shipped examples, unless a test shows them."""
    monkeypatch.setattr("core.runs.folders.EXAMPLES", tmp_path / "no examples")


@pytest.fixture
def states(states_root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The pages see the folder with a run in each state."""
    for name in set(STATES) - {"garbage"}:
        break_status(states_root / name, heartbeat=time.time())  # a run that was queued long ago has failed
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(states_root))
    return states_root


@pytest.fixture
def no_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The pages see an empty folder of runs."""
    root = tmp_path / "runs"
    root.mkdir()
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(root))
    return root


@pytest.fixture
def open_page() -> Callable[..., AppTest]:
    """`open_page("tokens", run="finished", step=3)`: the page after one run; lists repeat a parameter."""

    def opener(page: str, *, dark: bool = False, **params: object) -> AppTest:
        at = AppTest.from_file(str(MAIN), default_timeout=30)
        at.context["theme"] = "dark" if dark else "light"
        for name, value in params.items():
            at.query_params[name] = [str(item) for item in value] if isinstance(value, list | tuple) else str(value)
        at.switch_page(f"pages/{page}.py")
        return at.run()

    return opener


def texts(at: AppTest) -> str:
    """Everything a page says in words, one string: headers, Markdown, captions, alerts, metrics, code."""
    parts = [
        element.value
        for kind in (
            "title",
            "header",
            "subheader",
            "markdown",
            "caption",
            "info",
            "warning",
            "error",
            "success",
            "code",
        )
        for element in getattr(at, kind)
    ]
    parts += [f"{metric.label} {metric.value}" for metric in at.metric]
    return "\n".join(str(part) for part in parts)


def break_status(run_dir: Path, **changes: object) -> None:
    """Change fields of a run's status.json in place."""
    path = run_dir / "status.json"
    path.write_text(json.dumps({**json.loads(path.read_text(encoding="utf-8")), **changes}), encoding="utf-8")
