"""The task's verifier as a reward: `lab.json` says which, the package `core` beside this file has it."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from core.config_tasks import TaskSettings
from core.tasks import FILE, get_task, make_verifier
from core.tasks.base import Prompt, Verdict
from core.tasks.reward import Composed

HERE = Path(__file__).parent


@lru_cache(maxsize=1)
def settings() -> dict[str, Any]:
    return json.loads((HERE / "lab.json").read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def task() -> Any:
    """What judges responses; its prompts are in data/ already."""
    asked = TaskSettings.model_validate(settings()["task"])
    if asked.name == FILE:
        return Composed(FILE, None, make_verifier(asked), asked.reward)
    return get_task(asked, trusted=True)


def judge(prompt: str, answer: str, response: str) -> Verdict:
    """The reward of a response with its parts. What a response costs by its tokens joins it later (`lab_advantage`)."""
    return task().verify(Prompt(prompt, answer), response)


def compute_score(
    data_source: str, solution_str: str, ground_truth: str, extra_info: dict[str, Any] | None = None, **_: Any
) -> dict[str, Any]:
    """As verl calls a reward function."""
    verdict = judge((extra_info or {}).get("prompt", ""), ground_truth, solution_str)
    return {"score": verdict.reward, "acc": verdict.correctness >= settings()["correct_threshold"]}
