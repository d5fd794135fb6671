"""The frame around the pages: navigation, the guard at their edge, Streamlit's own settings."""

from __future__ import annotations

import logging
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from streamlit.runtime.scriptrunner import StopException
from streamlit.testing.v1 import AppTest

from app.urls import PAGES

ROOT = Path(__file__).parents[2]
CONFIG = tomllib.loads((ROOT / ".streamlit" / "config.toml").read_text(encoding="utf-8"))


def test_the_ten_pages_are_there_and_runs_is_home(no_runs, open_page):
    names = "runs launch import live tokens polarity favorability whatif compare sql"
    assert list(PAGES) == names.split()
    at = AppTest.from_file(str(ROOT / "app" / "main.py"), default_timeout=30).run()
    assert at.header[0].value == open_page("runs").header[0].value


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_every_page_opens_without_a_run(no_runs, open_page, page, dark):
    at = open_page(page, dark=dark)
    assert not at.exception
    assert at.header[0].value.endswith("?")
    assert not any("Something went wrong" in error.value for error in at.error)


def test_an_unexpected_error_is_one_calm_sentence_with_an_id_for_the_log(no_runs, open_page, monkeypatch, caplog):
    def broken(*args):
        raise RuntimeError("secret detail 42")

    monkeypatch.setattr("app.data.runs", broken)
    with caplog.at_level(logging.ERROR, logger="advantage_lab"):
        at = open_page("live")
    assert not at.exception
    assert len(at.error) == 1
    assert "Something went wrong" in at.error[0].value
    assert "secret" not in at.error[0].value
    mark = at.error[0].value.split("**")[1]
    record = next(record for record in caplog.records if mark in record.getMessage())
    assert "secret detail 42" in str(record.exc_info[1])


def test_errors_meant_for_people_are_shown_as_they_are(no_runs, open_page, monkeypatch):
    from core.store import StoreError

    def damaged(*args):
        raise StoreError("rollouts.duckdb: not a sealed run, or damaged <b>")

    monkeypatch.setattr("app.data.runs", damaged)
    at = open_page("runs")
    assert "not a sealed run" in at.error[0].value
    assert "<b>" not in at.error[0].value.replace("\\<", "")


def test_streamlit_is_silent_local_and_shows_no_traceback():
    assert CONFIG["server"]["address"] == "localhost"
    assert CONFIG["server"]["showEmailPrompt"] is False
    assert "headless" not in CONFIG["server"], "the browser opens where there is one"
    assert CONFIG["browser"]["gatherUsageStats"] is False
    assert CONFIG["client"]["toolbarMode"] == "minimal"
    assert CONFIG["client"]["showErrorDetails"] == "none"
    assert CONFIG["runner"]["magicEnabled"] is False


def test_streamlit_knows_every_setting_of_the_config():
    keys = [
        f"{section}.{key}" for section, group in CONFIG.items() for key, v in group.items() if not isinstance(v, dict)
    ]
    code = (
        f"from streamlit import config\nprint([k for k in {keys!r} if config._config_options_template.get(k) is None])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip().splitlines()[-1] == "[]", done.stdout + done.stderr


def test_a_deep_link_into_the_first_session_still_gets_the_navigation(no_runs, monkeypatch):
    """A page's file that Streamlit runs by itself registers the pages before anything else."""

    def stop():
        raise StopException

    registered = []
    monkeypatch.setattr("streamlit.navigation", lambda pages, position: registered.append(len(pages)) or stop())
    at = AppTest.from_file(str(ROOT / "app" / "pages" / "runs.py"), default_timeout=30).run()
    assert registered == [len(PAGES) + 1]  # home a second time, under its name
    assert len(at.header) == 0
