"""The Favorability page's questions: every visit of every prompt, with its class, and the rollouts that made it so.

A visit is a training group of a prompt; visits of one prompt_id count from 0 in the order of steps. No tokens are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from core.store.open import Lab, StepLab


def visits(lab: Lab, run: str) -> pd.DataFrame:
    """One row a visit, by step and group: the columns of `groups`, with `visit` behind "group"."""
    return numbered(groups(lab, run))


def groups(lab: Lab | StepLab, run: str) -> pd.DataFrame:
    """One row a training group, by step and group: step, group, prompt_id, prompt, answer, n, correct, pass_rate,
    longest_correct and mean_wrong_length (tokens), length_advantage, difficulty_advantage, label (the class), weight,
    kept, attempt.
    """
    return lab.df(
        'SELECT step, "group", prompt_id, prompt, answer, n, correct, pass_rate, longest_correct, mean_wrong_length, '
        'length_advantage, difficulty_advantage, "class" AS label, weight, kept, attempt '
        "FROM groups WHERE run = ? AND split = 'train' ORDER BY step, \"group\"",
        [run],
    )


def numbered(groups: pd.DataFrame) -> pd.DataFrame:
    """The rows of `groups` over a whole run, with `visit`: how often the prompt had come before."""
    frame = groups.copy()
    frame.insert(2, "visit", frame.groupby("prompt_id", sort=False, dropna=False).cumcount())
    return frame


def shares(lab: Lab | StepLab, run: str) -> pd.DataFrame:
    """One row a step: step, groups (sampled), favorable, unfavorable, uniform (shares), mean_weight (kept groups)."""
    return lab.df(
        "SELECT step, count(*) AS groups, avg((\"class\" = 'favorable')::INT) AS favorable, "
        "avg((\"class\" = 'unfavorable')::INT) AS unfavorable, avg((\"class\" = 'uniform')::INT) AS uniform, "
        "avg(weight) FILTER (kept) AS mean_weight "
        "FROM groups WHERE run = ? AND split = 'train' GROUP BY step ORDER BY step",
        [run],
    )


def rollouts(lab: Lab | StepLab, run: str) -> pd.DataFrame:
    """What the classes were made from, in the order of `visits`: step, group, correct, length (tokens), truncated."""
    return lab.df(
        'SELECT step, "group", correct, length, truncated FROM rollouts '
        "WHERE run = ? AND split = 'train' ORDER BY step, \"group\", rollout",
        [run],
    )
