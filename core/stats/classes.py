"""How a method classes prompts, as a function of many groups at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from core.advantage.methods.adora import TAU, classify
from core.advantage.registry import WEIGHTS
from core.advantage.types import Batch, Classes, Method

CLASSES = ("favorable", "unfavorable", "uniform")


@dataclass(frozen=True)
class ClassRule:
    """A method's rule for favorable and unfavorable. `name` is its ADORA weight, None where classes are only observed.

    `tau` is None where the rule does not look at difficulty; `combine` where it has one criterion only.
    """

    name: str | None
    classify: Callable[[Batch], Classes]
    tau: float | None = TAU
    combine: str | None = "any"
    weight: float = 1.0

    def labels(self, correct: np.ndarray, length: np.ndarray, truncated: np.ndarray) -> np.ndarray:
        """Classes of M groups of G rollouts, (M, G) each: (M,) indices into CLASSES. Rewards are 1 or 0."""
        count, size = correct.shape
        batch = Batch(
            group=np.repeat(np.arange(count), size),
            reward=correct.ravel().astype(float),
            correct=correct.ravel(),
            length=length.ravel(),
            truncated=truncated.ravel(),
            max_length=int(length.max(initial=1)),
        )
        return label_index(self.classify(batch).label) if count else np.zeros(0, np.int8)


OBSERVED = ClassRule(None, classify)
"""The paper's criteria, for runs that do not train with classes."""


def class_rule(method: Method) -> ClassRule:
    """The rule of the method's first ADORA weight; without one the paper's, by which pages still class its prompts."""
    weight = next((rule for rule in method.weights if WEIGHTS[rule.name].classify is not None), None)
    if weight is None:
        return OBSERVED
    return ClassRule(
        name=weight.name,
        classify=partial(WEIGHTS[weight.name].classify, params=weight.params),
        tau=weight.params.get("tau"),
        combine=weight.params.get("combine"),
        weight=float(weight.params["weight"]),
    )


def label_index(labels: list[str]) -> np.ndarray:
    """Class names as indices into CLASSES, int8."""
    return np.array([CLASSES.index(label) for label in labels], dtype=np.int8)
