"""The shipped presets, and the command line that stands for a choice made in the browser."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from core.config import ExperimentConfig, load, parse
from core.runs import RunError, command_for, estimate, presets
from core.runs.folders import REPO
from core.runs.preset import find_config

IDS = {
    "quickstart", "smoke", "grpo", "a3po", "adora_amplify", "adora_attenuate", "dapo", "dr_grpo", "w_reinforce",
    "adora_on_dapo", "small_pool", "smollm2_sums", "gspo", "cispo", "a3po_adora_dapo", "mass_matched", "baselines",
    "fork_tokens", "kl_cov",
}  # fmt: skip


def test_every_preset_loads_and_says_what_it_is() -> None:
    found = presets()
    assert {preset.id for preset in found} >= IDS
    assert [found[0].id, found[-1].id] == ["quickstart", "smoke"]
    for preset in found:
        assert preset.title, preset.id
        assert 40 < len(preset.summary) < 400, preset.id
        assert preset.config.run.model == ("smollm2-135m" if preset.id == "smollm2_sums" else "embedded")
        assert preset.config.name, preset.id


def test_the_quick_start_is_three_methods_of_one_seed() -> None:
    quick = presets()[0].config
    assert [method.name for method in quick.methods] == ["grpo", "psr", "nsr"]
    assert (quick.seeds, quick.run.steps) == ((0,), 100)
    assert len(quick.look_for) > 100
    assert [run.seed for run in quick.expand("q")] == [0, 0, 0]


def test_presets_are_what_their_papers_ask_for() -> None:
    by_id = {preset.id: preset.config for preset in presets()}
    for name in ("dapo", "gspo", "cispo", "fork_tokens", "kl_cov", "a3po_adora_dapo", "mass_matched"):
        assert by_id[name].run.updates.minibatches >= 2, f"{name} has no ratio but 1 to work on"
    assert by_id["adora_on_dapo"].expand(None)[0].build_method().dynamic_sampling
    assert by_id["w_reinforce"].methods[0].set == {"lambda": 0.1}


def test_adora_times_a3po_on_dapo_is_one_preset() -> None:
    (run,) = next(preset.config for preset in presets() if preset.id == "a3po_adora_dapo").expand("x")
    method = run.build_method()
    assert [rule.name for rule in method.weights] == ["a3po", "adora_amplify"]
    assert (method.label, method.dynamic_sampling, method.loss.clip_high) == (
        "A3PO × ADORA amplify on DAPO", True, 0.28,
    )  # fmt: skip


def test_the_controls_stand_beside_the_presets_that_they_control() -> None:
    by_id = {preset.id: preset.config for preset in presets()}
    a3po, a3po_control, adora, adora_control = by_id["mass_matched"].expand("x")
    for run, control, name in ((a3po, a3po_control, "a3po"), (adora, adora_control, "adora_on_dapo")):
        (own,) = by_id[name].expand("x")
        assert run.build_method() == own.build_method()
        assert run.model_copy(update={"method": own.method, "name": own.name, "experiment": None}) == own
        assert control.method == run.method.model_copy(update={"mass_matched": True})
        assert control.build_method().mass_matched


def test_the_small_pool_differs_from_grpo_in_its_pool_alone() -> None:
    small, grpo = (
        next(preset.config.run for preset in presets() if preset.id == name) for name in ("small_pool", "grpo")
    )
    assert small.task.pool_size == 32
    whole = small.task.model_copy(update={"pool_size": 128})
    assert small.model_copy(update={"task": whole, "name": grpo.name}) == grpo


def test_quick_start_fits_its_promise(root: Path) -> None:
    total = sum(estimate(run, root) or 0 for run in presets()[0].config.expand("q"))
    assert 30 < total < 300


def test_a_config_is_found_by_path_or_preset_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_config("smoke") == REPO / "runs" / "presets" / "smoke.yaml"
    (tmp_path / "mine.yaml").write_text("steps: 3\n")
    monkeypatch.chdir(tmp_path)
    assert find_config("mine.yaml").read_text() == "steps: 3\n"
    for name in ("nope", "../presets/smoke", "", "."):
        with pytest.raises(RunError, match="no such config file, and no preset"):
            find_config(name)


def follow_command(command: str) -> ExperimentConfig:
    """What `python -m core run …` would load."""
    words = shlex.split(command)
    assert words[:4] == ["python", "-m", "core", "run"]
    options = words[5:]
    pairs = list(zip(options[::2], options[1::2], strict=True))
    name = next((value for key, value in pairs if key == "--name"), None)
    return load(REPO / words[4], [value for key, value in pairs if key == "--set"], name)


@pytest.mark.parametrize(
    "settings",
    [
        {"method": "psr", "name": "GRPO"},
        {"methods": ["grpo", "psr", "nsr"], "seeds": [0, 1], "name": "it's; $HOME"},
        {"method": {"name": "a3po", "base": "grpo", "set": {"rho_positive": 3.5}}, "optimizer": {"lr": 5e-5}},
        {"methods": ["dapo", {"name": "a3po", "also": ["adora_amplify"]}], "record": {"after_update": "off"}},
        {"lora": {"targets": ["q_proj", "v_proj"]}, "evaluate": {"every": 0}, "optimizer": {"max_grad_norm": None}},
        {"model": "/models/my model", "steps": 3, "threads": 2, "loss": {"clip_high": 0.3}, "method": "dr_grpo"},
        {"methods": ["psr", {"name": "psr", "mass_matched": True}], "overlong": {"buffer": 9, "factor": 0.5}},
    ],
    ids=range(7),
)
def test_the_command_does_the_same_as_the_page(settings: dict) -> None:
    wanted = parse(settings)
    got = follow_command(command_for(wanted))
    assert got.run.model_copy(update={"name": wanted.run.name}) == wanted.run
    assert (got.methods, got.seeds) == (wanted.methods, wanted.seeds)
    assert got.name == wanted.name or not wanted.name


def test_a_command_says_nothing_of_what_is_off() -> None:
    words = shlex.split(command_for(parse({"methods": ["psr", {"name": "rloo", "mass_matched": True}]})))
    assert 'methods=["psr", {"name": "rloo", "mass_matched": true}]' in words


def test_an_unchanged_preset_is_just_its_file() -> None:
    for preset in presets():
        assert command_for(preset.config) == f"python -m core run runs/presets/{preset.id}.yaml"


def test_a_command_for_another_folder_names_it() -> None:
    smoke = presets()[-1].config
    assert command_for(smoke, REPO / "runs") == command_for(smoke)
    there = Path("/data/my runs; $HOME")
    assert shlex.split(command_for(smoke, there))[-2:] == ["--runs", str(there)]
