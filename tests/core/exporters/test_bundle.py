"""A run is sent as one file and opened in another lab: all of it arrives, nothing of the machine, and it never runs."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from safetensors.numpy import load_file

from core.cli import main
from core.config import ConfigError, parse, read_run
from core.exporters.bundle import BundleError, open_bundle, origin, write_bundle
from core.importers.formats import all_formats, find
from core.importers.manifest import read_manifest
from core.importers.write import bring_in
from core.runs import RunError, check_resume, launch, machine
from core.runs.create import create_runs
from core.runs.folders import run_info
from core.store import check, open_runs, pack, schema
from core.store.queries.tokens import steps_with_tokens
from tests.core.exporters.bundles import RUN, SECRET, TINY, files_of, send
from tests.synthetic import make_run

UNIPO = Path(__file__).parents[1] / "importers" / "formats" / "examples" / "unipo"


@pytest.fixture(autouse=True)
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder of runs: the colleague's."""
    monkeypatch.setattr("core.exporters.bundle.open.EXAMPLES", tmp_path / "no examples")
    monkeypatch.setenv("ADVANTAGE_LAB_LOCKS", str(tmp_path / "locks"))
    return tmp_path / "runs"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return send(tmp_path_factory.mktemp("mine"))


@pytest.fixture(scope="module")
def sent(run: Path) -> Path:
    return write_bundle(run, run.parent / "sent.zip")


def everything(path: Path, table: str) -> pd.DataFrame:
    with open_runs([path]) as lab:
        rows = lab.df(f"SELECT * EXCLUDE (run) FROM {table}").astype(str)
    return rows.sort_values(list(rows.columns), ignore_index=True)


def test_all_of_it_arrives(run: Path, sent: Path, root: Path) -> None:
    opened = open_bundle(sent, root)
    assert [path.name for path in root.iterdir()] == [RUN] and opened == root / RUN
    assert sorted(path.name for path in opened.iterdir()) == [
        "adapter", "config.yaml", "log.txt", "opened.json", "rollouts.duckdb", "schema.json", "status.json",
    ]  # fmt: skip
    for table in schema.TABLES:
        before = everything(run, table)
        assert len(before)
        pd.testing.assert_frame_equal(everything(opened, table), before)
    report = check(opened)
    assert report.ok, report.problems
    assert report.recomputed is None and report.tokens and report.largest_difference < 1e-6
    before, after = run_info(run), run_info(opened)
    assert (after.state, after.step, after.total, after.created, after.reward, after.pass_at_1) == (
        before.state, before.step, before.total, before.created, before.reward, before.pass_at_1,
    )  # fmt: skip
    assert after.imported and after.sealed and not after.host
    assert (opened / "log.txt").read_text() == "07:57:01  training from step 0 to 3\n"
    weights = "adapter/adapter_model.safetensors"
    name = "base_model.model.layers.0.q_proj.lora_A.weight"
    assert (load_file(opened / weights)[name] == load_file(run / weights)[name]).all()
    assert json.loads((opened / "adapter" / "made_with.json").read_text()) == {"lab": "0.1.0"}
    came = origin(opened)
    assert came and came.run == RUN and origin(run) is None


def test_nothing_of_the_machine_leaves_it(run: Path, sent: Path) -> None:
    assert SECRET in (run / "config.yaml").read_text() and SECRET in (run / "log.txt").read_text()
    files = files_of(sent)
    assert {"config.yaml", "tables/tokens.parquet", "adapter/adapter_model.safetensors"} <= set(files)
    status = json.loads(files["status.json"])
    assert not {"host", "boot_id", "pid", "pid_started"} & set(status)
    for name, data in files.items():
        for word in (SECRET, SECRET.replace("-", "_"), machine.boot_id(), str(run.parent)):
            assert word.encode() not in data, (name, word)
    assert json.loads(files["adapter/adapter_config.json"])["base_model_name_or_path"] == "small-model"
    assert write_bundle(run, run.parent / "again.zip").read_bytes() == sent.read_bytes()
    with pytest.raises(BundleError, match=r"again\.zip is already there"):
        write_bundle(run, run.parent / "again.zip")


def test_it_never_runs_and_names_no_code(sent: Path, root: Path) -> None:
    opened = open_bundle(sent, root)
    config = read_run(opened / "config.yaml")
    assert config.imported and not config.task.verify.function
    assert (config.model, config.task.file.path) == ("small-model", "sums.jsonl")
    for act in (launch, check_resume, lambda path: check_resume(path, 9)):
        with pytest.raises(RunError, match="came from elsewhere"):
            act(opened)
    with pytest.raises(ConfigError, match="came from elsewhere"):
        create_runs(root, parse({**config.model_dump(), "name": "x"}))
    adapter = json.loads((opened / "adapter" / "adapter_config.json").read_text())
    assert "auto_mapping" not in adapter and adapter["target_modules"] == ["q_proj", "v_proj"]


def test_twice_says_so(run: Path, sent: Path, root: Path) -> None:
    opened = open_bundle(sent, root)
    copy = shutil.copyfile(sent, root.parent / "under another name.zip")
    with pytest.raises(BundleError, match=rf"{RUN} is this very bundle: it is open already"):
        open_bundle(copy, root)
    with pytest.raises(BundleError, match=rf"{RUN} is here already: it is the run that this bundle was made of"):
        open_bundle(sent, run.parent)
    again = write_bundle(opened, root.parent / "passed on.zip")
    assert open_bundle(again, root).name == f"{RUN}-2", "another bundle, since it says that it was opened"
    other = root.parent / "other"
    make_run(other, RUN, **TINY)
    assert open_bundle(sent, other).name == f"{RUN}-2"
    assert run_info(other / RUN).imported is False


def test_a_pack_stays_one_and_says_which_tokens_it_has(run: Path, root: Path, tmp_path: Path) -> None:
    packed = pack(run, tmp_path / "packs" / "small", token_steps=2)
    opened = open_bundle(write_bundle(packed, tmp_path / "a.zip"), root)
    assert sorted(path.name for path in opened.iterdir())[-1] == "tables"
    report, before = check(opened), check(packed)
    assert report.ok and report.recomputed == before.recomputed and report.tokens == before.tokens
    with open_runs([opened]) as lab:
        assert len(steps_with_tokens(lab, "small")) == 2


@pytest.mark.parametrize(("state", "words"), [("stopped", ""), ("running", "is running: send it once it has ended")])
def test_a_run_is_sent_once_it_has_ended(state: str, words: str, root: Path, tmp_path: Path) -> None:
    path = make_run(tmp_path / "mine", "short", state=state, **TINY)
    if words:
        with pytest.raises(BundleError, match=words):
            write_bundle(path, tmp_path / "a.zip")
    else:
        opened = open_bundle(write_bundle(path, tmp_path / "a.zip"), root)
        assert run_info(opened).state == "stopped" and check(opened).ok
    empty = make_run(tmp_path / "mine", "empty", state="queued", **TINY)
    (empty / "status.json").write_text(json.dumps({"state": "failed", "error": "no room in /home"}))
    with pytest.raises(BundleError, match=r"the run empty: empty: no steps to pack"):
        write_bundle(empty, tmp_path / "b.zip")
    assert not list(tmp_path.glob(".*")) and not (tmp_path / "b.zip").exists()


def test_an_imported_run_keeps_what_is_known_of_it(root: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    found = find(UNIPO)
    made = bring_in(mine, all_formats()["unipo"], found)
    opened = open_bundle(write_bundle(made.path, tmp_path / "a.zip"), root)
    manifest = read_manifest(opened)
    assert manifest == replace(made.manifest.shareable(), places={}) and manifest.source == "unipo"
    assert "from UNIPO" in (opened / "log.txt").read_text()
    assert check(opened).ok and check(opened).rollouts == 4


def test_on_the_command_line(run: Path, root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "a.zip"
    assert main(["export", "run", str(run), "-o", str(file)]) == 0
    assert f"python -m core open {file.name}" in capsys.readouterr().out
    assert main(["open", str(file), "--runs", str(root)]) == 0
    assert f"{RUN}: opened from a.zip" in capsys.readouterr().out
    assert main(["show", RUN, "--runs", str(root)]) == 0
    assert f"opened from a bundle of {RUN}" in capsys.readouterr().out
    assert main(["open", str(file), "--runs", str(root), "--json"]) == 2
    assert "it is open already" in capsys.readouterr().err
    assert main(["open", str(tmp_path / "none.zip"), "--runs", str(root)]) == 2
    assert "none.zip: no such file" in capsys.readouterr().err
