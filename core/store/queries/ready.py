"""Statements that are ready to run on the SQL page, each the answer to a question that people ask first.

They run on any run, older ones too: `strings` and `positions` are then empty, newer columns NULL. Whole-run questions
read the sums of `summary`, `strings`, `groups`, `rollouts` and `metrics`; the few that read tokens take one step.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Ready:
    """A statement with its question; `area` is the page that the question belongs to."""

    id: str
    area: str
    title: str
    answers: str
    sql: str


READY = (
    Ready(
        "suppressed-strings", "Tokens", "Most suppressed token strings",
        "Which pieces of text did the updates push down most, over the whole run?",
        """
SELECT run, token, sum(push) AS push, sum(trained) AS trained, sum(change) / sum(changed) AS mean_change
FROM strings
WHERE split = 'train'
GROUP BY run, token
ORDER BY push
LIMIT 50
""",
    ),
    Ready(
        "biggest-pushes", "Tokens", "The hardest pushes of a step, and what the update did",
        "Which single tokens of the last recorded step were pushed hardest, and did their log-prob follow?",
        """
WITH last AS (SELECT run, max(step) AS step FROM tokens WHERE split = 'train' GROUP BY run)
SELECT run, step, "group", rollout, position, token, exp(sampler_logprob) AS probability, base_advantage, advantage,
  advantage * (1 - exp(sampler_logprob)) AS push, after_logprob - trainer_logprob AS change, clipped
FROM tokens JOIN last USING (run, step)
WHERE split = 'train' AND kept
ORDER BY abs(push) DESC
LIMIT 50
""",
    ),
    Ready(
        "clipped", "Tokens", "Tokens clipped",
        "At which steps did clipping stop gradients, at the lower or the upper bound?",
        """
SELECT run, step, clip_low_share, clip_high_share, ratio_max
FROM metrics
ORDER BY clip_low_share + clip_high_share DESC NULLS LAST
LIMIT 100
""",
    ),
    Ready(
        "by-luck", "Tokens", "Right by luck",
        "How many right answers had wrong steps, where the task can tell?",
        """
SELECT run, step, count(*) AS right_answers, count_if(traits['lucky'] > 0) AS by_luck,
  count_if(traits['lucky'] > 0) / count(*) AS share
FROM rollouts
WHERE split = 'train' AND correct
GROUP BY run, step
ORDER BY run, step
""",
    ),
    Ready(
        "moved-as-pushed", "Tokens", "Did tokens move the way they were pushed?",
        "What share of the pushed tokens moved with their advantage, step by step?",
        """
SELECT run, step, sum(agreed) / nullif(sum(pushed), 0) AS moved_as_pushed, sum(pushed) AS pushed_tokens
FROM positions
WHERE split = 'train'
GROUP BY run, step
ORDER BY run, step
""",
    ),
    Ready(
        "entropy-by-polarity", "Polarity", "Entropy by polarity over steps",
        "Do right or wrong answers lose their entropy first?",
        """
SELECT run || if(polarity > 0, ', right', ', wrong') AS answers, step, sum(sum) / sum(n) AS entropy, sum(n) AS tokens
FROM summary
WHERE field = 'entropy' AND split = 'train'
GROUP BY answers, step
ORDER BY answers, step
""",
    ),
    Ready(
        "mass-ratio", "Polarity", "Advantage mass of wrong over right, before and after shaping",
        "How much more does the update hear of wrong answers than of right ones, and what did the method change?",
        """
SELECT run, step, mass_negative / nullif(mass_positive, 0) AS wrong_over_right,
  mass_negative_base / nullif(mass_positive_base, 0) AS before_shaping
FROM metrics
ORDER BY run, step
""",
    ),
    Ready(
        "no-signal", "Polarity", "Groups without signal",
        "How many groups of a step were all right or all wrong, and taught nothing?",
        """
SELECT run, step, count(*) AS groups, count_if(correct = n) AS all_right, count_if(correct = 0) AS all_wrong,
  count_if(correct IN (0, n)) / count(*) AS share
FROM groups
WHERE split = 'train'
GROUP BY run, step
ORDER BY run, step
""",
    ),
    Ready(
        "pass-at-k", "Polarity", "pass@1 against pass@k",
        "Does the run solve more at the first try, and does its reach with k tries shrink?",
        """
SELECT run, step, pass_at_1, k, pass_at_k, pass_at_k - pass_at_1 AS room
FROM evals
ORDER BY run, step
""",
    ),
    Ready(
        "held-back", "Favorability", "Prompts held back at a step",
        "Which prompts counted less than the others at step 40?",
        """
SELECT run, step, "group", prompt, class, weight, correct, n, longest_correct, mean_wrong_length
FROM groups
WHERE split = 'train' AND step = 40 AND (weight < 1 OR class = 'unfavorable')
ORDER BY run, weight, "group"
""",
    ),
    Ready(
        "mass-by-difficulty", "Favorability", "Advantage mass by pass rate",
        "Do hard, middling or easy prompts make the update?",
        """
WITH visits AS (
  SELECT g.run, round(g.pass_rate * 4) / 4 AS pass_rate, g.weight, sum(r.mass) AS mass, avg(r.length) AS length
  FROM groups g JOIN rollouts r USING (run, step, split, "group")
  WHERE split = 'train'
  GROUP BY g.run, g.step, g."group", g.pass_rate, g.weight
)
SELECT run, pass_rate, count(*) AS visits, sum(mass) / sum(sum(mass)) OVER (PARTITION BY run) AS share_of_mass,
  avg(weight) AS mean_weight, avg(length) AS mean_length
FROM visits
GROUP BY run, pass_rate
ORDER BY run, pass_rate
""",
    ),
    Ready(
        "label-changes", "Favorability", "Prompts whose class changes most",
        "Which prompts went back and forth between favorable and unfavorable?",
        """
WITH visits AS (
  SELECT run, prompt_id, prompt, class, lag(class) OVER (PARTITION BY run, prompt_id ORDER BY step, "group") AS before
  FROM groups
  WHERE split = 'train'
)
SELECT run, any_value(prompt) AS prompt, count(*) AS visits, count_if(class <> before) AS changes,
  count_if(class = 'favorable') AS favorable
FROM visits
GROUP BY run, prompt_id
ORDER BY changes DESC, visits
LIMIT 100
""",
    ),
    Ready(
        "final-values", "Compare", "Where each run ended",
        "Which run solved most in the end, and which kept its entropy?",
        """
WITH trained AS (
  SELECT run, max(step) + 1 AS steps, arg_max(entropy, step) AS entropy, arg_max(length, step) AS length,
    sum(time_step) AS seconds
  FROM metrics
  GROUP BY run
), examined AS (
  SELECT run, arg_max(pass_at_1, step) AS pass_at_1, arg_max(pass_at_k, step) AS pass_at_k
  FROM evals
  GROUP BY run
)
SELECT run, steps, pass_at_1, pass_at_k, entropy, length, seconds
FROM trained LEFT JOIN examined USING (run)
ORDER BY pass_at_1 DESC NULLS LAST
""",
    ),
    Ready(
        "learning-curve", "Compare", "Learning curves",
        "How did pass rate, entropy and length go, run by run?",
        """
SELECT run, step, pass_rate, entropy, length, truncated_share
FROM metrics
ORDER BY run, step
""",
    ),
)  # fmt: skip
"""In the order of the pages that they belong to."""


def ready(key: str | None) -> Ready | None:
    """The statement of that id; None if there is none."""
    return next((one for one in READY if one.id == key), None)


def statement(one: Ready) -> str:
    """Its text as an editor shows it."""
    return one.sql.strip()
