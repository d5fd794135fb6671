"""The command line that does the same as an experiment put together in the browser."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import yaml

from core.config import ExperimentConfig, dump
from core.config_yaml import in_a_line
from core.runs.folders import runs_option
from core.runs.preset import presets

PLAIN = "grpo"
"""The preset that others change."""
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_./-]*")


def command_for(experiment: ExperimentConfig, root: Path | None = None) -> str:
    """`python -m core run PRESET --set …`, from the preset that needs the fewest changes, of several such the plain
    one; `root` is where it runs.
    """
    wanted = flat(experiment)
    candidates = []
    for preset in presets():
        there = flat(preset.config)
        there["name"] = preset.config.name_of(experiment)
        changes = {key: value for key, value in wanted.items() if there.get(key, _absent) != value}
        candidates.append((len(changes), preset.id != PLAIN, preset.id, changes))
    *_, preset_id, changes = min(candidates, key=lambda candidate: candidate[:3])
    words = ["python", "-m", "core", "run", f"runs/presets/{preset_id}.yaml"]
    for key, value in changes.items():
        if key == "name":
            words += ["--name", value]
        else:
            words += ["--set", f"{key}={_yaml(value)}"]
    return shlex.join(words) + ("" if root is None else runs_option(root))


_absent = object()


def flat(experiment: ExperimentConfig) -> dict[str, Any]:
    """The settings by dotted name, lists as one value each; what only describes is left out."""
    data = yaml.safe_load(dump(experiment))
    data.pop("look_for", None)
    data["methods"] = [_method(method) for method in data["methods"]]
    found: dict[str, Any] = {}

    def walk(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(f"{prefix}.{key}" if prefix else key, inner)
        else:
            found[prefix] = value

    walk("", data)
    return found


def _method(method: dict[str, Any]) -> Any:
    given = {key: value for key, value in method.items() if value not in (None, [], {}, False)}
    return given["name"] if set(given) == {"name"} else given


def _yaml(value: Any) -> str:
    """A value as YAML in one short piece."""
    if isinstance(value, str) and _PLAIN.fullmatch(value):
        return value
    return in_a_line(value)
