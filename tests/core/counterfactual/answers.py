"""Methods, and two answers to one made-up batch, for the tests of what-if questions."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from core.advantage import Batch, Method
from core.counterfactual import Answer, Spec, answer

SPECS = (
    "grpo", "dapo", "dr_grpo", "psr", "nsr_pm1", "w_reinforce", "reinforce_pp", "a3po;mass_matched=1", "fork_tokens",
    "adora_amplify;base=dapo", "adora_code_vlm;also=a3po", "token_shaping;positive_low_scale=3", "kl_cov", "clip_cov",
    "polarity;negative=0", "entropy_advantage",
)  # fmt: skip


def method(spec: str) -> Method:
    return Spec.parse(spec).build()


def asked(spec: str, batch: Batch, **more: object) -> Answer:
    return answer(method(spec), batch, **more)


specs = st.sampled_from(SPECS)


def reordered(batch: Batch, order: np.ndarray) -> Batch:
    """The same rollouts in another order of rows."""
    rows = {name: value[order] for name, value in vars(batch).items() if isinstance(value, np.ndarray)}
    return Batch(**{**vars(batch), **rows})
