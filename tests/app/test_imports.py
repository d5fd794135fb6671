"""The Import page: dropped files and folders of this machine become runs, and what was taken is said."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest

from app import dropped, importing
from app.pages import imports
from core.exporters.bundle import write_bundle
from core.importers.formats import all_formats, find
from core.importers.write import bring_in
from core.runs import list_runs
from tests.app.conftest import texts
from tests.synthetic import make_run

EXAMPLES = Path(__file__).parents[1] / "core" / "importers" / "formats" / "examples"
HOSTILE = "<img src=x onerror=alert(1)> ![i](http://evil.example/i.png) $$x$$.jsonl"


def sits_at(monkeypatch, address):
    """Who looks at the page: None is somebody at the lab's own machine. AppTest knows nobody."""
    monkeypatch.setattr("streamlit.runtime.context.ContextProxy.ip_address", property(lambda self: address))


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    sits_at(monkeypatch, None)


@pytest.fixture
def trl(tmp_path):
    return shutil.copytree(EXAMPLES / "trl", tmp_path / "my trainer")


def imported(root, path):
    found = find(path)
    return bring_in(root, all_formats()[found.format], found).path


def ended(at):
    """The page once its import is over."""
    for _ in range(300):
        if imports.JOB not in at.session_state:
            return at
        time.sleep(0.1)
        at.run()
    raise AssertionError("the import does not end")


def pressed(at, label):
    return next(one for one in at.button if one.label == label).click().run()


def test_a_folder_of_this_machine_becomes_a_run_with_its_report(no_runs, open_page, trl):
    at = pressed(open_page("imports", **{"from": "path", "path": str(trl)}), "Look")
    assert "Recognised: **TRL and Unsloth** in 1\u00a0file" in texts(at)
    at = ended(pressed(at, "Import"))
    assert not at.exception
    (run,) = list_runs(no_runs, examples=False)
    assert at.query_params["run"] == run.id and run.imported
    said = texts(at)
    assert "**1\u00a0step, 4\u00a0rollouts, no tokens** from TRL and Unsloth" in said
    assert (
        "computed with ddof 1" in said and "Not in the files; each view says what it lacks**\n- right answers" in said
    )
    assert "Recognised" not in said, "the same path is looked at again only when it is asked for"
    at = ended(pressed(at, "Import again"))
    assert len(list_runs(no_runs, examples=False)) == 1 and "no tokens" in texts(at)


def test_dropped_files_become_a_run_and_leave_nothing_behind(no_runs, open_page, trl, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    (file,) = (trl / "completions").iterdir()
    at = open_page("imports")
    at.file_uploader[0].set_value([(file.name, file.read_bytes(), "application/octet-stream")]).run()
    assert "Recognised: **TRL and Unsloth**" in texts(at)
    at = ended(pressed(at, "Import"))
    (run,) = list_runs(no_runs, examples=False)
    assert at.query_params["run"] == run.id and run.name == file.stem
    assert not list((tmp_path / "tmp").glob("advantage-lab-*"))
    assert "Import again" not in [one.label for one in at.button]


def test_a_run_that_somebody_sent_is_opened(no_runs, open_page, tmp_path):
    write_bundle(make_run(tmp_path, "theirs", steps=2, prompts=2, group_size=2), tmp_path / "theirs.zip")
    at = open_page("imports")
    at.file_uploader[0].set_value([("theirs.zip", (tmp_path / "theirs.zip").read_bytes(), "application/zip")]).run()
    at = pressed(at, "Open the run")
    assert not at.exception and "**theirs** is among your runs" in at.success[0].value
    assert [run.id for run in list_runs(no_runs, examples=False)] == ["theirs"]
    at.run()
    assert not at.exception


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (HOSTILE, b"{}", "no rollouts of a known format"),
        ("model.pt", b"\x80\x04x", "is a pickle"),
        ("empty.jsonl", b"", "no rollouts of a known format"),
        ("x.zip", b"PK\x03\x04", "no rollouts of a known format"),
    ],
)
def test_what_holds_no_rollouts_gets_one_sentence(no_runs, open_page, name, content, words):
    at = open_page("imports")
    at.file_uploader[0].set_value([(name, content, "application/octet-stream")]).run()
    (error,) = at.error
    assert words in error.value and "advantage-lab-dropped" not in error.value
    assert "<img" not in error.value.replace("\\<", "") and "![i](" not in error.value
    assert "Import" not in [one.label for one in at.button]


def test_what_is_not_there_is_said_and_an_import_that_fails_too(no_runs, open_page, tmp_path):
    at = pressed(open_page("imports", **{"from": "path", "path": str(tmp_path / "gone")}), "Look")
    assert "is not there" in at.error[0].value
    lines = tmp_path / "rollouts.jsonl"
    lines.write_text('{"input": "a", "output": "b", "score": NaN, "step": "never"}\n' * 2)
    job = importing.start(no_runs, lines, form="verl", convention="none such")
    while (now := importing.state(job)).running:
        time.sleep(0.05)
    importing.finish(job)
    assert "there is no convention 'none such'" in now.error
    assert not list(no_runs.iterdir()) and not job.folder.exists()


def test_only_who_sits_at_the_machine_names_its_folders(no_runs, open_page, trl, monkeypatch):
    sits_at(monkeypatch, "10.0.0.7")
    run = imported(no_runs, trl)
    at = open_page("imports", run=run.name, **{"from": "path", "path": str(trl)})
    assert not at.exception and not at.text_input
    assert "imported by those who sit at it" in texts(at)
    assert "Import again" not in [one.label for one in at.button]


def test_a_run_without_its_manifest_and_none_at_all(no_runs, open_page, trl):
    run = imported(no_runs, trl)
    (run / "import.json").write_text("{")
    assert "does not say where it came from" in texts(open_page("imports", run=run.name))
    at = open_page("imports", run="zork")
    assert "There is no imported run" in at.warning[0].value
    assert "my trainer" in texts(at), "it is listed"


def test_a_cancelled_import_leaves_nothing(no_runs, open_page, trl):
    at = pressed(open_page("imports", **{"from": "path", "path": str(trl)}), "Look")
    pressed(at, "Import")
    at = pressed(at, "Cancel") if imports.JOB in at.session_state else at
    assert imports.JOB not in at.session_state and not at.exception


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("step_3/train/traces.jsonl", ["step_3", "train", "traces.jsonl"]),
        ("../../etc/passwd", ["etc", "passwd"]),
        ("C:\\x\\y.jsonl", ["C_", "x", "y.jsonl"]),
        ("/.ssh/-rf", ["_.ssh", "_-rf"]),
        ("a\x00b\u202e.jsonl", ["a_b_.jsonl"]),
        ("", ["file"]),
        ("..", ["file"]),
        ("/".join("abcdefghijk"), list("defghijk")),
    ],
)
def test_names_lead_nowhere_else(name, parts):
    assert dropped.clean(name) == parts


def test_a_name_that_is_there_twice_is_said(tmp_path, monkeypatch):
    class File:
        name = "a/b.jsonl"

        def getbuffer(self):
            return memoryview(b"x")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(ValueError, match="twice"):
        dropped.keep([File(), File()])
    assert not list(tmp_path.iterdir())
    scratch, source = dropped.keep([File()])
    assert source == scratch / "a" / "b.jsonl" and source.read_bytes() == b"x"
