"""Two methods' answers to the same batch: how alike they are, and on which tokens they part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from core.advantage import Batch
from core.counterfactual.answer import Answer
from core.counterfactual.ranks import average_ranks, correlation

TOLERANCE = 1e-4
"""Advantages that differ by no more than this x |A| are equal: another eps is no other advantage."""
FACTOR_TOLERANCE = 1e-6
"""The same for the products of factors, x max(1, |factor|): so much may float32 storage change."""
ROUNDING = 1e-9
"""A share of mass below this is the rounding of sums."""


@dataclass(frozen=True, eq=False)
class Pair:
    """Answer a beside answer b. Shares and the correlation are over response tokens that either keeps; a dropped
    token has advantage 0. Swapping a and b inverts `scale` and the sign of `difference`, and changes nothing else.
    """

    rank_correlation: float | None  # Spearman's, of the token advantages; None where one side is constant
    changed_share: float
    flipped_share: float
    moved: float | None  # 0 to 1: half of sum |a's signed mass - b's|, each of total 1; None where one has no mass
    scale: float | None  # a's advantage mass over b's: how much larger its step is; None where b has none
    difference: np.ndarray  # (N, T) advantage of a minus advantage of b
    changed: np.ndarray  # (N, T) bool: |difference| > TOLERANCE x |A|, the larger of the two
    flipped: np.ndarray  # (N, T) bool: one is positive, the other negative
    by_factor: np.ndarray  # (N, T) bool: the factors multiply to something else; mass matching left out

    @property
    def numbers(self) -> dict[str, float | None]:
        """The numbers by name, without the masks."""
        names = ("rank_correlation", "changed_share", "flipped_share", "moved", "scale")
        return {name: getattr(self, name) for name in names}


def compare(a: Answer, b: Answer, batch: Batch) -> Pair:
    """The numbers and masks of `Pair` for two answers to this batch."""
    ours, theirs = a.trace.advantage, b.trace.advantage
    either = a.trace.kept | b.trace.kept
    tokens = max(int(either.sum()), 1)
    difference = ours - theirs
    changed = np.abs(difference) > TOLERANCE * np.maximum(np.abs(ours), np.abs(theirs))
    flipped = ours * theirs < 0
    mass, other = a.mass.sum(), b.mass.sum()
    return Pair(
        rank_correlation=correlation(_ranks(a, either), _ranks(b, either)),
        changed_share=float(changed.sum() / tokens),
        flipped_share=float(flipped.sum() / tokens),
        moved=_moved(a, b) if mass > 0 and other > 0 else None,
        scale=float(mass / other) if other > 0 else None,
        difference=difference,
        changed=changed,
        flipped=flipped,
        by_factor=batch.mask & (np.abs(a.factor - b.factor) > FACTOR_TOLERANCE * np.maximum(1.0, np.abs(a.factor))),
    )


def _ranks(answer: Answer, chosen: np.ndarray) -> np.ndarray:
    """Ranks of the advantages among the chosen tokens (N, T), flat."""
    flat = chosen.ravel()
    order = answer.order
    return average_ranks(answer.comparable, order[flat[order]])[flat]


def _moved(a: Answer, b: Answer) -> float:
    """How much of the mass lies elsewhere or pushes the other way, whatever the two totals are."""
    signed = [np.sign(one.trace.advantage) * one.mass / one.mass.sum() for one in (a, b)]
    share = float(min(np.abs(signed[0] - signed[1]).sum() / 2, 1.0))
    return share if share > ROUNDING else 0.0
