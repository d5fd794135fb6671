"""What every part of the Favorability page looks at: the run's visits, the rule they were classed by, the step."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import streamlit as st

from app import data, urls
from app.history import history
from app.views import sureness
from core.config import ConfigError, read_run
from core.counterfactual import Spec
from core.runs import RunInfo
from core.stats.classes import OBSERVED, ClassRule, class_rule, held_back
from core.stats.labels import SIZES, BySize, Sureness, by_size, simulate
from core.stats.policies import Model, Visits, fit
from core.store import Lab, fingerprint
from core.store.queries import favorability as queries

SIMULATED = 1_200_000
"""Rollouts that a whole run's estimate draws, a tenth of a second's worth of them."""
FEWEST, MOST = 8, 48
"""Fresh groups a visit in it; sums over many visits need few, whose mean they leave unbiased."""


@dataclass(frozen=True, eq=False)
class View:
    """A run and one of its steps.

    `own` is its method, None where its config cannot be read; `visits` are all of the run's, with `visit` and `held`;
    `key` changes with them.
    """

    info: RunInfo
    lab: Lab
    own: Spec | None
    rule: ClassRule
    visits: pd.DataFrame
    step: int
    group: int
    key: Hashable

    @property
    def now(self) -> pd.DataFrame:
        """The visits of the step."""
        return self.visits[self.visits["step"] == self.step]

    @property
    def size(self) -> int:
        """G: rollouts a prompt."""
        return int(self.visits["n"].median())

    @property
    def window(self) -> int:
        """Steps that running means are over."""
        return max(1, min(10, self.visits["step"].nunique() // 8))

    def at(self, step: int, group: int) -> View:
        """The same run at another place."""
        return replace(self, step=step, group=group)


def read(info: RunInfo) -> View:
    """The run at its first step and group; without visits while it has no step."""
    own, rule = _method(info)
    key = fingerprint([info.path]), rule  # before the store is opened: what is cached under it is never older
    lab = data.lab(info)
    return View(info, lab, own, rule, _visits(key, info, lab), 0, 0, key)


def _method(info: RunInfo) -> tuple[Spec | None, ClassRule]:
    """The run's method and the rule that its classes follow; None and the paper's where the config cannot be read."""
    try:
        config = read_run(info.path / "config.yaml")
        return Spec.of_run(config), class_rule(config.build_method())
    except ConfigError:
        return None, OBSERVED


def pick(key: str) -> None:
    """A click on a square, a point or a bar: its step and group go into the URL."""
    points = (st.session_state.get(key) or {}).get("selection", {}).get("points", [])
    if points and (where := points[0].get("customdata")) is not None:
        step, group = (where[0], where[1]) if isinstance(where, list) else (where["0"], where["1"])
        urls.set_params(step=int(step), group=int(group))


def rollouts(view: View) -> pd.DataFrame:
    """The run's training rollouts, as `core.store.queries.favorability.rollouts` gives them."""
    return history(view.info, view.lab, queries.rollouts)


def estimate(view: View) -> tuple[pd.DataFrame, Sureness]:
    """The visits of whole prompts that the run's label changes are counted on (all of them in runs of usual length),
    and how sure their labels are, without intervals.
    """
    return _estimate(view.key, view)


def sizes(view: View) -> tuple[Visits, np.ndarray, BySize]:
    """Some visits, their labels, and what groups of other sizes would be called."""
    return _sizes(view.key, view)


def sure_of(view: View, which: tuple[int, ...], draws: int = 0) -> Sureness:
    """How sure the labels of the visits in these rows are; with `draws`, their intervals too."""
    return _sure_of(view.key, view, which, draws)


@st.cache_resource(show_spinner=False, max_entries=16)
def _visits(key: Hashable, _info: RunInfo, _lab: Lab) -> pd.DataFrame:
    frame = queries.numbered(history(_info, _lab, queries.groups))
    frame["held"] = held_back(frame["step"].to_numpy(), frame["weight"].to_numpy(float))
    return frame


@st.cache_resource(show_spinner=False, max_entries=16)
def _modelled(key: Hashable, _view: View) -> tuple[Visits, Model]:
    arrays = sureness.to_visits(_view.visits, rollouts(_view))
    return arrays, fit(arrays)


@st.cache_data(show_spinner="Simulating fresh groups to see what luck does to the labels …", max_entries=16)
def _estimate(key: Hashable, _view: View) -> tuple[pd.DataFrame, Sureness]:
    some = sureness.whole_prompts(_view.visits)
    if some is _view.visits:
        arrays, model = _modelled(key, _view)
    else:
        arrays, model = sureness.to_visits(some, rollouts(_view)), None
    groups = int(np.clip(SIMULATED // max(len(arrays.visit), 1), FEWEST, MOST))
    return some, simulate(arrays, _view.rule, groups=groups, model=model)


@st.cache_data(show_spinner="Simulating groups of other sizes …", max_entries=16)
def _sizes(key: Hashable, _view: View) -> tuple[Visits, np.ndarray, BySize]:
    some = sureness.whole_prompts(_view.visits, sureness.MOST_BY_SIZE)
    arrays = sureness.to_visits(some, rollouts(_view))
    own = _view.size
    steps = sorted({size for size in SIZES if size <= max(64, 2 * own)} | {own})
    return arrays, sureness.labels(some), by_size(arrays, _view.rule, steps)


@st.cache_data(show_spinner="Simulating fresh groups of each prompt …", max_entries=64)
def _sure_of(key: Hashable, _view: View, which: tuple[int, ...], draws: int) -> Sureness:
    arrays, model = _modelled(key, _view)
    return simulate(arrays, _view.rule, np.array(which, dtype=int), draws=draws, model=model)
