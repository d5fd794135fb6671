"""The small files of a bundle, cleaned: of what they say of a machine on their way out, and on their way in too, where
nothing may be left that names code or was never checked. Each is read as data and written anew.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from core.advantage.stored import method_to_json
from core.config import RunConfig, dump, parse_run
from core.config_errors import sentence
from core.config_settings import LossSettings
from core.exporters.adapter import MADE_WITH, SETTINGS
from core.exporters.bundle.layout import LOG, STATUS, BundleError
from core.exporters.model_card import model_name
from core.importers.manifest import LACKS, Fit, Manifest, read_manifest, to_json
from core.importers.manifest import MANIFEST as IMPORT
from core.importers.said import write_log
from core.runs.log import plain
from core.runs.status import LIVE, STATES, read_status
from core.store.factors import SCHEMA, read_schema, settings_of, trained_method, write_factors
from core.store.pack import STATUS as STATUS_KEPT
from core.store.pack import own_lines

_Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_LAST_NAME = re.compile(r"[^/\\]*$")
_LAYER = re.compile(r"[A-Za-z0-9_.-]{1,200}")
_VERSION = re.compile(r"[A-Za-z0-9_.+-]{1,40}")
_LONGEST_ERROR = 500
MOST_RANK, MOST_TARGETS, LARGEST_NUMBER = 65_536, 1000, 1e9
"""Of an adapter's settings."""
DEEPEST = 12
"""Levels of a config: the lab's own have four."""


def config(data: Mapping[str, Any], **changes: Any) -> RunConfig:
    """A run's settings without the folders of the machine, and without the name of a user's own function.

    Raises ConfigError for what is no config of this version of the lab.
    """
    run = parse_run({**data, **changes})
    task = run.task
    file = task.file.model_copy(update={"path": last_name(task.file.path)})
    verify = task.verify.model_copy(update={"function": ""})
    task = task.model_copy(update={"file": file, "verify": verify})
    return parse_run(run.model_copy(update={"model": _model(run.model), "task": task}).model_dump())


def _model(name: str) -> str:
    known = model_name(name)
    return known if known.strip(". ") else "a local folder"


def last_name(path: str) -> str:
    """The last name of a path, of any system."""
    found = _LAST_NAME.search(path.rstrip("/\\"))
    return found[0] if found else ""


def read_config(path: Path) -> dict[str, Any]:
    """A foreign config as plain data: flat enough, and without aliases, of which a few lines can stand for gigabytes.

    Raises BundleError.
    """
    depth = 0
    try:
        text = path.read_text(encoding="utf-8")
        for event in yaml.parse(text, Loader=_Loader):
            if isinstance(event, yaml.AliasEvent):
                raise BundleError(f"{path.name}: has aliases (*name), which the lab never writes")
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > DEEPEST:
                raise BundleError(f"{path.name}: is nested too deep to be a run's config")
        data = yaml.load(text, Loader=_Loader)  # a safe loader
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        if isinstance(error, BundleError):
            raise
        raise BundleError(f"{path.name}: is not YAML") from error
    if not isinstance(data, dict) or not all(isinstance(key, str) for key in data):
        raise BundleError(f"{path.name}: is no run's config")
    return data


def status(run_dir: Path, sealed: bool = False) -> dict[str, Any]:
    """What a run's status says, nothing of its host and process in it. Raises BundleError for one that is no status."""
    found = read_status(run_dir)
    if found is None:
        raise BundleError(f"{STATUS}: is no run's status")
    kept = {name: getattr(found, name) for name in STATUS_KEPT}
    kept["state"] = found.state if found.state in set(STATES) - set(LIVE) else "stopped"
    error = found.error if not re.search(r"[/\\]", found.error) else ""
    return {**kept, "error": error[:_LONGEST_ERROR], "sealed": sealed}


def write_status(run_dir: Path, target: Path, sealed: bool = False) -> None:
    text = json.dumps(status(run_dir, sealed), indent=1)
    (target / STATUS).write_text(text + "\n", encoding="utf-8", errors="replace")


def write_schema(run_dir: Path, target: Path, run: RunConfig) -> None:
    """Write the schema.json of `run_dir` anew. Raises StoreError, AdvantageError for one that is none."""
    factors = read_schema(run_dir)
    if factors is None:
        raise BundleError(f"{SCHEMA}: is missing")
    method = trained_method(run_dir, run)
    try:
        LossSettings.model_validate(asdict(method.loss))
    except ValidationError as error:
        raise BundleError(f"{SCHEMA}: composition.loss: {sentence(error, LossSettings)}") from error
    about = {"method": method.name, "label": method.label, "settings": settings_of(run)}
    write_factors(target, factors, **about, composition=method_to_json(method))


def write_words(run_dir: Path, target: Path) -> None:
    """Write the log, the lab's own lines of it, and what an import says of its origin."""
    text = plain(own_lines(run_dir / LOG))
    (target / LOG).write_text(text, encoding="utf-8", errors="replace")
    if not (run_dir / IMPORT).is_file():
        return
    manifest = read_manifest(run_dir)
    if manifest is None or not _typed(manifest) or not all(map(_typed, manifest.fits)):
        raise BundleError(f"{IMPORT}: is not what an import says of itself")
    manifest = replace(manifest.shareable(), lacks=tuple(name for name in manifest.lacks if name in LACKS))
    (target / IMPORT).write_text(to_json(manifest) + "\n", encoding="utf-8", errors="replace")
    write_log(target, manifest)


def _typed(said: Manifest | Fit) -> bool:
    """Whether the texts, numbers and switches of it are such; JSON can say anything."""
    wanted = {"str": str, "float": int | float, "int": int, "bool": bool}
    kinds = {field.name: wanted[field.type] for field in fields(said) if field.type in wanted}
    return all(
        isinstance(value := getattr(said, name), kind)
        and (kind in (bool, str) or (not isinstance(value, bool) and abs(value) <= sys.float_info.max))
        for name, kind in kinds.items()
    )


def adapter_settings(folder: Path, run: RunConfig) -> dict[str, Any]:
    """PEFT's settings of a LoRA adapter: those alone that say what its weights mean, each of its type.

    Raises BundleError for an adapter that is none of the lab's.
    """
    data = _json(folder / SETTINGS)
    patterns = {name: data.get(name) or {} for name in ("rank_pattern", "alpha_pattern")}
    targets = data.get("target_modules")
    targets = [targets] if isinstance(targets, str) else targets
    fits = (
        data.get("peft_type") == "LORA"
        and isinstance(data.get("r"), int)
        and _number(data["r"], MOST_RANK)
        and data["r"] >= 1
        and _number(data.get("lora_alpha"))
        and _number(data.get("lora_dropout", 0.0))
        and isinstance(targets, list)
        and 0 < len(targets) <= MOST_TARGETS
        and all(isinstance(name, str) and _LAYER.fullmatch(name) for name in targets)
        and all(
            isinstance(pattern, dict)
            and all(_LAYER.fullmatch(name) and _number(value) for name, value in pattern.items())
            for pattern in patterns.values()
        )
        and data.get("bias", "none") in ("none", "all", "lora_only")
        and data.get("modules_to_save") in (None, [])
    )
    if not fits:
        raise BundleError(f"{folder.name}/{SETTINGS}: does not describe a LoRA adapter of the lab")
    flags = ("fan_in_fan_out", "use_rslora", "use_dora", "lora_bias", "ensure_weight_tying")
    return {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": _model(run.model),
        "inference_mode": True,
        "r": data["r"],
        "lora_alpha": data["lora_alpha"],
        "lora_dropout": data.get("lora_dropout", 0.0),
        "bias": data.get("bias", "none"),
        "target_modules": sorted(targets),
        **patterns,
        **{flag: data.get(flag) is True for flag in flags},
    }


def made_with(folder: Path) -> dict[str, str]:
    """The versions that trained the adapter."""
    data = _json(folder / MADE_WITH) if (folder / MADE_WITH).is_file() else {}
    return {
        name: version
        for name, version in data.items()
        if isinstance(version, str) and _VERSION.fullmatch(name) and _VERSION.fullmatch(version)
    }


def _number(value: Any, most: float = LARGEST_NUMBER) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= most


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise BundleError(f"{path.parent.name}/{path.name}: is no JSON object")
    return data


def write_config(target: Path, run: RunConfig) -> None:
    (target / "config.yaml").write_text(dump(run), encoding="utf-8", errors="replace")
