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
    kept, attempt; usable_wrong (rollouts), equal (all rewards are), mass and base_mass (summed over its rollouts; null
    in runs recorded before these were).
    """
    return lab.df(
        'SELECT g.step, g."group", g.prompt_id, g.prompt, g.answer, g.n, g.correct, g.pass_rate, g.longest_correct, '
        'g.mean_wrong_length, g.length_advantage, g.difficulty_advantage, g."class" AS label, g.weight, g.kept, '
        "g.attempt, r.usable_wrong, r.equal, r.mass, r.base_mass FROM groups g JOIN ("
        '  SELECT step, "group", '
        "  (count(*) FILTER (NOT correct AND NOT coalesce(truncated, false)))::INT AS usable_wrong, "
        "  max(reward) = min(reward) AS equal, sum(mass) AS mass, sum(base_mass) AS base_mass "
        "  FROM rollouts WHERE run = ? AND split = 'train' GROUP BY ALL"
        ') r USING (step, "group") WHERE g.run = ? AND g.split = \'train\' ORDER BY g.step, g."group"',
        [run, run],
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
    """What the classes were made from, in the order of `visits`: step, group, correct, length (tokens), truncated, and
    what the update made of each: mass, base_mass (null in runs recorded before these were).
    """
    return lab.df(
        'SELECT step, "group", correct, length, truncated, mass, base_mass FROM rollouts '
        "WHERE run = ? AND split = 'train' ORDER BY step, \"group\", rollout",
        [run],
    )


def step_mass(lab: StepLab) -> pd.DataFrame:
    """The rows of `rollouts` for one step, with mass and base_mass summed from its tokens: for runs that were recorded
    before rollouts had them. Empty where the step kept no tokens.
    """
    return lab.df(
        'SELECT r.step, r."group", any_value(r.correct) AS correct, any_value(r.length) AS length, '
        "any_value(r.truncated) AS truncated, "
        "coalesce(sum(t.loss_weight * abs(t.advantage::DOUBLE)) FILTER (t.kept), 0) AS mass, "
        "coalesce(sum(t.loss_weight * abs(t.base_advantage::DOUBLE)) FILTER (t.kept), 0) AS base_mass "
        'FROM rollouts r JOIN tokens t USING (step, split, "group", rollout) '
        'WHERE r.split = \'train\' GROUP BY r.step, r."group", rollout ORDER BY r."group", rollout',
    )
