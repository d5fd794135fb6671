"""A stored step's advantages recomputed, and with them the method's own words for each token of a rollout."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import streamlit as st

from app.views.explain_loss import kl_term, loss_term, loss_weight
from app.views.tokens_why import Reasons
from core.advantage import Batch, Method, Trace, loss_weights
from core.advantage.rules import SELECTED
from core.config import ConfigError
from core.store import Lab, StoreError, replay


@dataclass(frozen=True)
class Replayed:
    """A step as its method sees it. Rollout r of group g is row `row[g, r]` of the arrays (N, T)."""

    method: Method
    batch: Batch
    trace: Trace
    weight: np.ndarray
    row: dict[tuple[int, int], int]


@st.cache_resource(max_entries=8, show_spinner=False)
def replayed(_lab: Lab, run: str, step: int, split: str, mark: object) -> Replayed | str:
    """The step recomputed, or the sentence that says why it cannot be. `mark` changes when the run's files do."""
    try:
        done = replay(_lab, run, step, split)
    except (StoreError, ConfigError) as error:
        return str(error)
    method, batch, trace = done.trace.method, done.batch, done.trace
    weight = loss_weights(trace.kept, batch.length, batch.max_length, method.loss.aggregation, trace.minibatch)
    return Replayed(method, batch, trace, weight, done.row)


def reasons(found: Replayed | str, group: int, rollout: int, tokens: pd.DataFrame) -> Reasons | None:
    """The words for one rollout, whose `token_frame` rows are `tokens`; None where the step could not be recomputed."""
    if isinstance(found, str) or (group, rollout) not in found.row:
        return None
    i, trace, batch = found.row[group, rollout], found.trace, found.batch
    ratio = np.full(trace.advantage.shape, np.nan)
    ratio[i, : len(tokens)] = tokens["ratio"].to_numpy(dtype=float)
    return Reasons(
        base=lambda t: trace.explain_base(i, t),
        factors={factor.id: lambda t, factor=factor: factor.explain(i, t) for factor in trace.factors},
        penalty=(lambda t: trace.penalty.explain(i, t)) if trace.penalty else None,
        term=lambda t: loss_term(found, batch, i, t, ratio),
        kl=lambda t: kl_term(found, batch, i, t, ratio),
        weighing=lambda t, total: loss_weight(found, batch, i, t, total),
    )


def selection(found: Replayed | str, group: int) -> str | None:
    """Why the method keeps nothing of a group: the words of its factor `selected` for the group's first rollout."""
    if isinstance(found, str):
        return None
    row = next((i for (own, _), i in sorted(found.row.items()) if own == group), None)
    factor = next((factor for factor in found.trace.factors if factor.id == SELECTED), None)
    return None if row is None or factor is None else factor.explain(row, 0)


def factor_names(found: Replayed | str, lab: Lab, rollouts: pd.DataFrame, tokens: pd.DataFrame) -> list[str]:
    """The method's factors in its own order, or the store's columns where they cannot be recomputed."""
    if not isinstance(found, str):
        return [factor.id for factor in found.trace.factors]
    names = [*lab.factors("rollouts"), *lab.factors("tokens")]
    return [
        name[2:] for name in names if any(name in frame and frame[name].notna().any() for frame in (rollouts, tokens))
    ]
