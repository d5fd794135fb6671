"""The Polarity page's questions. Whole-run ones read `summary`, `strings`, `rollouts` and `groups`; the eight cells
read one step's tokens.

Polarity is +1 (correct) or -1 (wrong). Masses are sums of loss weight x |advantage| over kept tokens, 0 in probes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from core.store.open import Lab, StepLab


def answers_by_step(lab: Lab | StepLab, run: str, split: str = "train") -> pd.DataFrame:
    """One row a step and polarity, and on both rows of a step what its groups can teach. Dropped groups count.

    Of the polarity: rollouts, length (mean, tokens), reward (mean), truncated (share), flagged (correct rollouts with a
    negative base advantage). Of the step: groups, all_correct, all_wrong, mixed, no_signal (equal rewards), dropped.
    """
    return lab.df(
        """
        WITH part AS MATERIALIZED (
            SELECT step, "group", polarity, count(*) AS rollouts, sum(length) AS length, sum(reward) AS reward,
                sum(truncated::INT) AS truncated, count_if(correct AND base_advantage < 0) AS flagged,
                min(reward) AS low, max(reward) AS high, bool_and(correct) AS every, bool_or(correct) AS any_right,
                bool_or(kept) AS kept
            FROM rollouts WHERE run = ? AND split = ? GROUP BY step, "group", polarity
        ), one AS (
            SELECT step, "group", min(low) = max(high) AS equal, bool_and(every) AS every,
                bool_or(any_right) AS any_right, bool_or(kept) AS kept
            FROM part GROUP BY step, "group"
        ), whole AS (
            SELECT step, count(*) AS groups, count_if(every) AS all_correct, count_if(NOT any_right) AS all_wrong,
                count_if(any_right AND NOT every) AS mixed, count_if(equal) AS no_signal, count_if(NOT kept) AS dropped
            FROM one GROUP BY step
        )
        SELECT step, polarity, sum(rollouts)::BIGINT AS rollouts, sum(length) / sum(rollouts) AS length,
            sum(reward) / sum(rollouts) AS reward, sum(truncated) / sum(rollouts) AS truncated,
            sum(flagged)::BIGINT AS flagged, any_value(COLUMNS(whole.* EXCLUDE step))
        FROM part JOIN whole USING (step) GROUP BY step, polarity ORDER BY step, polarity
        """,
        [run, split],
    )


def fields_by_step(lab: Lab | StepLab, run: str, split: str = "train") -> pd.DataFrame:
    """One row a step and polarity: step, polarity, tokens, entropy (mean, nats), probability (mean), mass,
    base_mass.
    """
    return lab.df(
        "SELECT step, polarity, sum(n) FILTER (field = 'probability') AS tokens, "
        "sum(sum) FILTER (field = 'entropy') / nullif(sum(n) FILTER (field = 'entropy'), 0) AS entropy, "
        "sum(sum) FILTER (field = 'probability') / nullif(sum(n) FILTER (field = 'probability'), 0) AS probability, "
        "coalesce(sum(sum) FILTER (field = 'mass'), 0) AS mass, "
        "coalesce(sum(sum) FILTER (field = 'base_mass'), 0) AS base_mass "
        "FROM summary WHERE run = ? AND split = ? GROUP BY ALL ORDER BY step, polarity",
        [run, split],
    )


def covariances(lab: Lab | StepLab, run: str, split: str = "train") -> pd.DataFrame:
    """What `core.stats.covariance` needs, one row a step and polarity: step, polarity, trained (kept tokens), products
    (those with a log-prob), tokens and n (all, and those with an entropy); the sums of entropy (nats) over n, of
    advantage and product (log-prob x advantage) over kept tokens; and over all tokens with an entropy after the update
    changed (how many) and entropy_change (sum, nats). products is 0 where the run did not add them up.
    """
    return lab.df(
        "SELECT step, polarity, coalesce(sum(n) FILTER (field = 'advantage'), 0)::BIGINT AS trained, "
        "coalesce(sum(n) FILTER (field = 'logprob_advantage'), 0)::BIGINT AS products, "
        "coalesce(sum(n) FILTER (field = 'probability'), 0)::BIGINT AS tokens, "
        "coalesce(sum(n) FILTER (field = 'entropy'), 0)::BIGINT AS n, "
        "coalesce(sum(sum) FILTER (field = 'entropy'), 0) AS entropy, "
        "coalesce(sum(sum) FILTER (field = 'advantage'), 0) AS advantage, "
        "coalesce(sum(sum) FILTER (field = 'logprob_advantage'), 0) AS product, "
        "coalesce(sum(n) FILTER (field = 'entropy_change'), 0)::BIGINT AS changed, "
        "coalesce(sum(sum) FILTER (field = 'entropy_change'), 0) AS entropy_change "
        "FROM summary WHERE run = ? AND split = ? "
        "AND field IN ('probability', 'entropy', 'advantage', 'logprob_advantage', 'entropy_change') "
        "GROUP BY ALL ORDER BY step, polarity",
        [run, split],
    )


def strings(lab: Lab, run: str, first: int, last: int, split: str = "train", most: int = 10) -> pd.DataFrame:
    """The token strings that got the most push over the steps first..last, one row a string and polarity.

    Taken are the `most` of each polarity with the largest push up, and as many down; a string that one polarity's list
    names has a row for the other as well, if that has it. Columns: polarity, token_id, token, tokens, trained, push
    (sum over its kept tokens of advantage x (1 - p)), change (mean change of log-prob, nats; NULL if not recorded),
    rank (from 1, within its polarity and direction; NULL behind `most`) and kept (the most rows that a step, split and
    polarity has: STRINGS_KEPT says that some were left out). By polarity, then |push| descending.
    """
    return lab.df(
        """
        WITH part AS MATERIALIZED (
            SELECT step, polarity, token_id, token, tokens, trained, push, change, changed FROM strings
            WHERE run = $run AND split = $split AND step BETWEEN $first AND $last
        ), one AS (
            SELECT polarity, token_id, any_value(token) AS token, sum(tokens)::BIGINT AS tokens,
                sum(trained)::BIGINT AS trained, coalesce(sum(push), 0) AS push,
                sum(change) / nullif(sum(changed), 0) AS change
            FROM part GROUP BY polarity, token_id
        ), ranked AS (
            SELECT *, row_number() OVER (PARTITION BY polarity, push > 0 ORDER BY abs(push) DESC, token_id) AS place
            FROM one
        ), named AS (
            SELECT DISTINCT token_id FROM ranked WHERE place <= $most AND push <> 0
        ), fullest AS (
            SELECT max(n) AS kept FROM (SELECT count(*) AS n FROM part GROUP BY step, polarity)
        )
        SELECT polarity, token_id, token, tokens, trained, push, change,
            CASE WHEN place <= $most AND push <> 0 THEN place END AS rank, kept
        FROM ranked JOIN named USING (token_id), fullest ORDER BY polarity, abs(push) DESC, token_id
        """,
        {"run": run, "split": split, "first": first, "last": last, "most": most},
    )


def has_strings(lab: Lab, run: str) -> bool:
    """Whether the run added up what each string got; runs of earlier versions did not."""
    return bool(lab.rows("SELECT 1 FROM strings WHERE run = ? LIMIT 1", [run]))


def histograms(lab: Lab | StepLab, run: str, field: str, split: str = "train") -> pd.DataFrame:
    """Token counts of a summary field: step, polarity, bucket (0-based, between the field's fixed edges), n."""
    return lab.df(
        "WITH one AS (SELECT step, polarity, unnest(histogram) AS n, generate_subscripts(histogram, 1) - 1 AS bucket "
        "FROM summary WHERE run = ? AND split = ? AND field = ?) "
        "SELECT step, polarity, bucket, sum(n)::BIGINT AS n FROM one GROUP BY ALL ORDER BY step, polarity, bucket",
        [run, split, field],
    )


ROLLOUT_FIELDS = ("length", "reward")
"""What a whole answer has one of: its length in tokens, its reward."""


def rollout_values(lab: Lab | StepLab, run: str, field: str, split: str = "train") -> pd.DataFrame:
    """How many rollouts have each value of one of ROLLOUT_FIELDS: step, polarity, value, n; ascending in that order."""
    if field not in ROLLOUT_FIELDS:
        raise ValueError(f"not a field of rollouts: {field!r}")
    return lab.df(
        f"SELECT step, polarity, {field}::DOUBLE AS value, count(*) AS n FROM rollouts "
        f"WHERE run = ? AND split = ? AND isfinite({field}::DOUBLE) GROUP BY ALL ORDER BY step, polarity, value",
        [run, split],
    )


def exams(lab: Lab | StepLab, run: str) -> pd.DataFrame:
    """Every held-out prompt at every evaluation: step, prompt_id, n (rollouts), correct."""
    return lab.df(
        "SELECT step, prompt_id, sum(n)::BIGINT AS n, sum(correct)::BIGINT AS correct FROM groups "
        "WHERE run = ? AND split = 'eval' GROUP BY ALL ORDER BY step, prompt_id",
        [run],
    )


def group_masses(lab: Lab, run: str, step: int, split: str = "train") -> pd.DataFrame:
    """The groups of one step with their mass by polarity: group, prompt, n, correct, kept, positive, negative."""
    return lab.step(run, step).df(
        'WITH mass AS (SELECT "group", r.polarity, sum(loss_weight * abs(advantage)) AS mass '
        'FROM tokens t JOIN rollouts r USING (run, step, split, "group", rollout) '
        "WHERE run = ? AND step = ? AND split = ? AND t.kept GROUP BY ALL) "
        'SELECT g."group", prompt, n, correct, kept, '
        'coalesce((SELECT mass FROM mass m WHERE m."group" = g."group" AND polarity = 1), 0) AS positive, '
        'coalesce((SELECT mass FROM mass m WHERE m."group" = g."group" AND polarity = -1), 0) AS negative '
        'FROM groups g WHERE run = ? AND step = ? AND split = ? ORDER BY g."group"',
        [run, step, split] * 2,
    )


def cells(lab: Lab, run: str, step: int, split: str = "train", ratio: float = 0.2) -> pd.DataFrame:
    """The eight cells of one step: polarity x metric (probability, entropy) x end (low, high), one row each.

    A cell holds the max(1, int(ratio n)) tokens of each response with the lowest or highest metric, n counting the
    tokens whose metric is not zero. Columns: tokens, share (of all tokens of the step), mass, mass_share, base_mass,
    base_mass_share, push (sum of loss weight x |advantage| x (1 - p)), push_share, change (mean change of log-prob in
    the update, nats), and the token with the most mass: group, rollout, position. Shares of a total of 0 are NULL.
    For `core.stats.covariance`: trained, n, entropy, advantage, product, changed and entropy_change as in
    `covariances`, and the same of all tokens of the step as all_trained, all_n, ...
    """
    return lab.step(run, step).df(
        """
        WITH one AS (
            SELECT t."group", t.rollout, t.position, r.polarity, exp(t.sampler_logprob) AS probability, t.entropy,
                coalesce(t.loss_weight * abs(t.advantage), 0) * t.kept::INT AS mass,
                coalesce(t.loss_weight * abs(t.base_advantage), 0) * t.kept::INT AS base_mass,
                coalesce(t.loss_weight * abs(t.advantage) * (1 - exp(t.sampler_logprob)), 0) * t.kept::INT AS push,
                t.after_logprob - t.trainer_logprob AS change,
                CASE WHEN t.kept AND isfinite(t.trainer_logprob) THEN t.advantage::DOUBLE END AS advantage,
                CASE WHEN t.kept AND isfinite(t.trainer_logprob) THEN t.trainer_logprob::DOUBLE * t.advantage END
                    AS product,
                CASE WHEN isfinite(t.entropy) THEN t.entropy::DOUBLE END AS known_entropy,
                CASE WHEN isfinite(t.entropy_after) THEN t.entropy_after - known_entropy END AS entropy_change
            FROM tokens t JOIN rollouts r USING (run, step, split, "group", rollout)
            WHERE run = ? AND step = ? AND split = ?
        ), long AS (
            SELECT *, 'probability' AS metric, probability AS value FROM one WHERE probability <> 0
            UNION ALL SELECT *, 'entropy', entropy FROM one WHERE entropy <> 0
        ), ranked AS (
            SELECT *, row_number() OVER (low) AS from_low, row_number() OVER (high) AS from_high,
                greatest(1, floor(? * count(*) OVER (PARTITION BY metric, "group", rollout))) AS take
            FROM long WINDOW low AS (PARTITION BY metric, "group", rollout ORDER BY value, position),
                high AS (PARTITION BY metric, "group", rollout ORDER BY value DESC, position)
        ), member AS (
            SELECT *, 'low' AS "end" FROM ranked WHERE from_low <= take
            UNION ALL SELECT *, 'high' FROM ranked WHERE from_high <= take
        ), total AS (
            SELECT count(*) AS tokens, sum(mass) AS mass, sum(base_mass) AS base_mass, sum(push) AS push,
                count(advantage) AS all_trained, count(known_entropy) AS all_n,
                coalesce(sum(known_entropy), 0) AS all_entropy,
                coalesce(sum(advantage), 0) AS all_advantage, coalesce(sum(product), 0) AS all_product,
                count(entropy_change) AS all_changed, coalesce(sum(entropy_change), 0) AS all_entropy_change
            FROM one
        )
        SELECT polarity, metric, "end", count(*) AS tokens, count(*) / any_value(total.tokens) AS share,
            sum(m.mass) AS mass, sum(m.mass) / nullif(any_value(total.mass), 0) AS mass_share,
            sum(m.base_mass) AS base_mass, sum(m.base_mass) / nullif(any_value(total.base_mass), 0) AS base_mass_share,
            sum(m.push) AS push, sum(m.push) / nullif(any_value(total.push), 0) AS push_share, avg(change) AS change,
            arg_max("group", m.mass) AS "group", arg_max(rollout, m.mass) AS rollout,
            arg_max(position, m.mass) AS position,
            count(advantage) AS trained, count(known_entropy) AS n, coalesce(sum(known_entropy), 0) AS entropy,
            coalesce(sum(advantage), 0) AS advantage, coalesce(sum(product), 0) AS product,
            count(entropy_change) AS changed,
            coalesce(sum(entropy_change), 0) AS entropy_change, any_value(COLUMNS('^all_'))
        FROM member m, total GROUP BY polarity, metric, "end" ORDER BY polarity DESC, metric DESC, "end"
        """,
        [run, step, split, ratio],
    )
