"""The same question at the steps of a whole run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np

from core.advantage import AdvantageError, Batch, Method
from core.counterfactual.answer import Answer, answer
from core.counterfactual.pair import compare
from core.counterfactual.summary import summarise

if TYPE_CHECKING:
    from core.config import RunConfig
    from core.store import Lab


@dataclass(frozen=True, eq=False)
class Stored:
    """A step's rollouts as a run stored them; rollout r of group g is row `row[g, r]` of the arrays."""

    config: RunConfig
    batch: Batch
    row: dict[tuple[int, int], int]
    ratio: np.ndarray  # (N, T) importance ratios of the run's last gradient pass, NaN on tokens without one


def stored(lab: Lab, run: str, step: int, split: str = "train") -> Stored:
    """One step and split of a run. Raises StoreError where it does not have them whole."""
    from core.config import read_run
    from core.store import stored_batch

    config = read_run(lab.source(run).path / "config.yaml")
    view = lab.step(run, step)
    batch, row = stored_batch(view, config, split)
    ratio = np.full(batch.mask.shape, np.nan)
    query = 'SELECT "group", rollout, position, ratio FROM tokens WHERE split = ? ORDER BY ALL'
    found = view.arrays(query, [split])["ratio"]
    if len(found):  # an import may have no tokens
        ratio[batch.mask] = found
    return Stored(config, batch, row, ratio)


def series(
    lab: Lab,
    run: str,
    methods: Sequence[Method],
    split: str = "train",
    most: int = 60,
    progress: Callable[[int, int], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """The methods on a run's own rollouts, step by step: a generator of one row a step, oldest first.

    At most `most` steps, evenly spaced over those that have tokens, the first and the last of them included. A row has
    - `step`; `done` and `of`: how many rows there are so far, and will be; `lacking`: how many steps of the run have
      no tokens of this split, the same in every row;
    - `skipped`: None, or in one sentence why this step cannot be computed; then both lists are empty;
    - `methods`: for each method its `label`, `mass_positive_base`, `mass_negative_base`, `mass_positive`,
      `mass_negative`, `quartile_mass` (a list from the least to the most likely quarter of the tokens, None without
      log-probs), `favorable_share`, `mean_weight`, `kept_share`, `clip_share` (see `Summary`);
    - `pairs`: for each pair `a` < `b`, places in `methods`, its `rank_correlation`, `changed_share`, `flipped_share`,
      `moved`, `scale` (see `Pair`).

    `progress(done, of)` is called before a row is yielded. Raises StoreError where no step has tokens.
    """
    from core.store import StoreError

    tokens, rollouts = (_steps(lab, table, run, split) for table in ("tokens", "rollouts"))
    if not tokens:
        raise StoreError(f"{run}: no step has tokens of the split {split}")
    chosen = spaced(tokens, most)
    for done, step in enumerate(chosen, start=1):
        row = {"step": step, "done": done, "of": len(chosen), "lacking": len(set(rollouts) - set(tokens))}
        try:
            row |= {"skipped": None} | _row(stored(lab, run, step, split), methods)
        except (StoreError, AdvantageError) as error:
            row |= {"skipped": str(error), "methods": [], "pairs": []}
        if progress is not None:
            progress(done, len(chosen))
        yield row


def spaced(steps: Sequence[int], most: int) -> list[int]:
    """At most `most` of the steps, evenly spaced, the first and the last included."""
    places = np.linspace(0, len(steps) - 1, min(len(steps), max(most, 1))).round().astype(int)
    return [steps[place] for place in places]


def _steps(lab: Lab, table: str, run: str, split: str) -> list[int]:
    found = lab.arrays(f"SELECT DISTINCT step FROM {table} WHERE run = ? AND split = ? ORDER BY step", [run, split])
    return found["step"].tolist()


def _row(step: Stored, methods: Sequence[Method]) -> dict[str, list[dict[str, Any]]]:
    answers = [answer(method, step.batch, step.config.polarity_by, step.ratio) for method in methods]
    pairs = combinations(range(len(answers)), 2)
    return {
        "methods": [_of_method(one, step.batch) for one in answers],
        "pairs": [{"a": a, "b": b} | compare(answers[a], answers[b], step.batch).numbers for a, b in pairs],
    }


def _of_method(one: Answer, batch: Batch) -> dict[str, Any]:
    found = summarise(one, batch)
    return {
        "label": one.method.label,
        "mass_positive_base": found.base_mass.positive,
        "mass_negative_base": found.base_mass.negative,
        "mass_positive": found.mass.positive,
        "mass_negative": found.mass.negative,
        "favorable_share": found.favorable_share,
        "mean_weight": found.mean_weight,
        "quartile_mass": None if found.quartiles is None else found.quartiles.mass.sum(axis=0).tolist(),
        "kept_share": found.kept_share,
        "clip_share": found.clip_share,
    }
