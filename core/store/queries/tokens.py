"""The Tokens page's questions: which steps and prompts there are, and everything of one group.

`lab` is what `core.store.open_runs` returns; queries about one step run on `lab.step(run, step)`, which reads that
step only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from core.store.open import Lab, StepLab


def group_index(lab: Lab | StepLab, run: str) -> pd.DataFrame:
    """Every training and probe group of a run, briefly: step, split, group, prompt_id, n, correct; ordered."""
    return lab.df(
        'SELECT step, split, "group", prompt_id, n, correct FROM groups '
        "WHERE run = ? AND split IN ('train', 'probe') ORDER BY step, split, \"group\"",
        [run],
    )


def steps_with_tokens(lab: Lab, run: str) -> set[int]:
    """The steps whose tokens are in the store. Of live steps it asks only which files are there."""
    source = lab.source(run)
    steps = set(source.files["tokens"])
    if source.sealed:
        steps |= {row["step"] for row in lab.rows("SELECT DISTINCT step FROM tokens WHERE run = ?", [run])}
    return steps


def group_list(lab: Lab, run: str, step: int, split: str) -> pd.DataFrame:
    """The groups of a step in order: group, prompt_id, prompt, answer, n, correct, mean_reward, class, weight, kept,
    attempt.
    """
    return lab.step(run, step).df(
        'SELECT "group", prompt_id, prompt, answer, n, correct, mean_reward, class, weight, kept, attempt '
        'FROM groups WHERE run = ? AND step = ? AND split = ? ORDER BY "group"',
        [run, step, split],
    )


def group_rollouts(lab: Lab, run: str, step: int, split: str, group: int) -> pd.DataFrame:
    """One group's rollouts in order, every column of the table."""
    return lab.step(run, step).df(
        'SELECT * FROM rollouts WHERE run = ? AND step = ? AND split = ? AND "group" = ? ORDER BY rollout',
        [run, step, split, group],
    )


def group_tokens(lab: Lab, run: str, step: int, split: str, group: int) -> pd.DataFrame:
    """One group's tokens by rollout and position, every column of the table, `f_<id>` ones included."""
    return lab.step(run, step).df(
        'SELECT * FROM tokens WHERE run = ? AND step = ? AND split = ? AND "group" = ? ORDER BY rollout, position',
        [run, step, split, group],
    )


def step_updates(lab: Lab, run: str, step: int) -> int | None:
    """Optimizer steps that the step made; None where its metrics have not been written (or say nothing)."""
    rows = lab.step(run, step).rows("SELECT updates FROM metrics WHERE run = ? AND step = ?", [run, step])
    return int(rows[0]["updates"]) if rows and rows[0]["updates"] is not None else None
