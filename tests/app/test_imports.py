"""The Import page: what is dropped or named, the look at it, the import in its own process, its report, and again."""

from __future__ import annotations

import io
import json
import shutil
import threading
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from streamlit.testing.v1 import AppTest

from app.urls import PAGES
from core.exporters.bundle import write_bundle
from core.exporters.cluster import EMBEDDED
from core.importers import jobs
from core.importers.formats import all_formats, find
from core.importers.jobs import Asked
from core.importers.write import bring_in
from core.runs import list_runs
from tests.app.conftest import texts
from tests.core.importers.formats.reading import write_lines
from tests.synthetic import make_run

EXAMPLES = Path(__file__).parents[1] / "core" / "importers" / "formats" / "examples"
HOSTILE = "<img src=x onerror=alert(1)> $$x$$ ![i](http://evil.example/i.png) \u202e \x00"
Open = Callable[..., AppTest]


def sits_at(monkeypatch: pytest.MonkeyPatch, address: str | None) -> None:
    """Who looks at the page: None is somebody at the lab's own machine."""
    monkeypatch.setattr("streamlit.runtime.context.ContextProxy.ip_address", property(lambda self: address))


@pytest.fixture(autouse=True)
def _own_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVANTAGE_LAB_LOCKS", str(tmp_path / "locks"))
    sits_at(monkeypatch, None)


def click(at: AppTest, key: str) -> AppTest:
    return next(one for one in at.button if one.key == key).click().run()


def until_ended(at: AppTest, root: Path) -> AppTest:
    """The page once the import that it shows has ended."""
    deadline = time.monotonic() + 60
    while (job := jobs.read(root, at.query_params["job"])) is not None and job.live:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return at.run()


def zipped(*names: str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name in names:
            archive.writestr(name, "{}")
    return packed.getvalue()


def labels(at: AppTest) -> list[str]:
    return [one.proto.label for one in at.get("page_link")]


def test_a_folder_is_dropped_looked_at_imported_and_opened(no_runs: Path, open_page: Open) -> None:
    at = open_page("imports", way="folder")
    assert "200 MB a file" in texts(at) and "AReaL" in texts(at) and not at.subheader
    folder = EXAMPLES / "trl"
    files = [(f"my trainer/{p.relative_to(folder)}", p.read_bytes(), "") for p in folder.rglob("*") if p.is_file()]
    at.file_uploader[0].set_value([*files, ("my trainer/notes.json", b"{}", "")]).run()
    said = texts(at)
    assert "Recognised as **TRL and Unsloth**: 1\u00a0file" in said and "2\u00a0files of “my trainer”" in said
    assert at.dataframe[0].value["response"].tolist() == ["5", "6", "5", "5"]
    assert "Not in the first rollouts: right answers" in said and not list_runs(no_runs)
    assert len(list((no_runs / jobs.FOLDER).iterdir())) == 1
    at.text_input(key="url:name").set_value("from a page").run()
    assert len(list((no_runs / jobs.FOLDER).iterdir())) == 1  # it is copied and looked at once
    at = until_ended(click(at, "import:start"), no_runs)
    (run,) = list_runs(no_runs)
    said = texts(at)
    assert not at.exception and (run.name, run.imported) == ("from a page", True)
    assert "**from a page**: 4\u00a0rollouts of 1\u00a0step, from TRL and Unsloth." in said
    assert "The advantages in the files were computed with ddof 1" in said and "Not in the files: right answers" in said
    assert {"Open in Tokens", "Live", "Polarity", "Compare"} <= set(labels(at))
    assert "my trainer \\(dropped\\)" in said and at.subheader[0].value == "Imported before"
    assert not any(one.key.startswith(("again:", "import:again")) for one in at.button)  # the copy is gone
    assert not list((no_runs / jobs.FOLDER).glob("*/files"))
    report = next(one for one in at.get("download_button") if one.proto.label == "The report")
    assert report is not None
    again = open_page("imports", job=at.query_params["job"])  # the report has an address
    assert "**from a page**: 4" in texts(again)
    click(again, "import:other")
    assert "job" not in again.query_params and again.file_uploader
    said = texts(open_page("runs"))
    assert "from TRL and Unsloth" in said and "What was taken" in labels(open_page("runs"))


def test_a_path_is_looked_at_when_asked_and_imported_again_for_what_is_new(
    no_runs: Path, open_page: Open, tmp_path: Path
) -> None:
    trainer = Path(shutil.copytree(EXAMPLES / "trl", tmp_path / "trainer"))
    at = open_page("imports", way="machine", path=str(trainer), convention="dr_grpo")
    assert "Recognised" not in texts(at)  # a link fills it in, and no more
    click(at, "import:look-inside")
    assert "Recognised as **TRL and Unsloth**" in texts(at)
    at = until_ended(click(at, "import:start"), no_runs)
    (run,) = list_runs(no_runs)
    assert "Recomputed with Dr\\. GRPO" in texts(at)
    (file,) = (trainer / "completions").iterdir()
    rows = pq.read_table(file)
    for name, values in {"step": [4] * len(rows), "completion": ["a", "b", "c", "d"]}.items():
        i = rows.schema.get_field_index(name)
        rows = rows.set_column(i, name, pa.array(values, rows.schema.field(i).type))
    pq.write_table(rows, file.with_name("completions_00004.parquet"))
    at = open_page("imports")
    at = until_ended(click(at, f"again:{run.id}"), no_runs)
    assert "4\u00a0rollouts of 1\u00a0step new or with new rollouts" in texts(at)
    assert any(one.key == "import:again" for one in at.button) and len(list_runs(no_runs)) == 1
    at = open_page("imports", way="machine", path=str(trainer))
    click(at, "import:look-inside")
    assert "These are in the run **trainer** already" in at.info[0].value


def test_the_file_of_every_page_is_called_as_its_address() -> None:
    """Streamlit knows no other name for a deep link in the first session after a start."""
    assert {Path(file).stem: file for file in PAGES.values()} == PAGES


def test_what_cannot_be_taken_is_one_sentence_each(no_runs: Path, open_page: Open, tmp_path: Path) -> None:
    at = open_page("imports")
    for name, content, words in (
        ("model.pt", b"\x80\x04", "Pickles"),
        ("rollouts.log", b"\x80\x04.", "reading a pickle runs code"),
        ("notes.txt", b"hello", "has no rollouts of a known format"),
        ("empty.jsonl", b"", "has no rollouts of a known format: it is empty"),
        (
            "adapter.zip",
            zipped("run-adapter/README.md", "run-adapter/adapter_config.json"),
            "an adapter without its run",
        ),
        ("rollouts.zip", zipped("1.jsonl"), "are to be unpacked, and their folder imported"),
    ):
        at.file_uploader[0].set_value([(name, content, "")]).run()
        assert jobs.FOLDER not in texts(at), name  # where the copy lies is nobody's matter
        assert not at.exception and len(at.error) == 1 and words in at.error[0].value.replace("\\", ""), name
        assert not any(one.key == "import:start" for one in at.button)
    for path in ("/no/such/folder", "x" * 5000, "\x00", str(tmp_path / "a.pkl")):
        at = open_page("imports", way="machine")
        at.text_input(key="url:path").set_value(path).run()
        assert not at.exception and len(at.error) == 1 and "Something went wrong" not in at.error[0].value, path
    at = open_page("imports", way="machine", format="verl", convention="evil")
    at.text_input(key="url:path").set_value(str(EXAMPLES / "trl")).run()
    assert "nothing there looks like verl" in at.error[0].value
    at.selectbox(key="url:format").set_value("auto").run()
    assert "Recognised as" in texts(at) and not at.error
    at.text_input(key="url:path").set_value(str(EXAMPLES / "open_instruct")).run()
    at.text_input(key="url:tokenizer").set_value(str(EMBEDDED)).run()
    assert "response" in at.dataframe[0].value and not at.error
    at.text_input(key="url:tokenizer").set_value("/nowhere").run()
    assert "there is no tokenizer\\.json" in at.error[0].value


def test_hostile_names_and_texts_stay_texts(no_runs: Path, open_page: Open, tmp_path: Path) -> None:
    row = {"input": HOSTILE, "output": HOSTILE, "gts": HOSTILE, "score": 1.0, "step": 1, HOSTILE: 1.0}
    lines = write_lines(tmp_path / "1.jsonl", [row, {**row, "score": "no number"}]).read_bytes() + b"{torn"
    at = open_page("imports")
    at.file_uploader[0].set_value([(f"../{HOSTILE}/{HOSTILE}.jsonl", lines, "")]).run()
    assert not at.exception and "Recognised as **verl**" in texts(at)
    assert [path.name for path in no_runs.iterdir()] == [jobs.FOLDER]
    at = until_ended(click(at, "import:start"), no_runs)
    said = texts(at)
    assert not at.exception and not at.error and "1\u00a0row not taken, and why" in [one.label for one in at.expander]
    assert "score is no number" in said and "is torn" in said
    for page in (at, open_page("runs"), open_page("imports")):
        plain = texts(page)
        assert "<img" not in plain.replace("\\<", "") and "![i](" not in plain and "$$x$$" not in plain
        assert "\u202e" not in plain and "\x00" not in plain
    (run,) = list_runs(no_runs)
    assert run.path.parent == no_runs


def test_states_of_an_import_and_a_zip_that_is_no_bundle(no_runs: Path, open_page: Open, tmp_path: Path) -> None:
    big = write_lines(tmp_path / "big.jsonl", [{"input": "x" * 400, "output": "y", "score": 1.0, "step": 1}] * 40_000)
    job = jobs.start(no_runs, Asked(str(big)))
    held = psutil.Process(json.loads((no_runs / jobs.FOLDER / job / jobs.ASKED).read_text())["pid"])
    held.suspend()  # so that it is on its way for as long as it is looked at
    at = open_page("imports")
    assert "big\\.jsonl” is running" in texts(at)
    at = click(at, f"show:{job}")
    assert at.query_params["job"] == job and at.get("progress")
    threading.Timer(1.0, held.resume).start()
    click(at, "import:stop")
    at = until_ended(at, no_runs)
    assert "was stopped; nothing of it stays" in at.info[0].value and list_runs(no_runs) == []
    assert "There is no import “0123456789ab” any more" in open_page("imports", job="0123456789ab").warning[0].value
    at = open_page("imports")
    at.file_uploader[0].set_value([("colleague.zip", zipped("../../evil"), "application/zip")]).run()
    assert "is no bundle" in at.error[0].value and not any(one.key == "import:start" for one in at.button)


def test_imported_runs_without_a_manifest_or_with_anybodys_are_listed(no_runs: Path, open_page: Open) -> None:
    found = find(EXAMPLES / "rllb")
    one, other = (bring_in(no_runs, all_formats()[found.format], found, name=name).path for name in ("one", HOSTILE))
    (one / "import.json").write_text("{", encoding="utf-8")
    data = json.loads((other / "import.json").read_text(encoding="utf-8"))
    evil = data | {"source": HOSTILE, "label": HOSTILE, "sentence": HOSTILE, "notes": [HOSTILE], "lacks": [HOSTILE]}
    (other / "import.json").write_text(json.dumps(evil), encoding="utf-8")
    for page in ("imports", "runs"):
        at = open_page(page)
        said = texts(at)
        assert not at.exception and "from elsewhere" in said and "<img" not in said.replace("\\<", "")
        assert not any((button.key or "").startswith("again:") for button in at.button)


def test_only_who_sits_at_the_machine_names_its_files(
    no_runs: Path, open_page: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = Path(shutil.copytree(EXAMPLES / "trl", tmp_path / "trainer"))
    found = find(trainer)
    run = bring_in(no_runs, all_formats()[found.format], found).path
    sits_at(monkeypatch, "10.0.0.7")
    at = open_page("imports", run=run.name, way="machine", path=str(trainer), tokenizer=str(EMBEDDED))
    assert not at.exception and not at.text_input and "imported by those who sit at it" in texts(at)
    assert not any((one.key or "").startswith(("again:", "import:")) for one in at.button)
    at = open_page("imports", tokenizer="/etc")
    (file,) = (trainer / "completions").iterdir()
    at.file_uploader[0].set_value([(file.name, file.read_bytes(), "")]).run()
    assert not at.error and "Recognised as" in texts(at) and all(one.key != "url:tokenizer" for one in at.text_input)


def test_the_report_of_an_imported_run_has_an_address(no_runs: Path, open_page: Open, tmp_path: Path) -> None:
    row = {"input": HOSTILE, "output": "3", "score": 1.0, "step": 1}
    path = write_lines(tmp_path / "1.jsonl", [row, {**row, "score": "no number"}])
    found = find(path)
    run = bring_in(no_runs, all_formats()[found.format], found, name="mine").path
    at = open_page("imports", run=run.name)
    said = texts(at)
    assert "1\u00a0step, 1\u00a0rollout, no tokens; from verl: " in said and "score is no number" in said
    assert "Open in Tokens" in labels(at) and not at.exception
    assert at.query_params["run"] == click(at, f"taken:{run.name}").query_params["run"]
    assert any(one.proto.label == "The report" for one in at.get("download_button"))
    assert "There is no run “zork”" in open_page("imports", run="zork").warning[0].value
    (run / "import.json").write_text("{")
    assert "does not say where it came from" in texts(open_page("imports", run=run.name))


def test_a_run_that_a_colleague_sent_is_opened(no_runs: Path, open_page: Open, tmp_path: Path) -> None:
    write_bundle(make_run(tmp_path, "theirs", steps=2, prompts=2, group_size=2), tmp_path / "sent.zip")
    at = open_page("imports")
    at.file_uploader[0].set_value([("sent.zip", (tmp_path / "sent.zip").read_bytes(), "application/zip")]).run()
    assert [one.label for one in at.button if one.key == "import:start"] == ["Open it"]
    at = until_ended(click(at, "import:start"), no_runs)
    assert (
        not at.exception and "Opened **theirs**" in texts(at) and "holds the run **theirs** of another lab" in texts(at)
    )
    (run,) = list_runs(no_runs)
    assert run.imported and not (no_runs / jobs.FOLDER / at.query_params["job"] / jobs.FILES).exists()
    assert "sent by another lab" in texts(open_page("runs"))
    assert "sent by another lab · 2\u00a0steps · just now" in texts(open_page("imports"))
    at = open_page("imports")
    at.file_uploader[0].set_value([("sent.zip", (tmp_path / "sent.zip").read_bytes(), "application/zip")]).run()
    at = until_ended(click(at, "import:start"), no_runs)
    assert "it is open already" in at.error[0].value and len(list_runs(no_runs)) == 1
