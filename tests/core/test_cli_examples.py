"""`python -m core examples`: trains for real, packs, and puts the result in place of what was there."""

from __future__ import annotations

import getpass
import json
import socket
import tempfile
from pathlib import Path

import pytest

from core.cli import examples as command
from core.runs.folders import REPO, get_run, list_runs
from core.store import check, open_runs
from tests.core.runs.conftest import root  # noqa: F401
from tests.core.shell import Shell
from tests.synthetic import make_run

TINY = """
name: Tiny
look_for: nothing much
method: adora_attenuate
seeds: [4, 5]
steps: 3
prompts_per_step: 2
group_size: 4
task: {pool_size: 4}
evaluate: {every: 2, prompts: 4, rollouts: 2, k: 2, probes: 2}
"""


@pytest.fixture
def core(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setattr("core.cli.follow.POLL_S", 0.05)
    return Shell(capsys)


def test_examples_are_trained_packed_and_put_in_place(
    core: Shell, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch  # noqa: F811
) -> None:  # fmt: skip
    config, out, scratch = tmp_path / "tiny.yaml", tmp_path / "shipped", tmp_path / "scratch"
    config.write_text(TINY)
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    monkeypatch.setattr(command, "FURTHER_SEEDS", 2)
    mine = make_run(out, "example-kept-s0", steps=1, prompts=1, group_size=2)  # not packed, so not the command's
    old = out / "example-old-s0" / "tables"
    old.mkdir(parents=True)
    assert core("examples", config, "--out", out) == 0
    assert "Look inside" not in core.out
    assert not old.exists() and mine.exists() and not list(scratch.iterdir())
    kept = {"example-adora-attenuate-s4": 4, "example-adora-attenuate-s5": 2}
    assert sorted(path.name for path in out.iterdir()) == [*kept, mine.name]
    for name, steps in kept.items():
        assert f"{name}: 0." in core.out
        path = out / name
        report = check(path)
        assert report.ok and report.steps == 4 and len(report.recomputed) == steps
        with open_runs([path]) as lab:
            assert lab.rows("SELECT count(*) AS n FROM positions")[0]["n"] > 0
        said = "".join(file.read_text() for file in path.iterdir() if file.is_file())
        for secret in (str(tmp_path), str(REPO), f'"{socket.gethostname()}"', f"/{getpass.getuser()}/"):
            assert secret not in said
    monkeypatch.setattr("core.runs.folders.EXAMPLES", out)
    infos = [info for info in list_runs(root) if info.packed]
    assert {info.experiment for info in infos} == {"recorded-examples"} and len(infos) == 2
    for info in infos:
        assert info.example and (info.state, info.step, info.look_for) == ("finished", 3, "nothing much")


def test_an_example_can_only_be_looked_at(core: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from core.store import pack

    out = tmp_path / "shipped"
    pack(make_run(tmp_path, "run", steps=2, prompts=2, group_size=2), out / "example-grpo-s0")
    for module in ("folders", "control"):
        monkeypatch.setattr(f"core.runs.{module}.EXAMPLES", out)
    name = get_run(tmp_path / "none", "example-grpo-s0").id
    only = "example-grpo-s0 is a shipped example: it can be looked at, not changed"
    assert core.refuses("delete", name, "--yes") == only
    assert core.refuses("resume", name) == only
    assert core.refuses("resume", name, "--to", "9") == only
    assert "example-grpo-s0 is packed" in core.refuses("seal", name)
    assert "is not running" in core.refuses("stop", name)
    assert core("check", name) == 0
    assert "recomputed at the steps whose tokens were kept (0, 1, 2)" in core.out
    assert core("list") == 0
    assert "These are the recorded examples" in core.out
    assert core("sql", "SELECT max(step) AS last FROM metrics", name, "--json") == 0
    assert json.loads(core.out) == [{"last": 1}]
    assert core("sql", "SELECT DISTINCT run FROM metrics", "--runs", tmp_path / "none", "--json") == 0
    assert json.loads(core.out) == [{"run": name}]


def test_what_cannot_be_recorded_is_one_sentence(core: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    twice = tmp_path / "twice.yaml"
    twice.write_text("name: Twice\nmethods: [{name: a3po}, {name: a3po, set: {rho_positive: 3.0}}]\nsteps: 1\n")
    out = tmp_path / "out"
    assert "example-a3po-s0: two of the runs would have this id" in core.refuses("examples", twice, "--out", out)
    assert not out.exists()
    assert "nope.yaml" in core.refuses("examples", tmp_path / "nope.yaml", "--out", out)
    packs = tmp_path / "packs" / "example-x-s0"
    packs.mkdir(parents=True)
    (packs / "large").write_bytes(bytes(2000))
    monkeypatch.setattr(command, "MOST_BYTES", 1000)
    with pytest.raises(command.RunError, match=r"take 0\.00 MB of at most 0\.00 MB: record fewer"):
        command._replace(packs.parent, out)
    assert not out.exists()


def test_an_example_that_could_not_be_put_in_place_is_refused_before_training(core: Shell, tmp_path: Path) -> None:
    config, out = tmp_path / "tiny.yaml", tmp_path / "out"
    config.write_text(TINY)
    mine = make_run(out, "example-adora-attenuate-s5", steps=1, prompts=1, group_size=2)
    assert f"{mine}: already there, and no packed run" in core.refuses("examples", config, "--out", out)
    assert [path.name for path in out.iterdir()] == [mine.name]
    assert "is a file: name a folder" in core.refuses("examples", config, "--out", config)


@pytest.mark.parametrize("after", range(5))
def test_no_example_is_lost_where_replacing_them_is_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    packs, out, names = tmp_path / "packs", tmp_path / "out", [f"example-{name}-s0" for name in "abc"]
    for folder, written in ((packs, "new"), (out, "old")):
        for name in names:
            (folder / name / "tables").mkdir(parents=True)
            (folder / name / "config.yaml").write_text(written)
    done, rename = [], Path.rename

    def interrupted(self: Path, target: Path) -> Path:
        done.append(target)
        if len(done) == after + 1:
            raise KeyboardInterrupt
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        command._replace(packs, out)
    assert sorted(path.name for path in out.iterdir()) == names
    written = [(out / name / "config.yaml").read_text() for name in names]
    assert written == ["new"] * (after // 2) + ["old"] * (3 - after // 2)
