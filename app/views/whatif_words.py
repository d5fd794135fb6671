"""What the What-if page says in words: the verdict over a pair of methods, and what it cannot answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from app.inert import inert_markdown
from app.views.whatif_source import Shown, View
from app.words import count, number, share
from core.advantage import Method
from core.advantage.compose import CLIPPING
from core.advantage.registry import penalised
from core.counterfactual import Pair, Spec, Summary

NOT_ANSWERED = (
    "**Not answered here:** what another method would have become. These rollouts were drawn by the run's own "
    "policy{by}; from its first update on, another method would have drawn others. Exact is its answer to *these*."
)
UNMOVED = 0.005
"""A shift of mass between right and wrong answers below this is not worth a word."""


def right_share(summary: Summary) -> float | None:
    """The right answers' part of the advantage mass; None without mass."""
    return summary.mass.positive / summary.mass.total if summary.mass.total > 0 else None


def mass_note(summary: Summary) -> str:
    """`mass 0.208, 50 % on right answers`."""
    part = right_share(summary)
    return "no advantage mass" if part is None else f"mass {number(summary.mass.total)}, {share(part)} on right answers"


def panel_note(one: Shown, summary: Summary, group: int | None) -> str:
    """The mass, and for a single prompt how the method judges it: `favorable × 2`, `favorable, not weighed`."""
    note = mass_note(summary)
    if group is None:
        return note
    prompt = summary.prompts[0]
    weighed = f" × {number(prompt.weight)}" if one.answer.trace.classes.trained else ", not weighed"
    return f"{note} · {prompt.label}{weighed}"


def not_drawn(view: View, drawn: np.ndarray) -> str:
    """How many prompts the picture leaves out; `drawn` (M,) are the rollouts that it shows."""
    silent = np.unique(view.batch.group[~drawn])
    return f"{count(len(silent), 'prompt')} without signal under any of these methods: not drawn, but counted."


def verdict(
    first: Shown, second: Shown, pair: Pair, summaries: tuple[Summary, Summary], view: View, *, whole: bool
) -> tuple[str, str]:
    """(one sentence on what the second method changes about the first, its tone). `pair` is of (second, first);
    `whole`: the view is the whole step.
    """
    a, b = (f"**{inert_markdown(one.label)}** ({one.letter})" for one in (first, second))
    n = f" *n* = {count(len(view.rows), 'rollout')}, {count(view.tokens, 'token')}."
    kept = [bool(one.answer.trace.kept.any()) for one in (first, second)]
    if not any(kept):
        return f"Neither {a} nor {b} trains on any of these tokens.{n}", "warning"
    if not all(kept):
        drops, keeps, keeper = (b, a, first) if kept[0] else (a, b, second)
        if not keeper.answer.trace.advantage.any():
            return f"{drops} drops these tokens, {keeps} keeps them at 0: neither pushes.{n}", "warning"
        return f"{drops} trains on none of these tokens; {keeps} does.{n}", "warning"
    if not any(summary.mass.total for summary in summaries):
        return f"No signal: these rollouts' rewards give no advantage under {a} or {b}.{n}", "warning"
    if not pair.changed.any():
        same = f"{b} gives every token exactly the advantage that {a} gives it{_weighed(pair)}"
        return f"{'; '.join([same, *_beyond(first, second)])}.{n}", "neutral"
    size = _size(first, pair)
    parts = [f"{b} changes {_some(pair.changed_share)} of the tokens of {a}{size} and flips {_flips(pair)}"]
    parts += _shift(summaries)
    if pair.scale and not 0.99 < pair.scale < 1.01:
        what = "its whole step" if whole else "this prompt's mass"
        parts.append(f"{what} is {number(pair.scale)} × as large")
    told = [parts[0], ", and ".join(parts[1:]), *_beyond(first, second)]
    return f"{'; '.join(filter(None, told))}.{n}", "neutral"


def _size(first: Shown, pair: Pair) -> str:
    """` by 4 % at most`: the largest change of an advantage that the first method has; "" where it has none there."""
    before = np.abs(first.answer.trace.advantage)
    there = pair.changed & (before > 0)
    if not there.any():
        return ""
    most = float((np.abs(pair.difference[there]) / before[there]).max())
    return f" by {share(most)} at most" if most <= 1 else f" by {number(most)} × its size at most"


def _some(part: float) -> str:
    return "all" if part > 0.9999 else share(part)


def _flips(pair: Pair) -> str:
    return f"the sign of {share(pair.flipped_share)}" if pair.flipped.any() else "none"


def _weighed(pair: Pair) -> str:
    """Equal advantages may still weigh differently in the loss."""
    if pair.moved is None or pair.moved <= UNMOVED:
        return ""
    return f", but its loss averages them so that {share(pair.moved)} of the mass lies elsewhere"


def _beyond(first: Shown, second: Shown) -> list[str]:
    """What parts two methods beside their advantages: penalties, and what the loss makes of an advantage."""
    found = []
    for one in (first, second):
        if one.answer.trace.penalty is not None:
            held = int((one.answer.trace.penalty.coefficient > 0).sum())
            found.append(f"{one.letter} also holds {count(held, 'token')} in place by a penalty")
    return found + _losses(first.answer.method, second.answer.method)


def _losses(first: Method, second: Method) -> list[str]:
    """What parts their losses, which no advantage shows."""
    one, other = first.loss, second.loss
    if one.objective != other.objective:
        return [f"their objectives differ ({one.objective}, {other.objective})"]
    bounds = [(loss.clip_low, loss.clip_high, loss.dual_clip) for loss in (one, other)]
    if bounds[0] != bounds[1] and one.objective in CLIPPING:
        told = (f"{number(low)} / {number(high)}" for low, high, _ in bounds)
        return [f"their clip bounds differ ({', '.join(told)})"]
    return []


def _shift(summaries: Sequence[Summary]) -> list[str]:
    before, after = (right_share(summary) for summary in summaries)
    if before is None or after is None:
        return []
    moved = after - before
    if abs(moved) < UNMOVED:
        return ["right and wrong answers keep their parts of the mass"]
    way = "wrong to right" if moved > 0 else "right to wrong"
    return [f"it moves {share(abs(moved))} of the mass from {way} answers"]


def run_verdict(rows: Sequence[dict], asked: Sequence[tuple[str, str, Method]], pair: tuple[int, int]) -> str:
    """The same over a whole run: means over its steps, and from where to where they go. `rows` are those of
    `core.counterfactual.series`, `asked` its methods with their letters and labels, `pair` the places of (what is
    changed, what changes it).
    """
    done = [row for row in rows if row["methods"]]
    places = [one for row in done for one in row["pairs"] if {one["a"], one["b"]} == set(pair)]
    rights = [[_right(row["methods"][place]) for place in pair] for row in done]
    moved = [after - before for before, after in rights if before is not None and after is not None]
    a, b = (f"**{inert_markdown(asked[place][1])}**" for place in pair)
    flipped = [place["flipped_share"] for place in places]
    flips = _spread(flipped) if any(flipped) else "none"
    changed = _spread([place["changed_share"] for place in places])
    sentence = f"Over the run, {b} changes {changed} of the tokens of {a} and flips {flips}"
    mean = sum(moved) / len(moved) if moved else 0.0
    if abs(mean) >= UNMOVED:
        way = "wrong to right" if mean > 0 else "right to wrong"
        sentence += f"; it moves {_spread([value if mean > 0 else -value for value in moved])} of the mass from {way} "
        sentence += "answers"
    chosen = [asked[place] for place in pair]
    held = [f"{letter} also holds tokens in place by a penalty" for letter, _, method in chosen if penalised(method)]
    sentence = "; ".join([sentence, *held, *_losses(*(method for _, _, method in chosen))])
    return f"{sentence}. Means, and lowest to highest, of {count(len(done), 'step')}."


def _spread(values: Sequence[float]) -> str:
    """`18 % (12 to 25 %)`; the one number where all are the same."""
    low, high = _percent(min(values)), _percent(max(values))
    mean = _percent(sum(values) / len(values))
    return mean if low == high else f"{mean} ({low} to {high})"


def _percent(value: float) -> str:
    return f"{'−' if value < 0 else ''}{share(abs(value))}"


def _right(method: dict) -> float | None:
    total = method["mass_positive"] + method["mass_negative"]
    return method["mass_positive"] / total if total > 0 else None


def not_answered(own: Spec | None, note: str = "") -> str:
    """`own`: the method that trained the policy, None where nothing did; `note`: what else to know of the rollouts."""
    return " ".join(filter(None, [_not_answered(own), note]))


def _not_answered(own: Spec | None) -> str:
    if own is None:
        return "Exact for these rollouts. Which ones a method would have drawn after its first update is not answered."
    return NOT_ANSWERED.format(by=f", trained with {inert_markdown(own.build().label)}")
