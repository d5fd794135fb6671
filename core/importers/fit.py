"""Which convention the trainer's advantages follow: every one is computed for all groups and held against them.

Trainers differ in a divisor: the standard deviation over n or n - 1, of the group or of the batch, or none. From the
rewards and the advantages of enough groups it can be told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from core.advantage import BASES, AdvantageError, Batch
from core.advantage.groups import group_stats
from core.advantage.words import nearest, num, percent
from core.importers.manifest import Fit

WITHIN = 1e-3
"""Times max(1, |advantage|): what counts as rounding. Files often hold three digits, or half precision."""
ENOUGH = 0.98
"""Share of rollouts that must agree before a convention is said to be the one."""
ASSUMED = "grpo-ddof1"


@dataclass(frozen=True)
class Rollouts:
    """What a convention looks at, all (N,): rollouts of all steps, those of a step side by side."""

    step: np.ndarray
    group: np.ndarray  # a number a group, of all steps
    reward: np.ndarray
    correct: np.ndarray
    tokens: np.ndarray  # response tokens; 1 where they are not known

    @property
    def batch(self) -> Batch:
        """As the rules of single groups want it: no length plays a part in them."""
        ones = np.ones(len(self.group), np.int64)
        return Batch(self.group, self.reward, self.correct, ones, np.zeros(len(ones), bool), max_length=1)


@dataclass(frozen=True)
class Convention:
    """A way to compute advantages that trainers use."""

    name: str
    label: str
    method: dict[str, Any]
    """What a run's config says for it."""
    compute: Callable[[Rollouts], np.ndarray]
    """(N,) its advantages."""
    short: str = ""
    """What tells it from its like: "ddof 0"."""
    exact: bool = True
    """Whether the lab's method is the same; else it has the numerator alone."""


def _base(name: str, **params: Any) -> Callable[[Rollouts], np.ndarray]:
    rule = BASES[name]
    values = {param.name: params.get(param.name, param.default) for param in rule.params}
    return lambda rollouts: rule.rule(rollouts.batch, values).values


def _whitened(baseline: bool) -> Callable[[Rollouts], np.ndarray]:
    """REINFORCE++ over all tokens of a step (`core.advantage.methods.whitened`), a token counted where it is known."""

    def compute(rollouts: Rollouts) -> np.ndarray:
        value = rollouts.reward
        if baseline:
            stats = group_stats(rollouts.group, value)
            value = np.where(stats.equal[stats.index], 0.0, value - stats.mean[stats.index])
        _, step = np.unique(rollouts.step, return_inverse=True)
        tokens = np.bincount(step, rollouts.tokens)
        mean = np.bincount(step, rollouts.tokens * value) / tokens
        squares = np.bincount(step, rollouts.tokens * (value - mean[step]) ** 2)
        spread = np.sqrt(squares / np.maximum(tokens - 1, 1) + 1e-8)
        return np.where(squares[step] > 0, (value - mean[step]) / spread[step], 0.0)

    return compute


def _batch_scaled(rollouts: Rollouts) -> np.ndarray:
    """Reward minus the group's mean, over the standard deviation of all rewards of the step."""
    stats = group_stats(rollouts.group, rollouts.reward)
    spread = group_stats(rollouts.step, rollouts.reward, 1)
    return (rollouts.reward - stats.mean[stats.index]) / (spread.std[spread.index] + 1e-4)


def _others_scaled(rollouts: Rollouts) -> np.ndarray:
    """Reward minus the mean of the others of its group, over the standard deviation of the others."""
    stats = group_stats(rollouts.group, rollouts.reward)
    g, reward, n = stats.index, rollouts.reward, stats.n[stats.index]
    others = np.maximum(n - 1, 1)
    mean = (stats.mean[g] * n - reward) / others
    squares = np.bincount(g, reward**2)[g] - reward**2
    variance = np.maximum(squares / others - mean**2, 0.0) * np.where(n > 2, others / np.maximum(others - 1, 1), 0.0)
    std = np.sqrt(variance)
    return (reward - mean) / np.where(std > 1e-9, std + 1e-6, 1.0)


def _grpo(name: str, ddof: int, eps: float, who: str) -> Convention:
    how = "n − 1" if ddof else "n"
    return Convention(
        name, f"GRPO, standard deviation over {how} (ddof {ddof}), ε {num(eps)}{who}",
        {"name": "grpo", "set": {"ddof": ddof, "eps": eps}}, _base("grpo", ddof=ddof, eps=eps), f"ddof {ddof}",
    )  # fmt: skip


CONVENTIONS = {
    convention.name: convention
    for convention in (
        _grpo("grpo-ddof1", 1, 1e-4, ", as TRL has it"),
        _grpo("grpo-ddof1-eps6", 1, 1e-6, ", as verl has it"),
        _grpo("grpo-ddof0", 0, 1e-4, ""),
        _grpo("grpo-ddof0-eps6", 0, 1e-6, ", as open-instruct has it"),
        Convention("dr_grpo", "Dr. GRPO: reward − group mean", {"name": "dr_grpo"}, _base("dr_grpo"), "the mean alone"),
        Convention("rloo", "RLOO: reward − mean of the others of its group", {"name": "rloo"}, _base("rloo"),
                   "leave one out"),
        Convention("batch-scaled", "reward − group mean, over the standard deviation of the step's rewards",
                   {"name": "dr_grpo"}, _batch_scaled, "the batch's standard deviation", exact=False),
        Convention("rloo-scaled", "reward − mean of the others, over their standard deviation, as NeMo-RL has it",
                   {"name": "rloo"}, _others_scaled, "leave one out, scaled", exact=False),
        Convention("reinforce_pp", "REINFORCE++: reward whitened over the step's tokens", {"name": "reinforce_pp"},
                   _whitened(False), "whitened"),
        Convention("reinforce_pp_baseline", "REINFORCE++: reward − group mean, whitened over the step's tokens",
                   {"name": "reinforce_pp_baseline"}, _whitened(True), "whitened after the mean"),
        Convention("pm1", "+1 for right, −1 for wrong", {"name": "pm1"}, _base("pm1"), "±1"),
    )
}  # fmt: skip
"""By name, the most common first: of several that agree equally well the first is named."""


def convention(name: str) -> Convention:
    """A convention by its name. Raises AdvantageError with the nearest."""
    if name not in CONVENTIONS:
        raise AdvantageError(f"there is no convention {name!r}{nearest(name, CONVENTIONS)}")
    return CONVENTIONS[name]


@dataclass(frozen=True)
class Outcome:
    """What the comparison found."""

    chosen: Convention
    sentence: str
    fits: tuple[Fit, ...] = field(default=())
    compared: int = 0


def fit(
    rollouts: Rollouts, imported: np.ndarray, wanted: str | None = None, asked: bool = True, varying: bool = False
) -> Outcome:
    """Hold every convention against the imported advantages, (N,) with NaN where there is none.

    `wanted` names the convention to take whatever fits best: somebody's wish, or (not `asked`) the run's own. `varying`
    says that there are advantages, but none that a whole response has. Raises AdvantageError where it is not known.
    """
    own = convention(wanted) if wanted else None
    wish = own if asked else None
    there = np.isfinite(imported)
    if not there.any():
        chosen = own or CONVENTIONS[ASSUMED]
        how = "as asked" if wish else "assumed"
        why = "The files hold no advantages to compare with"
        if not len(there):
            return Outcome(chosen, "The files hold no rewards, so that no advantage can be computed or compared.")
        if varying:
            why = "The imported advantages change along a response, which no convention does"
        return Outcome(chosen, f"{why}: {chosen.label}, {how}.")
    fits = {name: _distance(each, rollouts, imported, there) for name, each in CONVENTIONS.items()}
    least = min(found.mean for found in fits.values())
    near = [name for name, found in fits.items() if found.mean <= 1.05 * least + 1e-7]
    ranked = sorted(fits.values(), key=lambda found: (found.name != near[0], found.mean))
    chosen = own or CONVENTIONS[near[0]]
    sentence = _sentence(ranked, near, wish, imported[there])
    if own and not wish and own.name != near[0]:
        sentence += f" The run goes on under {own.label}."
    return Outcome(chosen, sentence, tuple(ranked), int(there.sum()))


def _distance(own: Convention, rollouts: Rollouts, imported: np.ndarray, there: np.ndarray) -> Fit:
    apart = np.abs(own.compute(rollouts) - imported)[there]
    agree = apart <= WITHIN * np.maximum(1.0, np.abs(imported[there]))
    return Fit(own.name, own.label, float(apart.max()), float(apart.mean()), float(agree.mean()))


def _sentence(ranked: list[Fit], near: list[str], asked: Convention | None, imported: np.ndarray) -> str:
    best = ranked[0]
    own = CONVENTIONS[best.name]
    if not imported.any():
        said = "The imported advantages are all 0, so that no convention can be told from another."
    elif best.within >= ENOUGH:
        said = (
            f"The advantages in the files were computed with {own.short}: {best.label}, agrees on "
            f"{percent(best.within)} of {len(imported):,} rollouts (largest difference {num(best.largest)})."
        )
        others = [CONVENTIONS[name].label for name in near if name != best.name]
        if others and own.short not in (CONVENTIONS[name].short for name in near if name != best.name):
            said += f" As near: {'; '.join(others)}."
        if not own.exact and asked is None:
            said += " The lab has no such method; what it recomputes has the numerator alone."
    else:
        said = (
            f"None of {len(ranked)} conventions fits: the nearest, {best.label}, is {num(best.mean)} off on average "
            f"(largest {num(best.largest)}) and agrees on {percent(best.within)} of {len(imported):,} rollouts."
        )
    return f"{said} Recomputed with {asked.label}, as asked." if asked else said
