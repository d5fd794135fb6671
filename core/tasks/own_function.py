"""A user's own reward: a Python function that the config names as module:function. Only the command line gets here."""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from core.tasks.base import Judgement, Prompt, TaskError

FIELD = "task.verify.function"
_NAME = re.compile(r"([A-Za-z_][A-Za-z0-9_.]*):([A-Za-z_][A-Za-z0-9_]*)")

ONLY_THERE = (
    f"{FIELD} names Python code, which no page starts or resumes: run this config with python -m core run, where you "
    "decide what runs"
)


@dataclass(frozen=True)
class OwnFunction:
    """Calls the function with `prompt`, `answer` and `response`, all text. It returns a number, the correctness from 0
    to 1, or a mapping of parts by name, `correct` among them; the others join the reward as they are."""

    name: str
    function: Callable[..., Any]

    def problem(self, answer: str) -> str:
        return ""

    def judge(self, prompt: Prompt, response: str) -> Judgement:
        try:
            said = self.function(prompt=prompt.text, answer=prompt.answer, response=response)
        except Exception as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
            raise TaskError(f"{FIELD}: {self.name} failed on the response {response[:60]!r} ({why})") from error
        parts = dict(said) if isinstance(said, Mapping) else {"correct": said}
        if "correct" not in parts or not all(isinstance(key, str) and _number(value) for key, value in parts.items()):
            raise TaskError(
                f"{FIELD}: {self.name} returned {said!r:.80}: return a finite number, or a mapping of numbers by name "
                "with correct among them"
            )
        correct = float(parts.pop("correct"))
        return Judgement(correct, {}, {key[:64]: float(value) for key, value in parts.items()})


def load(name: str) -> OwnFunction:
    """Import what module:function names. Raises TaskError."""
    match = _NAME.fullmatch(name)
    if not match:
        raise TaskError(f"{FIELD} is {name[:60]!r}: write module:function, such as my_rewards:score")
    module, attribute = match.groups()
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except Exception as error:
        why = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise TaskError(
            f"{FIELD}: the module {module} cannot be imported ({why}); start the run in its folder, or put that in "
            "PYTHONPATH"
        ) from error
    if not callable(found):
        raise TaskError(f"{FIELD}: {module} has no function {attribute}")
    return OwnFunction(name, found)


def _number(value: Any) -> bool:
    return hasattr(value, "__float__") and not isinstance(value, str) and math.isfinite(float(value))
