"""Imports in processes of their own: what a page reads of them on their way and at their end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from pathlib import Path

import psutil
import pytest

from core.importers import jobs
from core.importers.base import ImportFailed
from core.importers.jobs import Asked, Job
from core.importers.write import HIDDEN
from core.runs import list_runs, machine
from core.runs.locks import clear_abandoned

EXAMPLES = Path(__file__).with_name("formats") / "examples"
HOSTILE = "--runs=/tmp/x; $(touch pwned) \x00 \u202e \udc80 <b>"


def ended(root: Path, job: str) -> Job:
    """The import once its process is gone."""
    deadline = time.monotonic() + 60
    while (found := jobs.read(root, job)) is not None and found.live:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert found is not None
    return found


def test_a_job_imports_and_tells_all_that_a_page_shows(root: Path) -> None:
    home = jobs.new_folder(root)
    shutil.copytree(EXAMPLES / "trl", home / jobs.FILES)
    asked = Asked(str(home / jobs.FILES), convention="grpo-ddof0", name=HOSTILE, origin=f"{HOSTILE} (dropped)")
    assert jobs.start(root, asked, home.name) == home.name
    found = ended(root, home.name)
    assert (found.state, found.error) == ("done", ""), found
    (run,) = list_runs(root)
    assert found.made["id"] == run.id and run.imported
    assert run.name.startswith("--runs=/tmp/x; $(touch pwned)")
    assert found.made["taken"] == 4 and found.made["convention"] == "grpo-ddof0" and found.made["lacking"]
    assert str(home) not in (run.path / "import.json").read_text(encoding="utf-8").partition('"places"')[0]
    told = [json.loads(line) for line in (home / jobs.TOLD).read_text(encoding="utf-8").splitlines()]
    assert told[0] == {"doing": "reading", "done": 4, "of": None}
    assert told[-2] == {"doing": "writing", "done": 1, "of": 1} and set(told[-1]) == {"made"}
    jobs.settle(root, found)
    assert not (home / jobs.FILES).exists() and jobs.read(root, home.name) == found


def test_a_job_that_refuses_says_so_and_one_that_is_stopped_leaves_nothing(root: Path, tmp_path: Path) -> None:
    job = jobs.start(root, Asked(str(tmp_path / "-no where")))
    big = tmp_path / "big.jsonl"
    row = json.dumps({"input": "x" * 100, "output": "y", "score": 1.0, "step": 1})
    big.write_text((row + "\n") * 60_000, encoding="utf-8")
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as in a lab that a shell started with `&`
    other = jobs.start(root, Asked(str(big)))
    signal.signal(signal.SIGINT, before)
    while (now := jobs.read(root, other)) is not None and now.live and not now.doing:
        time.sleep(0.02)
    held = psutil.Process(json.loads((root / jobs.FOLDER / other / jobs.ASKED).read_text())["pid"])
    held.suspend()  # so that it is not over before it is stopped
    assert [one.id for one in jobs.running(root) if one.id == other] == [other]
    threading.Timer(0.5, held.resume).start()
    jobs.stop(root, other)
    assert ended(root, other).state == "stopped"
    found = ended(root, job)
    assert (found.state, found.made) == ("failed", {}) and "is not there" in found.error
    assert not found.error.startswith("error") and jobs.running(root) == []
    clear_abandoned(root, HIDDEN)  # as the next import does, where a busy machine gave this one no time for it
    assert list_runs(root) == [] and not list(root.glob(f"{HIDDEN}*"))


def test_ids_and_files_of_others_are_no_job(root: Path) -> None:
    for job in ("../../etc", "", "A" * 12, "0" * 12, "x" * 5000, "\x00"):
        assert jobs.read(root, job) is None
        jobs.stop(root, job)
        with pytest.raises(ImportFailed, match="drop it again"):
            jobs.start(root, Asked("x"), job)
    folder = jobs.new_folder(root)
    assert jobs.read(root, folder.name) is None  # dropped, not started
    for text in ("", "[]", '{"asked": 3}', '{"asked": {"path": 1, "evil": 2}}'):
        (folder / jobs.ASKED).write_text(text, encoding="utf-8")
        assert jobs.read(root, folder.name) is None


def test_what_ended_a_day_ago_is_removed(root: Path) -> None:
    old, fresh, live = (jobs.new_folder(root) for _ in range(3))
    for folder in (old, live):
        asked = {"asked": {"path": "x"}, **(machine.this_process() if folder is live else machine.process(2**22 + 5))}
        (folder / jobs.ASKED).write_text(json.dumps(asked), encoding="utf-8")
        (folder / jobs.TOLD).touch()
        os.utime(folder, (0, 0))
    jobs.tidy(root)
    assert not old.exists() and fresh.exists() and live.exists()
