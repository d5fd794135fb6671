"""What `advantage` prints for people: a table of one method, several side by side, the ledger of a token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import TYPE_CHECKING

from core.cli.common import number, one_line

if TYPE_CHECKING:
    import numpy as np

    from core.advantage import Batch, Line, Trace
    from core.counterfactual import Answer

WHOLE = 400
"""Characters of a reason that are shown."""


def table(trace: Trace, batch: Batch) -> Iterator[str]:
    """One line a rollout: its group, class, reward and length, base advantage, mean of each factor, mean advantage."""
    yield f"{trace.method.label}: {one_line(trace.base_reason, WHOLE)}"
    for factor in trace.factors:
        yield f"  × {factor.id}: {one_line(factor.reason, WHOLE)}"
    if trace.penalty is not None:
        yield f"  + {trace.penalty.id}: {one_line(trace.penalty.reason, WHOLE)}"
    spreads = {factor.id: factor.spread(batch) for factor in trace.factors}
    columns = [*_of_rollouts(batch, trace), _column("base", trace.base, batch)]
    columns += [_column(f"× {name}", spread, batch) for name, spread in spreads.items()]
    columns += [_column("advantage", trace.advantage, batch)]
    columns += [["kept", *("yes" if kept else "no" for kept in trace.kept.any(axis=1))]]
    yield from _aligned(columns)
    yield "Factors and advantages are means over the response's tokens; --json has every token."


def comparison(answers: Sequence[Answer], batch: Batch) -> Iterator[str]:
    """The methods' numbers, those of each pair, and the mean advantage of each rollout under each method."""
    from core.counterfactual import compare, summarise

    found = [summarise(one, batch) for one in answers]
    yield from _aligned(
        [
            ["", *(str(place) for place in range(1, len(answers) + 1))],
            ["method", *(one.method.label for one in answers)],
            ["mass +", *(number(one.mass.positive) for one in found)],
            ["mass −", *(number(one.mass.negative) for one in found)],
            ["kept", *(_percent(one.kept_share) for one in found)],
            ["favorable", *(f"{one.classes['favorable']} of {len(one.prompts)}" for one in found)],
            ["mean weight", *(number(one.mean_weight) for one in found)],
        ]
    )
    yield ""
    places = list(combinations(range(len(answers)), 2))
    pairs = [compare(answers[a], answers[b], batch) for a, b in places]
    yield from _aligned(
        [
            ["pair", *(f"{a + 1}, {b + 1}" for a, b in places)],
            ["rank correlation", *(number(pair.rank_correlation) for pair in pairs)],
            ["tokens changed", *(_percent(pair.changed_share) for pair in pairs)],
            ["sign flips", *(_percent(pair.flipped_share) for pair in pairs)],
            ["mass moved", *("–" if pair.moved is None else _percent(pair.moved) for pair in pairs)],
            ["mass, first / second", *(number(pair.scale) for pair in pairs)],
        ]
    )
    yield ""
    columns = [_column(str(place), one.trace.advantage, batch) for place, one in enumerate(answers, start=1)]
    yield from _aligned([*_of_rollouts(batch), *columns])
    yield "The columns 1, 2 … of rollouts are advantages, means over the response's tokens; --json has every token."


def ledger(answer: Answer, lines: Sequence[Line], batch: Batch, i: int, t: int) -> Iterator[str]:
    """Why token t of rollout i has its advantage: each formula, under it the same with this token's numbers."""
    word = "correct" if batch.correct[i] else "wrong"
    yield (
        f"{answer.method.label}: token {t} of rollout {i}, a {word} response of {batch.length[i]} tokens in group "
        f"{batch.group[i]}"
    )
    signs = {"base": " ", "factor": "×", "total": "=", "penalty": "+"}
    width = max(len(line.label) for line in lines)
    for line in lines:
        head = f"  {signs[line.kind]} {line.label:<{width}}  {number(line.value):>8}  "
        yield f"{head}{one_line(line.formula.removeprefix('× ').removeprefix('+ '), WHOLE)}"
        yield " " * len(head) + one_line(line.numbers, WHOLE)


def _of_rollouts(batch: Batch, trace: Trace | None = None) -> list[list[str]]:
    columns = [["rollout", *(str(i) for i in range(len(batch.group)))], ["group", *map(str, batch.group.tolist())]]
    if trace is not None:
        classes = dict(zip(batch.groups.tolist(), trace.classes.label, strict=True))
        columns.append(["class", *(classes[group] for group in batch.group.tolist())])
    columns.append(["reward", *(number(float(reward)) for reward in batch.reward)])
    return [*columns, ["length", *map(str, batch.length.tolist())]]


def _column(title: str, values: np.ndarray, batch: Batch) -> list[str]:
    """Values (N,), or the means over each response's tokens of (N, T)."""
    if values.ndim == 2:
        values = (values * batch.mask).sum(axis=1) / batch.length
    return [title, *(number(float(value)) for value in values)]


def _aligned(columns: list[list[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in columns]
    for cells in zip(*columns, strict=True):
        yield "  ".join(cell.rjust(width) for cell, width in zip(cells, widths, strict=True))


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"
