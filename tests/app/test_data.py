"""The store as pages hold it: one Lab of each choice of runs, and a share of the memory for each Lab."""

from __future__ import annotations

import gc
import re
import weakref
from pathlib import Path

import pytest
import streamlit as st

from app import data
from core.config import read_run
from core.runs import get_run
from core.store import Lab, write_step
from tests.synthetic import World, make_run

TINY = {"prompts": 2, "group_size": 2, "steps": 3}


@pytest.fixture(autouse=True)
def _no_labs() -> None:
    st.cache_resource.clear()
    gc.collect()


def megabytes(lab: Lab) -> float:
    """The memory limit of a Lab's database, which says it in MiB."""
    text = lab.rows("SELECT current_setting('memory_limit') AS most")[0]["most"]
    number, unit = re.fullmatch(r"([\d.]+) (\w+)", text).groups()
    assert unit == "MiB"
    return float(number) * 2**20 / 1e6


def test_a_run_that_grows_has_one_lab_at_a_time(tmp_path: Path) -> None:
    path = make_run(tmp_path, "grows", state="running", **TINY)
    info = get_run(tmp_path, "grows")
    first = data.lab(info)
    assert data.lab(info) is first and first.steps("grows") == [0, 1, 2]
    write_step(path, World(read_run(path / "config.yaml")).step(3))
    second = data.lab(info)
    assert second is not first and second.steps("grows") == [0, 1, 2, 3]
    assert first.rows("SELECT count(*) AS n FROM metrics") == [{"n": 3}], "what was handed out stays usable"
    gone = weakref.ref(first)
    del first
    gc.collect()
    assert gone() is None, "nothing but its readers keeps the Lab of an earlier step"


def test_labs_share_their_memory(tmp_path: Path) -> None:
    infos = [get_run(tmp_path, make_run(tmp_path, f"run{i}", **TINY).name) for i in range(3)]
    labs = [data.lab(info) for info in infos]
    limits = [megabytes(lab) for lab in labs]
    assert sum(limits) == pytest.approx(data.MEMORY_MB, rel=0.02) and max(limits) - min(limits) < 1
    many = [data.lab(list(order)) for order in (infos, infos[:2], infos[1:], infos[::2], infos[::-1])]
    assert [round(megabytes(lab)) for lab in [*labs, *many]] == [data.MEMORY_MB // 8] * 8


def test_no_lab_gets_too_little_to_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "MEMORY_MB", 10)
    make_run(tmp_path, "one", **TINY)
    lab = data.lab(get_run(tmp_path, "one"))
    assert megabytes(lab) == pytest.approx(data.LEAST_MB, rel=0.02)
    assert lab.rows("SELECT count(*) AS n FROM (SELECT token FROM tokens ORDER BY entropy)")[0]["n"] > 50
