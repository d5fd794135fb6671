"""The presets: YAML configs in `runs/presets/`, each opening with comments that are its title and summary."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from core.config import ExperimentConfig, load
from core.runs.folders import PRESETS, RunError


@dataclass(frozen=True)
class Preset:
    """A config to start from. The first comment line is the title, the following ones the summary."""

    id: str
    path: Path
    config: ExperimentConfig
    title: str
    summary: str


def presets(folder: Path = PRESETS) -> list[Preset]:
    """All presets: quickstart first, smoke last, the rest by name. Raises ConfigError for a broken one."""
    first_and_last = {"quickstart": 0, "smoke": 2}
    paths = sorted(folder.glob("*.yaml"), key=lambda path: (first_and_last.get(path.stem, 1), path.stem))
    return [read_preset(path, path.stat().st_mtime_ns) for path in paths]


@functools.lru_cache(maxsize=256)
def read_preset(path: Path, _modified_ns: int) -> Preset:
    """One preset file, parsed again when it was changed."""
    title, *summary = _opening_comments(path.read_text(encoding="utf-8")) or [path.stem]
    return Preset(path.stem, path, load(path), title, " ".join(summary))


def find_config(name: str) -> Path:
    """A config file by path, or a preset by its name. Raises RunError."""
    path = Path(name)
    if path.is_file():
        return path
    preset = PRESETS / f"{name}.yaml"
    if preset.parent == PRESETS and "/" not in name and preset.is_file():
        return preset
    known = ", ".join(sorted(path.stem for path in PRESETS.glob("*.yaml")))
    raise RunError(f"{name}: no such config file, and no preset of that name (there are {known})")


def _opening_comments(text: str) -> list[str]:
    lines = []
    for line in text.splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.lstrip("# ").rstrip())
    return lines
