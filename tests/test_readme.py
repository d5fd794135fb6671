"""What README says of methods and configs holds: every recipe has its source there, and the composition is a config."""

from __future__ import annotations

import re
from pathlib import Path

import yaml

from core.advantage import recipes
from core.config import parse
from core.runs import presets

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
OUTCOMES = (Path(__file__).parents[1] / "runs" / "README.md").read_text(encoding="utf-8")


def sources() -> dict[str, str]:
    """The rows of README's table by method."""
    rows = re.findall(r"^\| (`.+) \| (.+) \|$", README, re.MULTILINE)
    return {name: source for names, source in rows for name in re.findall(r"`(\w+)`", names)}


def test_every_method_has_its_source_in_the_readme() -> None:
    listed = sources()
    for name, recipe in recipes().items():
        assert name in listed, f"{name} is missing in README's table of sources"
        for paper in re.findall(r"\d{4}\.\d{5}", recipe.source):
            assert f"(https://arxiv.org/abs/{paper})" in listed[name], name


def test_the_readmes_composition_is_a_config() -> None:
    (text,) = [block for block in re.findall(r"```yaml\n(.*?)```", README, re.DOTALL) if "mass_matched" in block]
    (run,) = parse(yaml.safe_load(text)).expand("id")
    method = run.build_method()
    assert method.label == "A3PO × ADORA amplify on DAPO, mass-matched"
    assert {rule.name: rule.params["schedule"] for rule in method.weights} == {
        "a3po": "constant",
        "adora_amplify": "until",
    }
    assert (run.overlong.buffer, method.loss.kl) == (16, 0.001)


def test_every_preset_is_in_the_list_of_presets() -> None:
    assert {preset.id for preset in presets()} <= set(re.findall(r"`(\w+)`", OUTCOMES.partition("## Outcomes")[0]))
