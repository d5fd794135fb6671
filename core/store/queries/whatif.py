"""The What-if page's questions, beside the batch itself (`core.store.stored_batch`): which steps, and whose words.

`lab` is what `core.store.open_runs` returns; queries about one step run on `lab.step(run, step)`, which reads that
step only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.store.queries.tokens import steps_with_tokens

if TYPE_CHECKING:
    from core.store.open import Lab

SPLITS = ("train", "probe", "eval")


def steps_by_split(lab: Lab, run: str) -> dict[str, list[int]]:
    """The steps with rollouts and tokens, ascending, by split, training first; splits without any are left out."""
    there = steps_with_tokens(lab, run)
    rows = lab.rows(
        "SELECT DISTINCT split, step FROM groups WHERE run = ? ORDER BY split, step",
        [run],
    )
    found = {split: [row["step"] for row in rows if row["split"] == split and row["step"] in there] for split in SPLITS}
    return {split: steps for split, steps in found.items() if steps}


def mixed_steps(lab: Lab, run: str, split: str) -> list[int]:
    """The steps at which a quarter to three quarters of some prompt's answers are right, so that both polarities have
    something to say.
    """
    rows = lab.rows(
        "SELECT DISTINCT step FROM groups WHERE run = ? AND split = ? AND correct / n BETWEEN 0.25 AND 0.75 "
        "ORDER BY step",
        [run, split],
    )
    return [row["step"] for row in rows]


def prompts(lab: Lab, run: str, step: int, split: str) -> dict[int, str]:
    """The step's prompts by group."""
    rows = lab.step(run, step).rows(
        'SELECT "group", prompt FROM groups WHERE run = ? AND step = ? AND split = ? ORDER BY "group"',
        [run, step, split],
    )
    return {int(row["group"]): row["prompt"] for row in rows}


def token_texts(lab: Lab, run: str, step: int, split: str, group: int) -> dict[int, list[str]]:
    """The texts of a group's tokens in order, by rollout; the token's id where a text was not recorded."""
    rows = lab.step(run, step).rows(
        "SELECT rollout, list(coalesce(token, '#' || token_id) ORDER BY position) AS tokens FROM tokens "
        'WHERE run = ? AND step = ? AND split = ? AND "group" = ? GROUP BY rollout',
        [run, step, split, group],
    )
    return {int(row["rollout"]): row["tokens"] for row in rows}
