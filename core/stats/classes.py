"""How a method classes prompts, as a function of many groups at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from core.advantage.methods.adora import TAU, VARIANTS, Evidence, Verdict
from core.advantage.registry import WEIGHTS
from core.advantage.types import Method

CLASSES = ("favorable", "unfavorable", "uniform")
FAVORABLE, UNFAVORABLE, UNIFORM = range(3)
_NO_CHANGE = 1e-6
"""Weights this near to each other are one: they are stored in 32 bits."""


@dataclass(frozen=True)
class ClassRule:
    """One of ADORA's variants with its numbers; `trained` is False where a run's classes are only observed.

    `tau` and `combine` are None where the variant looks at lengths alone.
    """

    variant: str
    weight: float
    tau: float | None = None
    combine: str | None = None
    trained: bool = True

    @property
    def amplifies(self) -> bool:
        """The weight is that of favorable prompts; elsewhere it is that of the others."""
        return self.variant == "adora_amplify"

    def judge(self, seen: Evidence) -> Verdict:
        """The classes and weights of P groups, from their numbers alone."""
        return VARIANTS[self.variant](seen, {"weight": self.weight, "tau": self.tau, "combine": self.combine})

    def labels(self, correct: np.ndarray, length: np.ndarray, truncated: np.ndarray) -> np.ndarray:
        """Classes of M groups of G rollouts, (M, G) each: (M,) indices into CLASSES. Rewards are 1 or 0."""
        usable = ~correct & ~truncated
        longest = np.where(correct, length, 0).max(axis=1, initial=0)
        return self.label_index(
            *(correct.shape[1], correct.sum(axis=1), usable.sum(axis=1), longest, (length * usable).sum(axis=1))
        )

    def label_index(
        self, n: int, correct: np.ndarray, usable_wrong: np.ndarray, longest: np.ndarray, wrong_total: np.ndarray
    ) -> np.ndarray:
        """The same from counts: (M,) correct and usable wrong rollouts of n, the longest correct one and the sum of
        the usable wrong ones in tokens.
        """
        with np.errstate(invalid="ignore", divide="ignore"):
            mean_wrong = wrong_total / usable_wrong
        return index_of(
            self.judge(
                evidence(
                    n=np.full(correct.shape, n), correct=correct, usable_wrong=usable_wrong,
                    longest_correct=np.where(correct > 0, longest, np.nan), mean_wrong=mean_wrong,
                    equal=(correct == 0) | (correct == n),
                )
            )
        )  # fmt: skip


def held_back(step: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """(M,) bool: which groups were held back: their weight is below 1, or below the largest of their step."""
    _, index = np.unique(step, return_inverse=True)
    largest = np.ones(int(index.max(initial=-1)) + 1)
    np.fmax.at(largest, index, weight)  # a weight that is no number, as an import may have, holds nobody back
    return weight < largest[index] - _NO_CHANGE


def evidence(
    *,
    n: np.ndarray,
    correct: np.ndarray,
    usable_wrong: np.ndarray,
    longest_correct: np.ndarray,
    mean_wrong: np.ndarray,
    equal: np.ndarray,
) -> Evidence:
    """What the criteria look at, (P,) each, of groups whose rollouts are not at hand; lengths NaN where there are none.

    The variants do not ask which rollout is in which group.
    """
    return Evidence(np.arange(len(n)), n, correct, usable_wrong, longest_correct, mean_wrong, equal)


def make_rule(
    variant: str, *, weight: float | None = None, tau: float | None = None, combine: str | None = None
) -> ClassRule:
    """A variant with these numbers, its defaults where they are None; what the variant does not have is left out.

    Raises KeyError for an unknown variant, AdvantageError where a number is outside its range.
    """
    given = {"weight": weight, "tau": tau, "combine": combine}
    params = {
        param.name: param.check(param.default if given[param.name] is None else given[param.name])
        for param in WEIGHTS[variant].params
        if param.name in given
    }
    return ClassRule(variant, params["weight"], params.get("tau"), params.get("combine"))


OBSERVED = ClassRule("adora_amplify", weight=1.0, tau=TAU, combine="any", trained=False)
"""The paper's criteria, for runs that do not train with classes."""


def class_rule(method: Method) -> ClassRule:
    """The rule of the method's first ADORA weight; without one the paper's, by which pages still class its prompts."""
    weight = next((rule for rule in method.weights if rule.name in VARIANTS), None)
    if weight is None:
        return OBSERVED
    params = {name: weight.params.get(name) for name in ("tau", "combine")}
    return ClassRule(weight.name, float(weight.params["weight"]), **params)


def index_of(verdict: Verdict) -> np.ndarray:
    """The classes of a verdict as indices into CLASSES, int8."""
    return np.where(verdict.uniform, UNIFORM, np.where(verdict.favorable, FAVORABLE, UNFAVORABLE)).astype(np.int8)


def label_index(labels: Sequence[str]) -> np.ndarray:
    """Class names as indices into CLASSES, int8."""
    place = {name: index for index, name in enumerate(CLASSES)}
    return np.fromiter((place[label] for label in labels), np.int8, len(labels))
