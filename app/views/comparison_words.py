"""What a comparison comes to in words: who ends highest, by how much, and whether that is luck."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from app.inert import inert_markdown
from app.views.comparison import Align, Metric, Outcome, difference
from app.views.families import Family
from app.words import DASH, count, number, share
from core.stats.bootstrap import Bootstrap, coverage
from core.stats.differences import LEVEL, Difference

MOST_RANKED = 6
"""More families than this are ranked by the first three and the last."""
APART = 0.5
"""Methods whose starts differ by more than this part of their mean began at no one value."""
FEW_SEEDS = 20
"""Up to so many seeds the sentence says how narrow a bootstrap over them is."""


def ranking(shown: Sequence[Family], found: Mapping[str, Outcome], metric: Metric) -> str:
    """`Final entropy, highest first: **NSR 0.27 nats**, PSR 0.22, GRPO 0.19 (3 seeds each)`, in Markdown; "" without a
    value. Of the entropy it also says what was kept of the start.
    """
    means = _means(shown, found, "final")
    if not means:
        return ""
    order = sorted(means, key=lambda family: -means[family][0])
    ns = {n for _, n in means.values()}
    each = len(ns) == 1

    def words(family: Family) -> str:
        value, n = means[family]
        first = family is order[0]
        text = f"{inert_markdown(family.label)} {number(value, _unit(metric) if first else '')}"
        return (f"**{text}**" if first else text) + ("" if each else f" ({count(n, 'seed')})")

    named = [words(family) for family in order]
    if len(named) > MOST_RANKED:
        named = [*named[:3], f"… {count(len(named) - 4, 'more', 'more')} …", named[-1]]
    text = f"Final {inert_markdown(metric.label)}"
    text += f", highest first: {', '.join(named)}" if len(order) > 1 else f": {named[0]}"
    if each:
        text += f" ({count(ns.pop(), 'seed')}{' each' if len(order) > 1 else ''})"
    return text + _kept(order, shown, found, metric) + "."


def _kept(order: Sequence[Family], shown: Sequence[Family], found: Mapping[str, Outcome], metric: Metric) -> str:
    """`; they began near 0.44 nats, of which NSR kept 61 % and GRPO 42 %` for the entropy, else the start alone."""
    starts = {family: value for family, (value, _) in _means(shown, found, "start").items()}
    each = [starts[family] for family in order]
    began, least, most = float(np.mean(each)), min(each), max(each)
    text = f"; {'they' if len(order) > 1 else 'it'} began near {number(began, _unit(metric))}"
    if most - least > APART * abs(began):
        text = f"; they began between {number(least)} and {number(most, _unit(metric))}"
    if metric.id != "entropy" or not all(starts[family] > 0 for family in order):
        return text
    ends = [order[0], order[-1]] if len(order) > 1 else [order[0]]
    finals = {family: value for family, (value, _) in _means(shown, found, "final").items()}
    kept = [f"{inert_markdown(family.label)} kept {share(finals[family] / starts[family])}" for family in ends]
    return f"{text}, of which {' and '.join(kept)}"


def glance(shown: Sequence[Family], every: Sequence[tuple[Metric, Mapping[str, Outcome]]]) -> pd.DataFrame:
    """One row a metric, in Markdown: who ends highest, who lowest, and whether the two are further apart than luck.

    The last is Welch's t between those two, at a level that allows for having picked them among all (Bonferroni).
    """
    rows = []
    for metric, found in every:
        means = _means(shown, found, "final")
        if len(means) < 2:
            continue
        order = sorted(means, key=lambda family: -means[family][0])
        high, low = order[0], order[-1]
        pairs = len(order) * (len(order) - 1) // 2
        apart = difference(high, low, found, level=1 - (1 - LEVEL) / pairs)
        cells = [f"{inert_markdown(family.label)} {number(means[family][0], _unit(metric))}" for family in (high, low)]
        if means[high][0] == means[low][0]:
            cells, words = ["all the same", DASH], DASH
        elif apart.has_interval:
            seeds = count(apart.n_a, "seed") if apart.n_a == apart.n_b else f"{apart.n_a} and {apart.n_b} seeds"
            words = "yes" if apart.verdict == "higher" else f"not shown by {seeds}"
        else:
            words = "one seed" if min(apart.n_a, apart.n_b) < 2 else "no spread"
        rows.append([inert_markdown(metric.label), *cells, words])
    return pd.DataFrame(rows, columns=["Final", "Highest", "Lowest", "More than luck?"])


def sentence(pair: Pair, base: Family, metric: Metric) -> str:
    """The verdict on one pair, in Markdown, with its intervals and their n: Welch's t, and the paired bootstrap.

    Higher and lower are said only where both leave 0 out: they fail in different ways (few seeds, other prompts).
    """
    found, drawn = pair.found, pair.drawn
    head = f"**{inert_markdown(pair.family.label)} − {inert_markdown(base.label)}**"
    head += f", final {inert_markdown(metric.label)}"
    if math.isnan(found.value):
        return f"{head}: no value to compare yet."
    value = number(found.value, _unit(metric), signed=True)
    seeds = count(found.n_a, "seed") if found.n_a == found.n_b else f"{found.n_a} and {found.n_b} seeds"
    if min(found.n_a, found.n_b) < 2:
        return f"{head}: {value}, {_lone(found, seeds)}{_prompts_alone(drawn)}"
    if not found.has_interval:
        return f"{head}: {value}, {seeds}: every seed gave the same value, so there is no spread to judge by."
    each = " each" if found.n_a == found.n_b else ""
    text = f"{head}: {value} {interval(found)}, {seeds}{each}"
    if drawn.has_interval:
        text += f"; bootstrap over {_drawn(drawn)} {interval(drawn)}"
        if metric.id == "pass_at_1" and abs(drawn.value - found.value) > 1e-9:
            text += f" around {number(drawn.value, signed=True)}"
    return f"{text}: **{pair.verdict}**."


@dataclass(frozen=True)
class Pair:
    """A family against the base: the difference over seeds (Welch's t) and by the bootstrap."""

    family: Family
    found: Difference
    drawn: Bootstrap

    @property
    def verdict(self) -> str:
        """In a few words: of both intervals, or why there is none."""
        if math.isnan(self.found.value):
            return "no value"
        if min(self.found.n_a, self.found.n_b) < 2:
            return "one seed cannot tell"
        return agreed(self.found, self.drawn) if self.found.has_interval else "no spread between seeds"


def conclusion(pairs: Sequence[Pair], base: Family) -> str:
    """`Against GRPO: ADORA attenuate **lower**; PSR, NSR **one seed cannot tell**`, in Markdown."""
    by_verdict: dict[str, list[str]] = {}
    for pair in pairs:
        by_verdict.setdefault(pair.verdict, []).append(inert_markdown(pair.family.label))
    told = "; ".join(f"{', '.join(names)} **{verdict}**" for verdict, names in by_verdict.items())
    return f"Against {inert_markdown(base.label)}: {told}."


def pair_table(pairs: Sequence[Pair], base: Family, metric: Metric) -> pd.DataFrame:
    """One row a pair, in Markdown: the difference, both intervals with their n, and what they come to."""
    rows = []
    for pair in pairs:
        found, drawn = pair.found, pair.drawn
        seeds = count(found.n_a, "seed") if found.n_a == found.n_b else f"{found.n_a} and {found.n_b} seeds"
        alone = drawn.unit == "prompts"
        over = f"{count(drawn.prompts, 'prompt')}, without the luck of training" if alone else _drawn(drawn)
        rows.append(
            [
                inert_markdown(pair.family.label),
                number(found.value, _unit(metric), signed=True),
                f"{interval(found)}, {seeds}" if found.has_interval else f"none, {seeds}",
                f"{interval(drawn)}, {over}" if drawn.has_interval else DASH,
                f"**{pair.verdict}**",
            ]
        )
    heads = [f"Minus {inert_markdown(base.label)}", "Difference", "Over seeds (Welch's t)", "Bootstrap", "Verdict"]
    return pd.DataFrame(rows, columns=heads)


def agreed(found: Difference, drawn: Difference) -> str:
    """`higher`, `lower` or `not distinguishable`: the verdict of both intervals, or that they do not agree."""
    verdicts = {one.verdict for one in (found, drawn) if one.has_interval}
    return verdicts.pop() if len(verdicts) == 1 else "not distinguishable"


def how_sure(pairs: Sequence[Pair]) -> str:
    """What the intervals under the verdicts are, and how far a bootstrap over so few seeds can be trusted; "" if none
    of them is over seeds.
    """
    held = {
        (n, coverage(n, pair.drawn.paired))
        for pair in pairs
        if (n := min(pair.found.n_a, pair.found.n_b)) and pair.found.has_interval and pair.drawn.has_interval
    }
    if not held:
        return ""
    paired = any(pair.drawn.paired for pair in pairs)
    prompts = any("prompts" in pair.drawn.unit for pair in pairs)
    text = (
        "First interval: 95 % over seeds, Welch's t. Second: a bootstrap, which draws seeds"
        f"{' (in pairs, where the same seeds trained both)' if paired else ''}"
        f"{' and the held-out prompts that all were asked' if prompts else ''}. "
    )
    least, truth = min(held)
    if least <= FEW_SEEDS:
        narrow = "is far too narrow" if least < 5 else "is a little narrow"
        text += (
            f"Over {count(least, 'seed')} a bootstrap {narrow}: it holds the truth about "
            f"{round(100 * truth)} times in 100, not 95. "
        )
    return text + "Higher or lower is said only where both leave 0 out. Each pair stands by itself."


def summary(shown: Sequence[Family], found: Mapping[str, Outcome], metric: Metric, align: Align) -> pd.DataFrame:
    """One row a family in plain text: method, seeds, final, area under curve, and when the threshold was reached."""
    rows = []
    for family in shown:
        mine = [found[run] for run in family.runs if run in found]
        rows.append(
            {
                "Method": family.label,
                "Seeds": len(mine),
                f"Final {metric.axis}": _spread([one.final for one in mine]),
                "Area under curve": _spread([one.area for one in mine]),
                "Threshold reached": _when([one.reached for one in mine], align),
            }
        )
    return pd.DataFrame(rows)


def every_run(shown: Sequence[Family], found: Mapping[str, Outcome]) -> pd.DataFrame:
    """One row a run: method, run, seed, start, final, area, reached, step (the last that counts)."""
    rows = [
        {"method": family.label, "seed": one.info.seed, **vars(found[one.id])}
        for family in shown
        for one in family.members
        if one.id in found
    ]
    return pd.DataFrame(rows, columns=["method", "run", "seed", "start", "final", "area", "reached", "step"])


def interval(found: Difference) -> str:
    """`[−0.01, +0.05]` in Markdown."""
    low, high = number(found.low, signed=True), number(found.high, signed=True)
    return f"\\[{low}, {high}\\]"


def _lone(found: Difference, seeds: str) -> str:
    lone = "one seed each" if found.n_a == found.n_b == 1 else seeds
    return f"{lone}: **one seed cannot tell a better method from luck**."


def _prompts_alone(drawn: Bootstrap) -> str:
    if not drawn.has_interval:
        return ""
    return (
        f" Over the {count(drawn.prompts, 'held-out prompt')}: {number(drawn.value, signed=True)} {interval(drawn)}. "
        "That covers which prompts were asked; the luck of training is not in it."
    )


def _drawn(drawn: Bootstrap) -> str:
    """`3 seed pairs × 64 prompts`."""
    seeds = count(drawn.n_a, "seed pair") if drawn.paired else f"{drawn.n_a} and {drawn.n_b} seeds"
    return f"{seeds} × {count(drawn.prompts, 'prompt')}" if "prompts" in drawn.unit else seeds


def _means(shown: Sequence[Family], found: Mapping[str, Outcome], field: str) -> dict[Family, tuple[float, int]]:
    """(mean over seeds, number of seeds) of each family that has a value."""
    out = {}
    for family in shown:
        values = [getattr(found[run], field) for run in family.runs if run in found]
        values = [value for value in values if not math.isnan(value)]
        if values:
            out[family] = float(np.mean(values)), len(values)
    return out


def _unit(metric: Metric) -> str:
    return "" if metric.unit == "share" else metric.unit


def _spread(values: Sequence[float]) -> str:
    """`0.781 (0.766 to 0.79)`: the mean and the extremes; a dash without a value."""
    values = [value for value in values if not math.isnan(value)]
    if not values:
        return DASH
    text = number(float(np.mean(values)))
    return f"{text} ({number(min(values))} to {number(max(values))})" if len(values) > 1 else text


def _when(reached: Sequence[float], align: Align) -> str:
    """`step 40 (35 to 45), 2 of 3 seeds`: the mean and the extremes of those that reached it."""
    got = [value for value in reached if not math.isnan(value)]
    if not got:
        return "not reached" if len(reached) else DASH
    one = {"step": "step {:.0f}", "tokens": "{} tokens", "seconds": "{} s"}[align]
    text = one.format(float(np.mean(got)) if align == "step" else number(float(np.mean(got))))
    if len(got) > 1:
        text += f" ({number(min(got))} to {number(max(got))})"
    return text + (f", {len(got)} of {len(reached)} seeds" if len(reached) > 1 else "")
