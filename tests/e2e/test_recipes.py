"""Every recipe trains for real, and what it stored gives the same advantages again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from core.advantage import recipes
from core.cli import main
from core.config import load
from core.runs import create_runs, get_run
from core.runs.preset import find_config
from core.store import open_runs
from tests.warm import Workers

SHORT = [
    "steps=3", "prompts_per_step=4", "group_size=4", "threads=1", "sampling.max_new_tokens=40",
    "evaluate={every: 2, prompts: 4, rollouts: 4, k: 4, probes: 1}",
]  # fmt: skip
SETTINGS = {"token_shaping": ["method.set={positive_low_ratio: 0.2, positive_low_scale: 2, metric: entropy}"]}
COMPOSED = {
    "adora_amplify on dapo": ["method={name: adora_amplify, base: dapo}", "updates.minibatches=2"],
    "a3po under adora on dr_grpo": ["method={name: a3po, base: dr_grpo, also: [adora_attenuate]}"],
    "dapo in full": ["method=dapo", "updates={minibatches: 2, epochs: 2}", "loss={dual_clip: 3, kl: 0.01}"],
    "polarity by sign": ["method=psr", "polarity_by=sign", "record={after_update: probe, reference: true}"],
}
CASES = {name: [f"method.name={name}", *SETTINGS.get(name, [])] for name in recipes()} | COMPOSED


@pytest.fixture(scope="module")
def workers() -> Iterator[Workers]:
    server = Workers()
    yield server
    server.close()


@pytest.mark.parametrize("case", CASES)
def test_trains_and_checks(
    case: str, workers: Workers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ADVANTAGE_LAB_RUNS", str(tmp_path))
    (path,) = create_runs(tmp_path, load(find_config("smoke"), [*SHORT, *CASES[case]]))
    workers.begin(path)
    workers.end()
    info = get_run(tmp_path, path.name)
    assert (info.state, info.step, info.sealed) == ("finished", 3, True), (path / "log.txt").read_text()

    assert main(["check", path.name]) == 0, capsys.readouterr()
    assert "advantages are as trained" in capsys.readouterr().out
    with open_runs([path]) as lab:
        stored = lab.rows("SELECT count(*) AS tokens, count(advantage) AS advantages FROM tokens")[0]
        moved = lab.rows("SELECT max(update_norm) AS most FROM metrics")[0]["most"]
    assert stored["tokens"] == stored["advantages"] > 300
    assert moved > 0, "three steps without any update"
    assert (path / "adapter" / "adapter_model.safetensors").is_file()
