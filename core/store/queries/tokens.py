"""The Tokens page's questions: which steps and prompts there are, and everything of one group.

`lab` is what `core.store.open_runs` returns; queries about one step run on `lab.step(run, step)`, which reads that
step only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from core.store.schema import UNMOVED

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
    if source.packed:
        steps |= source.packed.token_steps
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


SURE = (0.5, 0.9, 0.99)
"""Edges of a token's probability when it was sampled: `step_moves` has four classes, from 0 (unsure) to 3."""

_SURE = " + ".join(f"coalesce(probability >= {edge}, false)::INTEGER" for edge in SURE)

_PUSHED = f"""
    SELECT t."group", t.rollout, t.position, t.token, t.advantage, r.polarity, exp(t.sampler_logprob) AS probability,
        t.after_logprob - t.trainer_logprob AS change,
        CASE WHEN abs(change) < {UNMOVED} THEN 0 ELSE sign(change) * sign(t.advantage) END AS along
    FROM tokens t JOIN rollouts r USING (run, step, split, "group", rollout)
    WHERE t.run = ? AND t.step = ? AND t.split = 'train' AND t.kept AND t.advantage <> 0
"""
"""A step's tokens with a push; `along` is 1 where the update moved one as pushed, -1 the other way, 0 not at all."""


def step_moves(lab: Lab, run: str, step: int) -> pd.DataFrame:
    """What a step's update did to its pushed tokens (in the loss, advantage not 0), by polarity and class of SURE.

    polarity, sure, pushed, known (log-prob after the update recorded), agreed, against, still (moved by less than
    UNMOVED), median_change (of |change|, nats).
    """
    return lab.step(run, step).df(
        f"""
        WITH pushed AS ({_PUSHED})
        SELECT polarity::INTEGER AS polarity, {_SURE} AS sure, count(*) AS pushed, count(change) AS known,
            count(*) FILTER (along = 1) AS agreed, count(*) FILTER (along = -1) AS against,
            count(*) FILTER (along = 0 AND change IS NOT NULL) AS still, median(abs(change)) AS median_change
        FROM pushed GROUP BY ALL ORDER BY ALL
        """,
        [run, step],
    )


def step_changes(lab: Lab, run: str, step: int) -> pd.DataFrame:
    """How far a step's update moved its pushed tokens, by class of SURE: sure, known, median_change (of |change|)."""
    return lab.step(run, step).df(
        f"""
        WITH pushed AS ({_PUSHED})
        SELECT {_SURE} AS sure, count(change) AS known, median(abs(change)) AS median_change
        FROM pushed WHERE change IS NOT NULL GROUP BY ALL ORDER BY ALL
        """,
        [run, step],
    )


def contrary_tokens(lab: Lab, run: str, step: int, limit: int = 20) -> pd.DataFrame:
    """The pushed tokens that the step's update moved furthest the other way, furthest first.

    group, rollout, position, token, polarity, advantage, probability, change (nats).
    """
    return lab.step(run, step).df(
        f"""
        WITH pushed AS ({_PUSHED})
        SELECT "group", rollout, position, token, polarity::INTEGER AS polarity, advantage, probability, change
        FROM pushed WHERE along = -1 ORDER BY abs(change) DESC, "group", rollout, position LIMIT ?
        """,
        [run, step, limit],
    )
