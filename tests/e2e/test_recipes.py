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
TWO = "updates.minibatches=2"
SETTINGS = {
    "token_shaping": ["method.set={positive_low_ratio: 0.2, positive_low_scale: 2, metric: entropy}"],
    "pass_at_k": ["method.set={k: 2}"],
    "gspo": [TWO],
    "cispo": [TWO],
    "kl_cov": [TWO, "method.set={kl_cov.ratio: 0.02}"],
    "lp_reg": [TWO, "method.set={lp_reg.ratio: 0.1}"],
}
PENALISING = ("kl_cov", "lp_reg")
COMPOSED = {
    "adora_amplify on dapo": ["method={name: adora_amplify, base: dapo}", TWO],
    "adora x a3po on dapo, mass-matched": ["method={name: a3po, also: [adora_amplify], mass_matched: true}"],
    "lp_reg on a base per token": [
        "method={name: lp_reg, base: reinforce_pp, also: [entropy_advantage]}",
        "method.set={gamma: 0.95}",
    ],
    "proxies recorded, overlong": ["record.proxy_min_p=0.1", "overlong.buffer=8"],
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
        made = lab.rows("SELECT max(update_norm) AS moved, max(penalty) AS penalty FROM metrics")[0]
    assert stored["tokens"] == stored["advantages"] > 300
    assert made["moved"] > 0, "three steps without any update"
    if case in PENALISING:
        assert made["penalty"] > 0, "two minibatches, and no penalty in the second"
    assert (path / "adapter" / "adapter_model.safetensors").is_file()
