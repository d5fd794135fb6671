"""A run as UNIPO's JSON: strict, in its shape, and what is imported of it is what the run had."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from core.advantage import Loss
from core.cli import main
from core.exporters.adapter import ExportError
from core.exporters.unipo import objective, write_unipo
from core.importers.formats import all_formats, find
from core.importers.manifest import read_manifest
from core.importers.write import bring_in
from core.store import check, open_runs
from tests.synthetic import make_run

EXAMPLES = Path(__file__).parents[1] / "importers" / "formats" / "examples"
KEYS = '"group", rollout'


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVANTAGE_LAB_LOCKS", str(tmp_path / "locks"))


def strict(path: Path) -> dict:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    return json.loads(path.read_text(encoding="ascii"), parse_constant=refuse)


def imported(file: Path, root: Path) -> Path:
    return bring_in(root, all_formats()["unipo"], find(file)).path


def test_import_gives_the_run_back(tmp_path: Path) -> None:
    run = make_run(tmp_path, "mine", method="grpo", steps=3, prompts=3, group_size=4, gap=0.2)
    assert write_unipo(run, tmp_path / "a.json") == (3, 36)
    again = imported(tmp_path / "a.json", tmp_path / "runs")
    named = {
        "rollouts": "prompt_id, text, reward, correct, length, truncated",
        "tokens": "position, token_id, token, sampler_logprob, trainer_logprob, ref_logprob, entropy",
    }
    with open_runs([run]) as before, open_runs([again]) as after:
        for table, columns in named.items():
            query = f"SELECT step, {KEYS}, {columns} FROM {table} WHERE split = 'train' ORDER BY ALL"
            expected = before.rows(query)
            assert expected and after.rows(query) == expected, table
        query = f'SELECT step, {KEYS}, prompt, answer FROM groups JOIN rollouts USING (step, split, "group", prompt_id)'
        query += " WHERE split = 'train' ORDER BY ALL"
        assert after.rows(query) == before.rows(query)
        # what was trained on, the importer's column, and what the lab recomputes here
        trained = before.arrays(f"SELECT advantage FROM tokens WHERE split = 'train' ORDER BY step, {KEYS}, position")
        other = after.arrays(f"SELECT advantage, imported_advantage FROM tokens ORDER BY step, {KEYS}, position")
        assert len(np.unique(trained["advantage"])) > 3
        np.testing.assert_array_equal(other["imported_advantage"], trained["advantage"])
        np.testing.assert_allclose(other["advantage"], trained["advantage"], atol=1e-6)
    manifest = read_manifest(again)
    assert manifest and not manifest.refused
    assert manifest.sentence.startswith("The advantages in the files were computed with ddof 1")
    assert check(again).ok


def test_it_has_unipos_shape(tmp_path: Path) -> None:
    run = make_run(
        tmp_path, "mine", method={"name": "a3po", "also": ["adora_attenuate"]}, steps=2, prompts=2, group_size=4
    )  # fmt: skip
    write_unipo(run, tmp_path / "a.json")
    data, theirs = strict(tmp_path / "a.json"), json.loads((EXAMPLES / "unipo" / "run.json").read_text())
    entry, example = data["entries"][0], theirs["entries"][0]
    response, its = entry["prompts"][0]["responses"][0], example["prompts"][0]["responses"][0]
    for own, other in ((data, theirs), (data["header"], theirs["header"]), (data["header"]["hparams"],
                       theirs["header"]["hparams"]), (entry, example), (entry["metrics"], example["metrics"]),
                       (entry["prompts"][0], example["prompts"][0]), (response, its),
                       (response["tokens"], its["tokens"])):  # fmt: skip
        assert set(other) <= set(own), set(other) - set(own)
    assert (data["header"]["algorithm"], data["header"]["totalSteps"]) == ("a3po", 2)
    assert data["header"]["hparams"]["a3po.rho_positive"] > 0
    lengths = {len(values) for values in response["tokens"].values()}
    assert lengths == {response["response_length"]}
    with open_runs([run]) as lab:
        first = lab.rows(f"SELECT * FROM rollouts WHERE step = 0 AND split = 'train' ORDER BY {KEYS}")[0]
        tokens = lab.rows(f"SELECT advantage FROM tokens WHERE step = 0 AND split = 'train' ORDER BY {KEYS}, position")
    weight = first["f_adora_attenuate"]
    assert response["advantage"] == pytest.approx(first["base_advantage"] * weight, rel=1e-6)
    assert response["tokens"]["advantages"][0] == pytest.approx(tokens[0]["advantage"], rel=1e-8)


def test_what_was_not_recorded_is_null_and_texts_are_as_they_were(tmp_path: Path) -> None:
    for step, text, reward in ((0, "\0 <b>", 1.0), (1, "␛", None)):
        prompt = {"prompt": "a?", "responses": [{"response_text": text, "reward": reward}]}
        (tmp_path / f"step-{step}.json").write_text(json.dumps({"step": step, "prompts": [prompt]}))
    write_unipo(imported(tmp_path, tmp_path / "runs"), tmp_path / "a.json")
    first, second = (entry["prompts"][0]["responses"][0] for entry in strict(tmp_path / "a.json")["entries"])
    assert (first["response_text"], second["response_text"]) == ("\0 <b>", "␛")
    assert (first["reward"], second["reward"]) == (1.0, None)
    assert "tokens" not in first and second["response_length"] is None


def test_the_objective_is_the_losses(tmp_path: Path) -> None:
    from core.train.losses import policy_terms

    torch = pytest.importorskip("torch")
    draw = np.random.default_rng(0)
    ratio, advantage = np.exp(draw.normal(0, 0.5, (4, 50))), draw.normal(0, 1, (4, 50))
    nothing = np.full(200, np.nan)
    for loss in (Loss(), Loss(clip_high=0.28), Loss(dual_clip=1.5), Loss(objective="ratio")):
        old = torch.zeros(4, 50, dtype=torch.float64)
        mask = torch.ones(4, 50, dtype=torch.bool)
        terms = policy_terms(loss, torch.tensor(np.log(ratio)), old, torch.tensor(advantage), mask).term
        found = objective(loss, advantage.ravel(), ratio.ravel(), nothing)
        np.testing.assert_allclose(found, -terms.numpy().ravel(), rtol=1e-9)
    assert np.isnan(objective(Loss(objective="cispo"), advantage.ravel(), ratio.ravel(), nothing)).all()
    none = objective(Loss(), np.array([0.0, 1.0]), np.array([np.nan, np.nan]), np.full(2, np.nan))
    assert none[0] == 0 and np.isnan(none[1])


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path, "mine", steps=2, prompts=2, group_size=2)
    out = tmp_path / "a.json"
    assert main(["export", "unipo", str(run), "-o", str(out)]) == 0
    assert "8 responses of 2 steps" in capsys.readouterr().out
    assert main(["export", "unipo", str(run), "-o", str(out)]) == 2
    assert "is already there" in capsys.readouterr().err
    empty = make_run(tmp_path, "empty", state="queued", steps=2, prompts=2, group_size=2)
    with pytest.raises(ExportError, match="the run empty has no training rollouts"):
        write_unipo(empty, tmp_path / "b.json")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "empty", "mine"]
