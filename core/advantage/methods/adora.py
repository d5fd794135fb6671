"""ADORA (arXiv 2602.10019): one weight a prompt, from whether it is worth learning right now.

Each step a prompt is classed from its current rollouts alone:
- length advantage: the longest correct rollout is longer than the mean of the usable (not truncated) wrong ones,
  strictly. Not defined without both a correct and a usable wrong rollout.
- difficulty advantage: success rate <= tau.
A prompt is *favorable* where the variant's criteria hold, *uniform* where none of them is defined, else *unfavorable*.

Two variants are the paper's; two reproduce the released code, which differs from the paper and from itself in groups
without both a correct and a usable wrong rollout; groups of equal rewards show as uniform there, with their weight.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from core.advantage.groups import extreme, group_stats, mean_of
from core.advantage.rules import Outcome, Param, Params, State, Weight
from core.advantage.types import AdvantageError, Batch, Classes
from core.advantage.words import num

TAU = 0.5


@dataclass(frozen=True)
class Evidence:
    """What the criteria look at, (P,) in the order of `Batch.groups`; `index` (N,) maps rollouts to groups."""

    index: np.ndarray
    n: np.ndarray
    correct: np.ndarray  # correct rollouts
    usable_wrong: np.ndarray  # wrong rollouts that were not truncated
    longest_correct: np.ndarray  # NaN without one
    mean_wrong: np.ndarray  # over usable wrong rollouts, NaN without one
    equal: np.ndarray  # all rewards of the group are equal

    @property
    def longer(self) -> np.ndarray:
        """Longest correct > mean usable wrong; False where either is missing."""
        return self.longest_correct > self.mean_wrong

    @property
    def length_defined(self) -> np.ndarray:
        return (self.correct > 0) & (self.usable_wrong > 0)

    def difficult(self, tau: float) -> np.ndarray:
        return self.correct / self.n <= tau


@dataclass(frozen=True)
class Verdict:
    """A variant's judgement of each prompt, (P,)."""

    favorable: np.ndarray
    uniform: np.ndarray
    weight: np.ndarray
    tau: float = TAU


def evidence(batch: Batch) -> Evidence:
    stats = group_stats(batch.group, batch.reward)
    usable = ~batch.correct & ~batch.truncated & batch.measured
    length = batch.length.astype(float)
    return Evidence(
        index=stats.index,
        n=stats.n,
        correct=np.bincount(stats.index, batch.correct).astype(int),
        usable_wrong=np.bincount(stats.index, usable).astype(int),
        longest_correct=extreme(stats.index, length, np.maximum, batch.correct & batch.measured),
        mean_wrong=mean_of(stats.index, length, usable),
        equal=stats.equal,
    )


def amplify(seen: Evidence, params: Params) -> Verdict:
    """The paper's rule for language models: favorable = length or difficulty, weight > 1.

    `any`: a criterion that is defined holds. `all`: both are defined and hold. Difficulty is always defined.
    """
    difficult = seen.difficult(params["tau"])
    favorable = seen.longer | difficult if params["combine"] == "any" else seen.longer & difficult
    weight = np.where(favorable, params["weight"], 1.0)
    return Verdict(favorable, np.zeros_like(favorable), weight, params["tau"])


def attenuate(seen: Evidence, params: Params) -> Verdict:
    """The paper's rule for vision-language models: favorable = length, the unfavorable are weighed down."""
    uniform = ~seen.length_defined
    return Verdict(seen.longer, uniform, np.where(seen.longer | uniform, 1.0, params["weight"]))


def code_llm(seen: Evidence, params: Params) -> Verdict:
    """The released code for language models: also weighs down prompts with no correct rollout."""
    down = np.where(seen.correct == 0, True, (seen.usable_wrong > 0) & ~seen.longer)
    return Verdict(~down & ~seen.equal, seen.equal, np.where(down, params["weight"], 1.0))


def code_vlm(seen: Evidence, params: Params) -> Verdict:
    """The released code for vision-language models: weighs down prompts with no usable wrong rollout instead."""
    down = (seen.correct > 0) & ~seen.longer
    return Verdict(~down & ~seen.equal, seen.equal, np.where(down, params["weight"], 1.0))


Variant = Callable[[Evidence, Params], Verdict]

VARIANTS: dict[str, Variant] = {
    "adora_amplify": amplify, "adora_attenuate": attenuate, "adora_code_llm": code_llm, "adora_code_vlm": code_vlm,
}  # fmt: skip
"""The rules by the name of their weight, for those who have a group's numbers and not its rollouts."""


def classify(batch: Batch, tau: float = TAU, combine: str = "any") -> Classes:
    """The paper's classes by length and difficulty, for methods that don't weigh prompts: weight 1, not trained on.

    Raises AdvantageError where `combine` is neither any nor all, or tau outside 0 to 1.
    """
    if combine not in ("any", "all"):
        raise AdvantageError(f"combine must be any or all, but is {combine!r}")
    if not 0 <= tau <= 1:
        raise AdvantageError(f"tau must lie between 0 and 1, but is {num(tau)}")
    seen = evidence(batch)
    return _classes(seen, amplify(seen, {"tau": tau, "combine": combine, "weight": 1.0}), trained=False)


def _classes(seen: Evidence, verdict: Verdict, trained: bool) -> Classes:
    labels = np.where(verdict.uniform, "uniform", np.where(verdict.favorable, "favorable", "unfavorable"))
    return Classes(
        label=labels.tolist(),
        length_advantage=[bool(v) if d else None for v, d in zip(seen.longer, seen.length_defined, strict=True)],
        difficulty_advantage=seen.difficult(verdict.tau).tolist(),
        longest_correct=seen.longest_correct,
        mean_wrong=seen.mean_wrong,
        weight=verdict.weight,
        trained=trained,
    )


def _length_words(seen: Evidence, g: int) -> str:
    if seen.length_defined[g]:
        sign = ">" if seen.longer[g] else "≤"
        return f"longest correct {num(seen.longest_correct[g])} {sign} mean wrong {num(seen.mean_wrong[g])} tokens"
    if seen.correct[g] == 0:
        return "no correct rollout"
    return "no wrong rollout" if seen.correct[g] == seen.n[g] else "every wrong rollout is truncated"


def _weight(name: str, formula: str, params: tuple[Param, ...]) -> Weight:
    """The registry's entry for a variant: its factor, (P,), and its classes."""
    variant = VARIANTS[name]
    by_difficulty = any(param.name == "tau" for param in params)

    def rule(state: State, params: Params) -> Outcome:
        if not (state.batch.measured or by_difficulty):
            raise AdvantageError(f"{name} compares lengths, and no response's length is known here")
        seen = evidence(state.batch)
        verdict = variant(seen, params)
        labels = _classes(seen, verdict, trained=True).label

        def explain(i: int, t: int) -> str:
            g = seen.index[i]
            sign = "≤" if seen.difficult(verdict.tau)[g] else ">"
            share = f"{seen.correct[g]} of {seen.n[g]} correct"
            share += f" ({num(seen.correct[g] / seen.n[g])} {sign} τ {num(verdict.tau)})" if by_difficulty else ""
            return f"{labels[g]} prompt: {_length_words(seen, g)}; {share}"

        moved = int((verdict.weight != 1).sum())
        reason = f"{moved} of {len(labels)} prompts weigh {num(params['weight'])}, the others 1: " + ", ".join(
            f"{labels.count(label)} {label}" for label in ("favorable", "unfavorable", "uniform")
        )
        return Outcome(verdict.weight, reason, explain)

    def classes(batch: Batch, params: Params) -> Classes:
        seen = evidence(batch)
        return _classes(seen, variant(seen, params), trained=True)

    return Weight(name, "group", rule, formula, params=params, classify=classes)


_NOT_LONGER = "longest correct ≤ mean wrong length"
_DOWN = Param("weight", 0.1, "weight of an unfavorable prompt; 0.1 did better than 0 [S]", low=0, high=10)
_CODE_DOWN = Param("weight", 0.1, "what the released code multiplies the other prompts by [C]", low=0, high=10)

ADORA_AMPLIFY = _weight(
    "adora_amplify",
    "× weight if favorable: longest correct > mean wrong length, or success rate ≤ τ",
    (
        Param("weight", 2.0, "weight of a favorable prompt [S]", low=0, high=10),
        Param("tau", TAU, "a success rate up to this is a difficulty advantage [S]", low=0, high=1),
        Param("combine", "any", "whether any or all criteria make a prompt favorable; the sources leave it open [I]",
              kind="choice", choices=("any", "all")),
    ),
)  # fmt: skip
ADORA_ATTENUATE = _weight("adora_attenuate", f"× weight if unfavorable: {_NOT_LONGER}", (_DOWN,))
ADORA_CODE_LLM = _weight("adora_code_llm", f"× weight if {_NOT_LONGER}, or none is correct", (_CODE_DOWN,))
ADORA_CODE_VLM = _weight("adora_code_vlm", f"× weight if {_NOT_LONGER}, or no wrong one is usable", (_CODE_DOWN,))
