"""What the What-if page says in words: the verdict over a pair of methods, and what it cannot answer."""

from __future__ import annotations

from collections.abc import Sequence

from app.inert import inert_markdown
from app.views.whatif_source import Shown, View
from app.words import count, number, share
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


def verdict(first: Shown, second: Shown, pair: Pair, summaries: tuple[Summary, Summary], view: View) -> tuple[str, str]:
    """(one sentence on what the second method changes about the first, its tone). `pair` is of (second, first)."""
    a, b = (f"**{inert_markdown(one.label)}** ({one.letter})" for one in (first, second))
    n = f" *n* = {count(len(view.rows), 'rollout')}, {count(view.tokens, 'token')}."
    kept = [bool(one.answer.trace.kept.any()) for one in (first, second)]
    if not any(kept):
        return f"Neither {a} nor {b} trains on any of these tokens.{n}", "warning"
    if not kept[1]:
        return f"{b} trains on none of these tokens; {a} does.{n}", "warning"
    if not kept[0]:
        return f"{a} trains on none of these tokens; {b} does.{n}", "warning"
    if not any(summary.mass.total for summary in summaries):
        return f"No signal: these rollouts' rewards give no advantage under {a} or {b}.{n}", "warning"
    if not pair.changed.any():
        same = f"{b} gives every token exactly the advantage that {a} gives it{_weighed(pair)}"
        return f"{'; '.join([same, *_beyond(first, second)])}.{n}", "neutral"
    parts = [f"{b} changes {_some(pair.changed_share)} of the tokens of {a} and flips {_flips(pair)}"]
    parts += _shift(summaries)
    if pair.scale and not 0.99 < pair.scale < 1.01:
        parts.append(f"its whole step is {number(pair.scale)} × as large")
    told = [parts[0], ", and ".join(parts[1:]), *_beyond(first, second)]
    return f"{'; '.join(filter(None, told))}.{n}", "neutral"


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
    objectives = [one.answer.method.loss.objective for one in (first, second)]
    if objectives[0] != objectives[1]:
        found.append(f"their objectives differ ({objectives[0]}, {objectives[1]})")
    return found


def _shift(summaries: Sequence[Summary]) -> list[str]:
    before, after = (right_share(summary) for summary in summaries)
    if before is None or after is None:
        return []
    moved = after - before
    if abs(moved) < UNMOVED:
        return ["right and wrong answers keep their parts of the mass"]
    way = "wrong to right" if moved > 0 else "right to wrong"
    return [f"it moves {share(abs(moved))} of the mass from {way} answers"]


def run_verdict(rows: Sequence[dict], labels: Sequence[str], pair: int) -> str:
    """The same over a whole run: means over its steps. `rows` are those of `core.counterfactual.series`."""
    done = [row for row in rows if row["methods"]]
    places = [row["pairs"][pair] for row in done]
    first, second = (places[0][side] for side in ("a", "b"))
    changed = sum(place["changed_share"] for place in places) / len(places)
    flipped = sum(place["flipped_share"] for place in places) / len(places)
    moved = [
        _right(row["methods"][second]) - _right(row["methods"][first])
        for row in done
        if _right(row["methods"][first]) is not None and _right(row["methods"][second]) is not None
    ]
    a, b = (f"**{inert_markdown(labels[place])}**" for place in (first, second))
    flips = share(flipped) if flipped else "none"
    sentence = f"Over the run, {b} changes {_some(changed)} of the tokens of {a} and flips {flips}"
    mean = sum(moved) / len(moved) if moved else 0.0
    if abs(mean) >= UNMOVED:
        way = "wrong to right" if mean > 0 else "right to wrong"
        sentence += f"; it moves {share(abs(mean))} of the mass from {way} answers"
    return f"{sentence} (means of {count(len(done), 'step')})."


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
