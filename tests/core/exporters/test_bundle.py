"""A run as one file: what a colleague gets is whole and names no machine, and nothing hostile in one gets through."""

from __future__ import annotations

import io
import json
import stat
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.cli import main
from core.exporters import bundle
from core.exporters.bundle import BundleError, open_bundle, write_bundle
from core.runs import RunError, resume
from core.runs.folders import run_info
from core.store import StoreError, open_runs
from core.store.check import check
from tests.synthetic import make_run

TINY = {"steps": 4, "prompts": 2, "group_size": 4}


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with an adapter, as one file."""
    root = tmp_path_factory.mktemp("secret-place")
    path = make_run(root, "mine", "a3po", state="stopped", model=str(root / "a-model"), **TINY)
    (path / "adapter").mkdir()
    (path / "adapter" / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(root), "r": 4}))
    (path / "adapter" / "adapter_model.safetensors").write_bytes(b"weights")
    write_bundle(path, root / "mine.zip")
    return root / "mine.zip"


def entries(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def archive(place: Path, content: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(place, "w", zipfile.ZIP_DEFLATED) as made:
        for name, data in content.items():
            made.writestr(name, data)
    return place


def test_it_opens_whole_and_is_only_read(sent: Path, tmp_path: Path) -> None:
    path = open_bundle(sent, tmp_path / "theirs")
    assert path == tmp_path / "theirs" / "mine" and [one.name for one in path.parent.iterdir()] == ["mine"]
    assert (path / "adapter" / "adapter_model.safetensors").read_bytes() == b"weights"
    report = check(path)
    assert not report.problems and report.steps == 4 and report.tokens > 0 and report.largest_difference < 1e-6
    info = run_info(path)
    assert info.packed and info.state == "stopped"
    with pytest.raises(RunError, match="mine"):
        resume(path)
    with pytest.raises(BundleError, match="the run mine is here already"):
        open_bundle(sent, tmp_path / "theirs")


def test_every_number_arrives(sent: Path, tmp_path: Path) -> None:
    path = open_bundle(sent, tmp_path)
    columns = "advantage, base_advantage, sampler_logprob, entropy"
    query = f'SELECT {columns} FROM tokens ORDER BY step, split, "group", rollout, position'
    with open_runs([path]) as theirs, open_runs([sent.with_name("mine")]) as mine:
        found, expected = theirs.arrays(query), mine.arrays(query)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)


def test_it_names_nothing_of_the_machine(sent: Path) -> None:
    for name, data in entries(sent).items():
        assert b"secret-place" not in data, name
    assert json.loads(entries(sent)["mine/adapter/adapter_config.json"]) == {
        "base_model_name_or_path": "a-model", "r": 4
    }  # fmt: skip
    assert sent.read_bytes() == sent.read_bytes()


def test_a_long_run_sends_the_tokens_of_some_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_run(tmp_path, "long", steps=8, prompts=2, group_size=4)
    with open_runs([path]) as lab:
        tokens = int(lab.arrays("SELECT count(*) AS n FROM tokens")["n"][0])
    monkeypatch.setattr(bundle, "TOKENS", tokens // 2)
    write_bundle(path, tmp_path / "long.zip")
    with open_runs([open_bundle(tmp_path / "long.zip", tmp_path / "theirs")]) as lab:
        steps, kept = (
            lab.arrays(f"SELECT count(DISTINCT step) AS n FROM {table}")["n"][0] for table in ("groups", "tokens")
        )
    assert steps == 9 and 1 <= kept <= 5


def test_only_a_run_that_has_ended_is_written(tmp_path: Path) -> None:
    running = make_run(tmp_path, "running", state="running", **TINY)
    with pytest.raises(StoreError, match="this one is running"):
        write_bundle(running, tmp_path / "x.zip")
    assert [one.name for one in tmp_path.iterdir()] == ["running"]


def _text(name: str, change: Callable[[str], str]) -> Callable[[dict[str, bytes]], None]:
    def apply(content: dict[str, bytes]) -> None:
        content[f"mine/{name}"] = change(content[f"mine/{name}"].decode()).encode()

    return apply


def _add(name: str, data: bytes = b"x") -> Callable[[dict[str, bytes]], None]:
    return lambda content: content.update({name: data})


def _other_type(content: dict[str, bytes]) -> None:
    name = "mine/tables/metrics.parquet"
    table = pq.read_table(io.BytesIO(content[name]))
    table = table.set_column(table.schema.get_field_index("reward"), "reward", pa.array(["x"] * len(table)))
    out = io.BytesIO()
    pq.write_table(table, out)
    content[name] = out.getvalue()


ATTACKS: dict[str, tuple[Callable[[dict[str, bytes]], None], str]] = {
    "a way out": (_add("mine/../../evil.txt"), "which no run of the lab has"),
    "a way out at once": (_add("../evil.txt"), "which no run of the lab has"),
    "an absolute name": (_add("/etc/evil"), "which no run of the lab has"),
    "a drive": (_add("C:\\evil"), "which no run of the lab has"),
    "backslashes": (_add("mine\\tables\\tokens.parquet"), "which no run of the lab has"),
    "a database": (_add("mine/rollouts.duckdb"), "which no run of the lab has"),
    "a pickle": (_add("mine/checkpoint/state.pt"), "which no run of the lab has"),
    "code": (_add("mine/reward.py"), "which no run of the lab has"),
    "two runs": (_add("other/config.yaml"), "which no run of the lab has"),
    "a hidden name": (_add(".mine/config.yaml"), "which no run of the lab has"),
    "an ending NUL": (_add("mine/log.txt\x01"), "which no run of the lab has"),
    "a large text": (_add("mine/log.txt", b"a" * (5 * 2**20)), "larger than a run may be"),
    "no config": (lambda content: content.pop("mine/config.yaml"), "config.yaml is missing"),
    "no list": (lambda content: content.pop("mine/tables/pack.json"), "pack.json is missing"),
    "a table fewer": (lambda content: content.pop("mine/tables/tokens.parquet"), "tables cannot be read"),
    "a damaged table": (_add("mine/tables/tokens.parquet", b"PAR1junkPAR1"), "tables cannot be read"),
    "a column of texts": (_other_type, "tables cannot be read"),
    "an odd config": (_text("config.yaml", lambda text: text + "\nsteps: [1"), "config.yaml is none of a run"),
    "an object in YAML": (_add("mine/config.yaml", b"x: !!python/object/apply:os.system [ls]"), "none of a run"),
    "a run that lives": (_text("status.json", lambda text: text.replace("stopped", "running")), "has ended"),
    "an odd status": (_add("mine/status.json", b"[1"), "has ended"),
    "an odd import": (_add("mine/import.json", b"{}"), "not the manifest of an import"),
}  # fmt: skip


@pytest.mark.parametrize(("change", "words"), ATTACKS.values(), ids=ATTACKS)
def test_what_is_no_run_is_refused_and_leaves_nothing(
    sent: Path, tmp_path: Path, change: Callable[[dict[str, bytes]], None], words: str
) -> None:
    content = entries(sent)
    change(content)
    runs = tmp_path / "two" / "deep" / "runs"  # "../.." of a run there is still this test's own folder
    file = archive(tmp_path / "sent.zip", content)
    with pytest.raises(BundleError, match=rf"^sent\.zip: .*{words}") as caught:
        open_bundle(file, runs)
    assert "\n" not in str(caught.value) and str(tmp_path) not in str(caught.value)
    assert not list(runs.rglob("*")) and not list(tmp_path.rglob("*evil*")) and not Path("/etc/evil").exists()


def test_a_link_a_twin_and_a_size_that_lies_are_refused(sent: Path, tmp_path: Path) -> None:
    content = entries(sent)
    file = archive(tmp_path / "link.zip", {name: data for name, data in content.items() if "log" not in name})
    with zipfile.ZipFile(file, "a") as made:
        link = zipfile.ZipInfo("mine/log.txt")
        link.external_attr = (stat.S_IFLNK | 0o777) << 16
        made.writestr(link, "/etc/passwd")
    with pytest.raises(BundleError, match="a link or a device"):
        open_bundle(file, tmp_path / "runs")
    with pytest.warns(UserWarning, match="Duplicate"), zipfile.ZipFile(archive(file, content), "a") as made:
        made.writestr("mine/log.txt", "again")
    with pytest.raises(BundleError, match=r"log\.txt twice"):
        open_bundle(file, tmp_path / "runs")
    raw = archive(file, content | {"mine/log.txt": b"a" * 3_000_000}).read_bytes()
    lying = raw.replace((3_000_000).to_bytes(4, "little"), (10).to_bytes(4, "little"))
    file.write_bytes(lying)
    with pytest.raises(BundleError, match=r"link\.zip: "):
        open_bundle(file, tmp_path / "runs")
    assert not list(tmp_path.rglob("runs/*"))


@pytest.mark.parametrize("data", [b"", b"PK\x03\x04", b"not an archive", b"PK\x05\x06" + b"\0" * 18])
def test_what_is_no_archive_is_said_to_be_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.zip").write_bytes(data)
    with pytest.raises(BundleError, match=r"^x\.zip: not "):
        open_bundle(tmp_path / "x.zip", tmp_path / "runs")


def test_damage_anywhere_gives_a_sentence_or_the_run(sent: Path, tmp_path: Path) -> None:
    """Sixty random changes of a byte, or cuts."""
    raw, draw = sent.read_bytes(), np.random.default_rng(0)
    for i in range(60):
        place, byte = int(draw.integers(len(raw))), int(draw.integers(256))
        damaged = raw[:place] if i % 4 == 0 else raw[:place] + bytes([byte]) + raw[place + 1 :]
        (tmp_path / "x.zip").write_bytes(damaged)
        root = tmp_path / f"runs{i}"
        try:
            assert open_bundle(tmp_path / "x.zip", root).is_dir()
        except BundleError:
            assert not root.exists() or not list(root.iterdir())


def test_the_command_line_sends_and_opens(sent: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine, theirs, file = str(sent.parent), str(tmp_path / "theirs"), str(tmp_path / "sent.zip")
    assert main(["export", "run", "mine", "-o", file, "--runs", mine]) == 0
    assert main(["export", "run", "mine", "-o", file, "--runs", mine]) == 2
    assert "is already there" in capsys.readouterr().err
    assert main(["open", file, "--runs", theirs]) == 0
    assert main(["check", "mine", "--runs", theirs]) == 0
    assert main(["open", file, "--runs", theirs]) == 2
    assert "the run mine is here already" in capsys.readouterr().err
