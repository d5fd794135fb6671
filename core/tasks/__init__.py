"""Tasks: prompts with a verifier. `get_task(name)` finds one, `task_names()` lists them."""

from __future__ import annotations

from core.tasks.base import Prompt, Task, Verdict
from core.tasks.embedded import EmbeddedTask
from core.tasks.sums import SumsTask


class TaskError(ValueError):
    """An unknown task; the message is one sentence for the person who named it."""


_TASKS: dict[str, type[Task]] = {task.name: task for task in (EmbeddedTask, SumsTask)}


def task_names() -> tuple[str, ...]:
    return tuple(_TASKS)


def get_task(name: str) -> Task:
    """The task of this name. Raises TaskError."""
    try:
        return _TASKS[name]()
    except KeyError:
        raise TaskError(f"task.name: no task is called {name!r}; there is {', '.join(_TASKS)}") from None


__all__ = ["Prompt", "Task", "TaskError", "Verdict", "get_task", "task_names"]
