"""What the What-if page compares methods on: the rollouts of a step, and the part of them that is in view."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from app.palette import Theme, method_colour
from core.advantage import Batch, Classes, Factor, Method
from core.counterfactual import Answer, Spec


@dataclass(frozen=True, eq=False)
class Source:
    """The rollouts of a step, wherever they come from: a run's store, or typed in by hand.

    `key`: equal keys mean equal batches; answers are cached under it. `texts(i)`: the token texts of row i.
    """

    key: str
    title: str
    batch: Batch
    rollout: np.ndarray  # (N,) index within its group
    prompts: Mapping[int, str]  # by group
    texts: Callable[[int], Sequence[str]]
    own: Spec | None = None  # the method that trained on them; None where none did
    polarity_by: str = "correct"
    ratio: np.ndarray | None = None  # (N, T) stored importance ratios
    defaults: tuple[str, ...] = ()  # specs to start from where there is no own method
    refuse: Callable[[Method], str] = lambda method: ""  # why a method has no answer to what was typed; "" if it has
    note: str = ""  # a sentence to know about them, Markdown


@dataclass(frozen=True, eq=False)
class View:
    """The rollouts in view, M of the batch's N, in the picture's order: by group, best reward first."""

    rows: np.ndarray  # (M,) rows of the whole batch
    groups: np.ndarray  # (P,) bool: which of the batch's groups they belong to
    batch: Batch  # of these rows alone, cut to the longest of them
    rollout: np.ndarray  # (M,) index within its group

    @property
    def tokens(self) -> int:
        return int(self.batch.length.sum())


@dataclass(frozen=True, eq=False)
class Shown:
    """A slot's method beside the others."""

    letter: str
    label: str  # "A3PO on DAPO (as trained)"
    name: str  # the recipe's, for its colour
    whole: Answer  # to the whole batch: rules look across groups
    answer: Answer  # the same, cut to the rollouts in view

    def colour(self, theme: Theme) -> str:
        return method_colour(self.name, theme.dark)


def view_of(source: Source, group: int | None) -> View:
    """The rollouts of a group, or of the whole batch."""
    batch = source.batch
    rows = np.lexsort((source.rollout, -np.asarray(batch.reward, dtype=float), batch.group))
    if group is not None:
        rows = rows[batch.group[rows] == group]
    width = max(int(batch.length[rows].max(initial=0)), 1)
    part = {each.name: _cut(getattr(batch, each.name), rows, width) for each in fields(Batch)}
    return View(rows, np.isin(batch.groups, batch.group[rows]), Batch(**part), source.rollout[rows])


def cut(answer: Answer, view: View, ratio: np.ndarray | None = None) -> Answer:
    """The answer to the rollouts in view, out of that to the whole batch, whose stored ratios are `ratio`. Its reasons
    still count the batch's rows.
    """
    trace, rows, width = answer.trace, view.rows, view.batch.width
    penalty = trace.penalty
    if penalty is not None:
        penalty = replace(penalty, coefficient=_cut(penalty.coefficient, rows, width))
    own = replace(
        trace, penalty=penalty, base=_cut(trace.base, rows, width), advantage=_cut(trace.advantage, rows, width),
        kept=_cut(trace.kept, rows, width), polarity=trace.polarity[rows], minibatch=trace.minibatch[rows],
        factors=[_factor(factor, view) for factor in trace.factors], classes=_classes(trace.classes, view.groups),
    )  # fmt: skip
    clipped, share = _cut(answer.clipped, rows, width), None
    if clipped is not None:
        known = own.kept & np.isfinite(_cut(ratio, rows, width))
        share = float(clipped.sum() / known.sum()) if known.any() else None
    weight, factor = _cut(answer.weight, rows, width), _cut(answer.factor, rows, width)
    return Answer(answer.method, own, weight, factor, clipped, share)


def _cut(value: Any, rows: np.ndarray, width: int) -> Any:
    """An array's rows, to `width` positions; what is no array stays."""
    if not isinstance(value, np.ndarray):
        return value
    return value[rows] if value.ndim == 1 else value[rows, :width]


def _factor(factor: Factor, view: View) -> Factor:
    values = np.asarray(factor.values)
    return replace(
        factor, values=values[view.groups] if factor.per == "group" else _cut(values, view.rows, view.batch.width)
    )


def _classes(classes: Classes, groups: np.ndarray) -> Classes:
    found = {}
    for name in ("label", "length_advantage", "difficulty_advantage"):
        found[name] = [value for value, own in zip(getattr(classes, name), groups, strict=True) if own]
    for name in ("longest_correct", "mean_wrong", "weight"):
        found[name] = getattr(classes, name)[groups]
    return replace(classes, **found)
