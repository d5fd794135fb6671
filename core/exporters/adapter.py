"""A run's trained adapter as one file that PEFT and vLLM read, with a model card. No torch here: pages use it."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

from core.config import read_run
from core.exporters.model_card import card, model_name

ADAPTER = "adapter"
WEIGHTS, SETTINGS, MADE_WITH = "adapter_model.safetensors", "adapter_config.json", "made_with.json"
EARLIEST = (1980, 1, 1, 0, 0, 0)
"""The one date of everything in the archive: the same adapter gives the same file."""


class ExportError(ValueError):
    """Something that cannot be exported; one sentence that says what, and what would help."""


def has_adapter(run_dir: Path) -> bool:
    """Whether the run has left an adapter: finished and stopped ones have."""
    return all((run_dir / ADAPTER / name).is_file() for name in (WEIGHTS, SETTINGS))


def require_adapter(run_dir: Path) -> Path:
    """The adapter's folder. Raises ExportError."""
    if not has_adapter(run_dir):
        raise ExportError(
            f"the run {run_dir.name} has no adapter: a run leaves one when it finishes or is stopped; recorded "
            "examples and imported runs have none"
        )
    return run_dir / ADAPTER


def adapter_zip(run_dir: Path) -> bytes:
    """An archive with one folder: the weights, PEFT's config and the model card. Raises ExportError, ConfigError."""
    folder = require_adapter(run_dir)
    config = read_run(run_dir / "config.yaml")
    settings = _json(folder / SETTINGS, run_dir.name)
    settings["base_model_name_or_path"] = model_name(config.model)
    files = {
        SETTINGS: json.dumps(settings, indent=2, sort_keys=True).encode(),
        "README.md": card(run_dir, config, made_with(run_dir)).encode("utf-8", "replace"),
        WEIGHTS: (folder / WEIGHTS).read_bytes(),
    }
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as packed:
        for name, content in files.items():
            packed.writestr(zipfile.ZipInfo(f"{archive_name(run_dir)}/{name}", EARLIEST), content)
    return archive.getvalue()


def archive_name(run_dir: Path) -> str:
    """The archive's name without its ending, and that of the folder in it."""
    return f"{run_dir.name}-adapter"


def made_with(run_dir: Path) -> dict[str, Any]:
    """The versions that trained the adapter, by name; empty for a run that did not write them down."""
    try:
        return _json(run_dir / ADAPTER / MADE_WITH, run_dir.name)
    except (ExportError, OSError):
        return {}


def _json(path: Path, run: str) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise ExportError(f"the run {run}: {ADAPTER}/{path.name} cannot be read as JSON")
    return data
