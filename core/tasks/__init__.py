"""Tasks: prompts with a verifier. `get_task(settings)` makes one, `task_names()` lists them."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from core.config_tasks import TaskSettings, VerifySettings
from core.tasks import generators, own_function
from core.tasks.base import Prompt, Source, Task, TaskError, Verdict, Verifier
from core.tasks.embedded import EmbeddedTask
from core.tasks.file import FilePrompts, read_file, resolved
from core.tasks.generators import Generated
from core.tasks.mathematics import Mathematics
from core.tasks.patterns import Regex
from core.tasks.reward import Composed
from core.tasks.sums import SumsTask
from core.tasks.verifiers import Choice, Exact, Numeric, OfTask

_WITH_VERIFIER: dict[str, type[Task]] = {task.name: task for task in (EmbeddedTask, SumsTask)}
FILE = "file"


def task_names() -> tuple[str, ...]:
    return (*_WITH_VERIFIER, FILE, *generators.KINDS)


def get_task(settings: TaskSettings | str, *, trusted: bool = False) -> Task:
    """The task of these settings; a name alone stands for its defaults. Raises TaskError.

    Only `trusted` ones may name a Python function, which is imported: never anything that a browser asks for.
    """
    if isinstance(settings, str):
        settings = TaskSettings(name=settings)
    name, kind = settings.name, settings.verify.kind
    if name not in task_names():
        raise TaskError(f"task.name: no task is called {name!r}; there is {', '.join(task_names())}")
    if names_code(settings) and not trusted:
        raise TaskError(own_function.ONLY_THERE)
    if name in _WITH_VERIFIER and kind == "auto" and settings.reward.plain:
        return _WITH_VERIFIER[name]()
    verifier = make_verifier(settings)
    return Composed(name, _source(settings, verifier), verifier, settings.reward)


def names_code(settings: TaskSettings) -> bool:
    """Whether training on it runs a Python function of the user's own."""
    return settings.verify.kind == "function"


def make_verifier(settings: TaskSettings) -> Verifier:
    """The verifier that the settings ask for, or the task's own. Raises TaskError."""
    verify = settings.verify
    match verify.kind:
        case "auto" if settings.name in _WITH_VERIFIER:
            return OfTask(_WITH_VERIFIER[settings.name]())
        case "auto" if settings.name in generators.KINDS:
            return generators.KINDS[settings.name].verifier
        case "auto" | "exact":
            return Exact(verify.read, verify.ignore_case)
        case "numeric":
            return Numeric(verify.read, verify.tolerance)
        case "choice":
            return Choice(verify.read)
        case "regex":
            return Regex(verify.pattern, verify.seconds, verify.ignore_case)
        case "math":
            return Mathematics(verify.read, verify.seconds)
        case "function":
            return own_function.load(verify.function)
    raise AssertionError(verify.kind)


def file_prompts(settings: TaskSettings) -> FilePrompts:
    """What the file of the task `file` gives under its verifier, read again once the file has changed."""
    path = resolved(settings.file.path) if settings.file.path else None
    stamp = None
    if path is not None and path.is_file():
        there = path.stat()
        stamp = (there.st_mtime_ns, there.st_size)
    return _read_file(TaskSettings(name=FILE, file=settings.file, verify=settings.verify), path, stamp)


@lru_cache(maxsize=4)
def _read_file(settings: TaskSettings, _path: Path | None, _stamp: tuple[int, int] | None) -> FilePrompts:
    verify = settings.verify
    if verify.kind == "function":  # any answer will do, and reading the rows must not run it
        settings = settings.model_copy(update={"verify": VerifySettings()})
    return read_file(settings.file, make_verifier(settings))


def _source(settings: TaskSettings, verifier: Verifier) -> Source:
    if settings.name == FILE:
        return file_prompts(settings)
    if settings.name in generators.KINDS:
        return Generated(settings.name, settings.generator)
    return _WITH_VERIFIER[settings.name]()


__all__ = [
    "FILE", "FilePrompts", "Prompt", "Task", "TaskError", "Verdict", "file_prompts", "get_task", "make_verifier",
    "names_code", "task_names",
]  # fmt: skip
