"""`python -m core import`, as a person meets it, on the examples of the formats."""

from __future__ import annotations

import json
import pickle
import re
import shutil
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.importers.formats import all_formats
from core.importers.manifest import read_manifest
from core.runs import list_runs
from core.store.pack import pack
from tests.core.shell import Shell

EXAMPLES = Path(__file__).with_name("formats") / "examples"


@pytest.fixture
def core(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setenv("COLUMNS", "200")
    return Shell(capsys)


@pytest.fixture
def trl(tmp_path: Path) -> Path:
    return shutil.copytree(EXAMPLES / "trl", tmp_path / "my trainer")


def test_import_tells_what_was_taken_and_what_fits(core: Shell, root: Path, trl: Path) -> None:
    assert core("import", trl) == 0
    (run,) = list_runs(root)
    assert core.out.startswith(f"{run.id}: 1 step, 4 rollouts taken from TRL")
    assert re.fullmatch(r"[0-9]{8}-[0-9]{6}-trl-my-trainer-[0-9a-f]{4}", run.id)
    assert "not in the files: response lengths\n" in core.out
    assert "not in the files: tokens, and what is known of each\n" in core.out
    assert "The advantages in the files were computed with ddof 1" in core.out
    assert re.search(r"grpo-ddof1 .* 100\.0 %", core.out)
    assert f"-- --runs {root}" in core.out
    assert core("check", run.id) == 0
    assert core("list") == 0 and "my trainer" in core.out
    assert core("show", run.id) == 0 and f"from TRL and Unsloth, {trl}" in core.out
    assert core.refuses("resume", run.id)
    assert core("import", trl) == 0
    assert core.out.startswith(f"{run.id}: nothing new in ")
    assert len(list_runs(root)) == 1


def test_import_again_takes_what_is_new(core: Shell, root: Path, trl: Path) -> None:
    assert core("import", trl, "--name", "mine") == 0
    (file,) = (trl / "completions").iterdir()
    rows = pq.read_table(file)
    for name, values in {"step": [4] * len(rows), "completion": ["a", "b", "c", "d"]}.items():
        i = rows.schema.get_field_index(name)
        rows = rows.set_column(i, name, pa.array(values, rows.schema.field(i).type))
    pq.write_table(rows, file.with_name("completions_00004.parquet"))
    assert core("import", trl) == 0
    (run,) = list_runs(root)
    assert run.name == "mine" and run.step == 2
    assert core.out.startswith(f"{run.id}: 1 step new or with new rollouts, 4 rollouts taken")


def test_every_format_is_listed(core: Shell) -> None:
    assert core("import", "--formats") == 0
    for form in all_formats().values():
        assert re.search(rf"^{form.name} +{re.escape(form.label)}: ", core.out, re.MULTILINE)


def test_json_says_the_same_to_programs(core: Shell, root: Path, trl: Path) -> None:
    assert core("import", trl, "--json", "--convention", "grpo-ddof0", "--format", "trl") == 0
    said = json.loads(core.out)
    assert (said["taken"], said["new_steps"], said["convention"]) == (4, 1, "grpo-ddof0")
    assert said["fits"][0]["name"] == "grpo-ddof1" and "length" in said["lacks"]
    assert Path(said["path"]).is_dir()


def test_what_cannot_be_imported_is_one_sentence(core: Shell, root: Path, trl: Path, tmp_path: Path) -> None:
    assert "is not there" in core.refuses("import", tmp_path / "nowhere")
    assert "did you mean trl" in core.refuses("import", trl, "--format", "tlr")
    assert "nothing there looks like verl" in core.refuses("import", trl, "--format", "verl")
    assert "did you mean rloo" in core.refuses("import", trl, "--convention", "rlo")
    assert "name a PATH" in core.refuses("import")
    bad = tmp_path / "rollouts.pkl"
    bad.write_bytes(pickle.dumps([1]))
    assert "pickle" in core.refuses("import", bad)
    with zipfile.ZipFile(tmp_path / "rollouts.zip", "w") as archive:
        archive.write(next((EXAMPLES / "verl").rglob("*.jsonl")), "rollouts/1.jsonl")
    assert "are to be unpacked, and their folder imported" in core.refuses("import", tmp_path / "rollouts.zip")
    assert list_runs(root) == []
    assert not root.exists() or not list(root.iterdir())


@pytest.mark.parametrize("example", sorted(path.name for path in EXAMPLES.iterdir()))
def test_every_example_imports_and_keeps_the_promise(core: Shell, root: Path, example: str) -> None:
    assert core("import", EXAMPLES / example) == 0, core.err
    (run,) = list_runs(root)
    assert core("check", run.id) == 0, core.err
    assert core("import", EXAMPLES / example) == 0
    assert "nothing new" in core.out


def test_progress_is_a_line_of_json_each_and_a_pack_names_no_folder(
    core: Shell, root: Path, trl: Path, tmp_path: Path
) -> None:
    assert core("import", trl, "--progress", "--name", "mine", "--origin", "trainer (dropped)") == 0
    *lines, last = map(json.loads, core.out.splitlines())
    assert {line["doing"] for line in lines} == {"reading", "writing"} and lines[-1]["done"] == lines[-1]["of"] == 1
    made = last["made"]
    assert (made["taken"], made["source"], made["label"]) == (4, "trainer (dropped)", "TRL and Unsloth")
    assert core("import", trl, "--progress", "--origin", "trainer (dropped)") == 0
    assert json.loads(core.out.splitlines()[-1])["made"]["id"] != made["id"]  # a copy that will be gone: never added to
    assert core("import", trl) == 0
    run = core.out.partition(":")[0]
    packed = pack(root / run, tmp_path / "packed")
    assert str(tmp_path) not in (packed / "import.json").read_text(encoding="utf-8")
    kept, own = read_manifest(packed), read_manifest(root / run)
    assert kept is not None and own is not None and own.source == str(trl)
    assert (kept.source, kept.places, kept.lacks, kept.sentence) == ("my trainer", {}, own.lacks, own.sentence)
    assert core("show", packed) == 0 and "from TRL and Unsloth, my trainer" in core.out


def test_a_tokenizer_that_is_none_is_refused_before_anything_is_read(core: Shell, root: Path, trl: Path) -> None:
    assert "there is no tokenizer.json" in core.refuses("import", trl, "--tokenizer", trl)
    assert not root.exists()


def test_a_run_of_another_lab_is_opened_and_takes_no_settings(
    core: Shell, root: Path, trl: Path, tmp_path: Path
) -> None:
    assert core("import", trl) == 0
    (run,) = list_runs(root)
    sent = tmp_path / "sent.zip"
    assert core("export", "run", run.id, "-o", sent) == 0
    shutil.rmtree(run.path)
    assert core("import", sent, "--progress") == 0
    (opened,) = list_runs(root)
    assert json.loads(core.out) == {"made": {"id": opened.id, "opened": True}}
    assert opened.imported and opened.name == run.name
    shutil.rmtree(opened.path)
    bundle = tmp_path / "colleague.zip"
    with zipfile.ZipFile(bundle, "w") as file:
        file.writestr("x", "y")
    assert "a whole run, which is opened as it is" in core.refuses("import", bundle, "--name", "mine")
    assert "colleague.zip" in core.refuses("import", bundle)
    assert list_runs(root) == []
