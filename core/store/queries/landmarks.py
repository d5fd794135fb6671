"""Where to look first in a run: the token that was pushed hardest, and a step that held prompts back.

`lab` is what `core.store.open_runs` returns. `strongest_push` reads every token that is there: ask it of a pack, or
once when a run is packed, not of a page over a long run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from core.store.open import Lab


@dataclass(frozen=True)
class Place:
    """A token of a run, by its key, its text, its advantage and push: advantage x (1 - its probability)."""

    step: int
    group: int
    rollout: int
    position: int
    token: str
    advantage: float
    push: float


def strongest_push(lab: Lab, run: str) -> Place | None:
    """The trained token with the largest |push| of those whose tokens are stored, the first of equals; None if none."""
    rows = lab.rows(
        "SELECT step, \"group\", rollout, position, coalesce(token, '#' || token_id) AS token, "
        "advantage::DOUBLE AS advantage, advantage * (1 - exp(sampler_logprob::DOUBLE)) AS push FROM tokens "
        "WHERE run = ? AND split = 'train' AND kept AND advantage <> 0 AND isfinite(sampler_logprob) "
        'ORDER BY abs(push) DESC, step, "group", rollout, position LIMIT 1',
        [run],
    )
    return Place(**rows[0]) if rows else None


def held_back(lab: Lab, run: str) -> dict[int, tuple[int, int]]:
    """By step with both: how many training prompts were weighed below the step's heaviest one, and how many not."""
    rows = lab.rows(
        "WITH g AS (SELECT step, weight, max(weight) OVER (PARTITION BY step) AS most FROM groups "
        "WHERE run = ? AND split = 'train' AND kept) "
        "SELECT step, count(*) FILTER (weight < most) AS held, count(*) FILTER (weight = most) AS others "
        "FROM g GROUP BY step HAVING held > 0 ORDER BY step",
        [run],
    )
    return {row["step"]: (row["held"], row["others"]) for row in rows}
