"""What every export to another trainer holds: the lab's rules and tasks as a copy, prompts, the model, the settings.

The copy is all that the rules and the verifiers import of the lab, so that nothing of it must be installed there.
Nothing that is written names a place on this machine unless the run's own config does.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from core import __version__
from core.config import RunConfig, load, read_run
from core.exporters.adapter import ExportError
from core.exporters.twins import plain
from core.models.catalog import describe
from core.models.packaged import PACKAGED
from core.runs.folders import RunError, is_run_dir
from core.runs.preset import find_config
from core.tasks import get_task
from core.tasks.base import POOL_SEED, Prompt

REPO = Path(__file__).parents[2]
FILES = Path(__file__).parent / "files"
COPIED = ("core.advantage", "core.tasks")
"""Packages that are copied whole, with all that they import of the lab."""
EMBEDDED = REPO / "core" / "models" / "embedded"
MODEL_FILES = (".json", ".safetensors", ".jinja", ".txt", ".model")
LAB = "lab.json"


def one_run(name: str, settings: Iterable[str], find: Callable[[str], Path | None]) -> RunConfig:
    """The run that a name means: a run of the lab, a config file or a preset, with `--set` settings.

    `find` gives the folder of a run, or None. Raises ExportError, ConfigError, RunError.
    """
    settings = list(settings)
    folder = Path(name) if is_run_dir(Path(name)) else None
    if folder is None and not Path(name).is_file():
        try:
            folder = find(name)
        except RunError:
            folder = None
    if folder is not None:
        if settings:
            raise ExportError("--set changes a config, but this is a run: its settings are what it was trained with")
        config = read_run(folder / "config.yaml")
        if config.imported:
            raise ExportError(f"the run {folder.name} was imported: the lab does not know how it was trained")
        return config
    experiment = load(find_config(name), settings)
    if len(runs := experiment.expand(None)) > 1:
        raise ExportError(
            f"{name} is {len(runs)} runs, and an export is one: choose it with --set methods=[NAME] --set seeds=[0]"
        )
    return runs[0]


def write_export(config: RunConfig, out: Path, fill: Callable[[Path], None]) -> None:
    """Make the folder `out`, whole or not at all: `fill` writes what the trainer needs. Raises ExportError."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ExportError(f"{out} is already there and not empty: name a folder that is not")
    out.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    try:
        copy_lab(new)
        if config.model == "embedded":
            copy_model(new / "model")
        fill(new)
        new.chmod(0o755)
        if out.exists():
            out.rmdir()
        os.replace(new, out)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def copy_lab(folder: Path) -> None:
    """The rules and the tasks with all that they import of the lab, as the package `core`."""
    for name in sorted(closure(COPIED)):
        source = _file(name)
        if source is None:
            continue
        target = folder / source.relative_to(REPO)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
    (folder / "core" / "README.md").write_text(
        f"Part of Advantage Lab {__version__}, as it is there: the advantage rules, the tasks, and what they import.\n",
        encoding="utf-8",
    )


def closure(names: Iterable[str]) -> set[str]:
    """The lab's modules that these packages consist of and import, directly or not, with the packages around them.

    Of modules outside these packages only what they import as they are loaded.
    """
    own = {module for name in names for module in _within(name)}
    waiting, found = list(own), set()
    while waiting:
        name = waiting.pop()
        if name in found or (source := _file(name)) is None:
            continue
        found.add(name)
        above = name.rpartition(".")[0]
        waiting += [above] if above else []
        waiting += _imports(source, everywhere=name in own)
    return found


def _within(package: str) -> Iterator[str]:
    folder = REPO.joinpath(*package.split("."))
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(REPO).with_suffix("").parts
        yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _file(name: str) -> Path | None:
    """The source of a module of the lab; None if there is none of this name."""
    path = REPO.joinpath(*name.split("."))
    return next((file for file in (path / "__init__.py", path.with_suffix(".py")) if file.is_file()), None)


def _imports(path: Path, everywhere: bool) -> Iterator[str]:
    """What of the lab a file imports at its top level, or anywhere."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree) if everywhere else tree.body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.partition(".")[0] == "core")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "core":
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)  # a module, or a name within one


def copy_model(folder: Path) -> None:
    """The embedded model's files."""
    folder.mkdir(parents=True)
    for path in sorted(EMBEDDED.iterdir()):
        if path.is_file() and path.suffix in MODEL_FILES:
            shutil.copyfile(path, folder / path.name)


def model_there(config: RunConfig) -> tuple[str, str]:
    """(what the model is called in the other trainer, in what it differs). `model` is the folder beside the script."""
    if config.model == "embedded":
        return "model", ""
    if packaged := PACKAGED.get(config.model):
        return packaged.origin, "the model on the hub that the packaged file was made from, its weights not rounded"
    local = Path(config.model).expanduser().is_dir()
    return config.model, "the folder must be there under this name on every machine" if local else ""


def has_chat_template(config: RunConfig) -> bool:
    """Whether prompts become a user's message. A model that is not on this machine is taken for a chat model."""
    model = describe(config.model)
    return model.chat_template or model.problem is not None


def prompts_of(config: RunConfig) -> tuple[list[Prompt], list[Prompt]]:
    """The training pool and the held-out prompts that the run uses. Raises TaskError, ExportError."""
    task = get_task(config.task, trusted=True)
    pool = list({prompt.id: prompt for prompt in task.train_pool(config.task.pool_size, POOL_SEED)}.values())
    if len(pool) < config.prompts_per_step:
        raise ExportError(
            f"prompts_per_step is {config.prompts_per_step}, but the task {task.name!r} has only {len(pool)} distinct "
            "training prompts: lower it"
        )
    return pool, list(task.held_out(config.evaluate.prompts))


def messages(config: RunConfig, prompt: Prompt) -> list[dict[str, str]]:
    """The prompt as a chat has it."""
    system = [] if config.system_prompt is None else [{"role": "system", "content": config.system_prompt}]
    return [*system, {"role": "user", "content": prompt.text}]


def lab_settings(config: RunConfig, trainer: str) -> dict[str, Any]:
    """What the exported modules read, and what an import of the rollouts can go by: lab.json."""
    task = plain(config.task.model_dump())
    task["file"]["path"] = ""
    return {
        "made_by": f"Advantage Lab {__version__}",
        "trainer": trainer,
        "convention": config.build_method().label,
        "method": plain(config.method.model_dump()),
        "objective": config.build_method().loss.objective,
        "loss": plain(config.loss.model_dump(exclude_none=True)),
        "dynamic_sampling": config.dynamic_sampling.enabled,
        "task": task,
        "correct_threshold": config.correct_threshold,
        "overlong": plain(config.overlong.model_dump()),
        "group_size": config.group_size,
        "prompts_per_step": config.prompts_per_step,
        "max_length": config.sampling.max_new_tokens,
        "temperature": config.sampling.temperature,
        "total_steps": config.schedule_steps or config.steps,
        "minibatches": config.updates.minibatches,
        "seed": config.seed,
    }


def write_json(path: Path, value: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8", errors="surrogateescape")


def copy_file(name: str, folder: Path) -> None:
    """One of the modules that are written beside the trainer's own."""
    shutil.copyfile(FILES / name, folder / name)
