"""The Compare page's questions: curves of several runs, the exam prompt by prompt, and a probe's rollouts side by side.

Whole-run questions are about one run and by step, so that pages can keep their answers while it grows; they read
`metrics`, `evals` and `groups`. Tokens are read for one probe prompt at one step only.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from core.store.open import Lab, StepLab


def metrics(lab: Lab | StepLab, run: str) -> pd.DataFrame:
    """Every training step of a run, every column of `metrics`, by step; traits are dicts."""
    return lab.df("SELECT * FROM metrics WHERE run = ? ORDER BY step", [run])


def evals(lab: Lab | StepLab, run: str) -> pd.DataFrame:
    """Every held-out evaluation of a run, every column of `evals`, by step; traits are dicts."""
    return lab.df("SELECT * FROM evals WHERE run = ? ORDER BY step", [run])


def exam(lab: Lab, run: str, step: int) -> pd.DataFrame:
    """The held-out prompts of one evaluation: prompt_id, prompt, n, pass_rate; one row a prompt."""
    return lab.step(run, step).df(
        "SELECT prompt_id, any_value(prompt) AS prompt, sum(n)::INT AS n, sum(correct) / sum(n) AS pass_rate "
        "FROM groups WHERE run = ? AND step = ? AND split = 'eval' GROUP BY prompt_id ORDER BY min(\"group\")",
        [run, step],
    )


def probes(lab: Lab | StepLab, run: str) -> pd.DataFrame:
    """Where a run answered probes: run, step, group, prompt_id, prompt, answer, n, correct; by step and group."""
    return lab.df(
        'SELECT run, step, "group", prompt_id, prompt, answer, n, correct FROM groups '
        "WHERE run = ? AND split = 'probe' ORDER BY step, \"group\"",
        [run],
    )


def probe_rollouts(lab: Lab, run: str, step: int, group: int) -> pd.DataFrame:
    """One probe's rollouts: rollout, text, correct, polarity, reward, length (tokens), truncated, base_advantage."""
    return lab.step(run, step).df(
        "SELECT rollout, text, correct, polarity, reward, length, truncated, base_advantage FROM rollouts "
        "WHERE run = ? AND step = ? AND split = 'probe' AND \"group\" = ? ORDER BY rollout",
        [run, step, group],
    )


def probe_tokens(lab: Lab, run: str, step: int, group: int) -> pd.DataFrame:
    """The tokens of one probe's rollouts: rollout, position, token, advantage, sampler_logprob and entropy (nats)."""
    return lab.step(run, step).df(
        "SELECT rollout, position, token, advantage, sampler_logprob, entropy FROM tokens "
        "WHERE run = ? AND step = ? AND split = 'probe' AND \"group\" = ? ORDER BY rollout, position",
        [run, step, group],
    )
