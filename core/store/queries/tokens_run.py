"""The Tokens page's questions about a whole run, and about one prompt through training.

Whole-run ones read `summary` (tenths of a response) and `positions` (absolute ones); those about a prompt read that
prompt's rollouts and tokens alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from core.store.open import Lab, StepLab

COUNTED = {
    "advantage": "trained", "base_advantage": "trained", "push": "trained", "mass": "trained",
    "probability": "tokens", "entropy": "tokens", "change": "changed", "entropy_change": "changed", "agreed": "pushed",
}  # fmt: skip
"""Fields of `summary` that `positions` has too, and the column there that counts their tokens."""

TOKEN_VALUES = {
    "advantage": "t.advantage",
    "base_advantage": "t.base_advantage",
    "push": "t.advantage * (1 - exp(t.sampler_logprob))",
    "probability": "exp(t.sampler_logprob)",
    "entropy": "t.entropy",
    "change": "t.after_logprob - t.trainer_logprob",
    "ratio": "t.ratio",
    "kl": "exp(t.ref_logprob - t.trainer_logprob) - (t.ref_logprob - t.trainer_logprob) - 1",
}
"""A token's numbers as SQL over `tokens t`; kl is the k3 estimate of the KL to the base model, in nats."""

OPENING = 12
"""Characters that two answers must share to begin alike."""


def by_tenth(lab: Lab | StepLab, run: str, field: str, split: str = "train") -> pd.DataFrame:
    """A field of `summary` by tenth of the response: step, polarity, bin (0 to 9), n (tokens), sum."""
    return lab.df(
        "SELECT step::INTEGER AS step, polarity, bin::INTEGER AS bin, n, sum FROM summary "
        "WHERE run = ? AND split = ? AND field = ? ORDER BY step, polarity, bin",
        [run, split, field],
    )


def by_position(lab: Lab | StepLab, run: str, field: str, split: str = "train", every: int = 1) -> pd.DataFrame:
    """A field of COUNTED by absolute position: step, polarity, bin (`schema.bin_start`), n (tokens), sum.

    With `every` > 1 the steps are added up in windows of so many, each named by its first possible step.
    """
    n = COUNTED[field]
    return lab.df(
        f"SELECT (step // ? * ?)::INTEGER AS step, polarity, bin, sum({n})::BIGINT AS n, sum({field}) AS sum "
        f"FROM positions WHERE run = ? AND split = ? AND {n} > 0 AND {field} IS NOT NULL "
        "GROUP BY ALL ORDER BY ALL",
        [every, every, run, split],
    )


def agreement(lab: Lab | StepLab, run: str, split: str = "train") -> pd.DataFrame:
    """How many tokens moved as their advantage pushed: step, polarity, pushed (tokens it is asked of), agreed."""
    return lab.df(
        "SELECT step, polarity, sum(n)::BIGINT AS pushed, sum(sum)::BIGINT AS agreed FROM summary "
        "WHERE run = ? AND split = ? AND field = 'agreed' GROUP BY step, polarity ORDER BY step, polarity",
        [run, split],
    )


def visits(lab: Lab | StepLab, run: str, split: str = "probe") -> pd.DataFrame:
    """Where prompts were answered: step, group, prompt_id, prompt, answer, n, correct; by step and group."""
    return lab.df(
        'SELECT step, "group", prompt_id, prompt, answer, n, correct FROM groups '
        'WHERE run = ? AND split = ? ORDER BY step, "group"',
        [run, split],
    )


def prompt_rollouts(lab: Lab | StepLab, run: str, split: str, prompt_id: str) -> pd.DataFrame:
    """One prompt's answers: a row for each step, group and polarity.

    Of the polarity: rollouts, length (mean, tokens). Of the group: different (distinct answers), alike (the most
    answers with the same first OPENING characters), truncated.
    """
    return lab.df(
        f"""
        WITH one AS (
            SELECT step, "group", polarity, length, text, truncated,
                count(*) OVER (PARTITION BY step, "group", left(text, {OPENING})) AS alike
            FROM rollouts WHERE run = ? AND split = ? AND prompt_id = ?
        ), whole AS (
            SELECT step, "group", count(DISTINCT text) AS different, max(alike) AS alike,
                count_if(truncated) AS truncated
            FROM one GROUP BY step, "group"
        )
        SELECT step, "group", polarity, count(*) AS rollouts, avg(length) AS length,
            any_value(COLUMNS(whole.* EXCLUDE (step, "group")))
        FROM one JOIN whole USING (step, "group") GROUP BY step, "group", polarity ORDER BY step, "group", polarity
        """,
        [run, split, prompt_id],
    )


def prompt_tokens(lab: Lab | StepLab, run: str, split: str, prompt_id: str, field: str) -> pd.DataFrame:
    """The tokens of one prompt's answers: a row for each step, group and polarity whose tokens were kept.

    tokens (how many), entropy (mean, nats), mean_advantage, and of a field of TOKEN_VALUES the 2nd and the 98th
    percentile: low, high.
    """
    value = TOKEN_VALUES[field]
    return lab.df(
        f"""
        WITH mine AS MATERIALIZED (
            SELECT step, "group", rollout, polarity FROM rollouts WHERE run = ? AND split = ? AND prompt_id = ?
        ), told AS (
            SELECT step, "group", polarity, count(*) AS tokens, avg(t.entropy) AS entropy,
                avg(t.advantage) AS mean_advantage,
                quantile_cont({value}, [0.02, 0.98]) FILTER (isfinite({value})) AS ends
            FROM tokens t JOIN mine USING (step, "group", rollout)
            WHERE t.run = ? AND t.split = ? AND t.step IN (SELECT DISTINCT step FROM mine)  -- skips other steps' blocks
            GROUP BY step, "group", polarity
        )
        SELECT * EXCLUDE ends, ends[1] AS low, ends[2] AS high FROM told ORDER BY step, "group", polarity
        """,
        [run, split, prompt_id, run, split],
    )
