"""What a comparison comes to in words: who ends highest, by how much, and whether that is luck."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from app.inert import inert_markdown
from app.views.comparison import Align, Metric, Outcome, difference, resampled
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


def glance(
    shown: Sequence[Family],
    every: Sequence[tuple[Metric, Mapping[str, Outcome]]],
    exams: Mapping[str, Mapping[str, pd.DataFrame]] | None = None,
) -> pd.DataFrame:
    """One row a metric, in Markdown: who ends highest, who lowest, and whether the two are further apart than luck.

    The last is the verdict on that pair, by the same rule as anywhere on the page. `exams` by metric, as in `judge`.
    """
    rows = []
    for metric, found in every:
        means = _means(shown, found, "final")
        if len(means) < 2:
            continue
        order = sorted(means, key=lambda family: -means[family][0])
        high, low = order[0], order[-1]
        pair = judge(high, low, shown, found, (exams or {}).get(metric.id), always=False)
        cells = [f"{inert_markdown(family.label)} {number(means[family][0], _unit(metric))}" for family in (high, low)]
        if means[high][0] == means[low][0]:
            cells, words = ["all the same", DASH], DASH
        elif not pair.found.has_interval:
            words = "one seed" if min(pair.found.n_a, pair.found.n_b) < 2 else "no spread"
        else:
            seeds = _seeds(pair.found)
            told = {"higher": f"yes, {seeds}", "not distinguishable": f"not shown by {seeds}"}
            words = told.get(pair.verdict) or f"{pair.verdict.removeprefix('higher ')}, {seeds}"
        rows.append([inert_markdown(metric.label), *cells, words])
    return pd.DataFrame(rows, columns=["Final", "Highest", "Lowest", "More than luck?"])


def glance_note(shown: Sequence[Family], every: Sequence[tuple[Metric, Mapping[str, Outcome]]]) -> str:
    """How many comparisons the last column of the glance allows for, by which interval, and which it does not."""
    several = max(sum(n >= 2 for _, n in _means(shown, found, "final").values()) for _, found in every)
    if several < 2:
        return "No two methods here have two seeds, so no row can tell a method from luck."
    many = max(comparisons(shown, found) for _, found in every)
    pairs = (
        f"allows for the {many} comparisons that {several} methods with two seeds or more make"
        if many > 1
        else "is one comparison of two methods"
    )
    return (
        f"Each row {pairs}: *yes* needs Welch's {_percent(strict_level(many))} interval over seeds, and the "
        f"{_percent(LEVEL)} bootstrap, to leave 0 out. It does not allow for there being {count(len(every), 'row')}: "
        "of 20 rows without any difference, about one would say yes."
    )


def sentence(pair: Pair, base: Family, metric: Metric) -> str:
    """The verdict on one pair, in Markdown, with its intervals and their n: Welch's t, and the paired bootstrap.

    Higher and lower are said only where both leave 0 out: they fail in different ways (few seeds, other prompts), and
    where Welch's t still does so when widened for all comparisons.
    """
    found, drawn = pair.found, pair.drawn
    head = f"**{inert_markdown(pair.family.label)} − {inert_markdown(base.label)}**"
    head += f", final {inert_markdown(metric.label)}"
    if math.isnan(found.value):
        return f"{head}: no value to compare yet."
    value, seeds = number(found.value, _unit(metric), signed=True), _seeds(found)
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
    """A family against the base: the difference over seeds (Welch's t) and by the bootstrap.

    `strict` is Welch's t at the level at which all `comparisons` hold together (Bonferroni); of one, `found` itself.
    """

    family: Family
    found: Difference
    drawn: Bootstrap
    strict: Difference | None = None
    comparisons: int = 1

    @property
    def verdict(self) -> str:
        """In a few words: of both intervals, or why there is none."""
        if math.isnan(self.found.value):
            return "no value"
        if min(self.found.n_a, self.found.n_b) < 2:
            return "one seed cannot tell"
        if not self.found.has_interval:
            return "no spread between seeds"
        alone = agreed(self.found, self.drawn)
        if self.strict is None or alone == "not distinguishable" or self.strict.verdict == alone:
            return alone
        return f"{alone} on its own, not among {self.comparisons} comparisons"


def judge(
    family: Family,
    base: Family,
    shown: Sequence[Family],
    found: Mapping[str, Outcome],
    exams: Mapping[str, pd.DataFrame] | None = None,
    always: bool = True,
) -> Pair:
    """Two of the families shown against each other; `exams` as `resampled` takes them.

    Unless `always`, the bootstrap is left out where Welch's t holds 0, and the verdict is the same without it.
    """
    many = comparisons(shown, found)
    apart = difference(family, base, found)
    if always or apart.verdict in ("higher", "lower"):
        drawn = resampled(family, base, found, exams)
    else:
        drawn = Bootstrap(math.nan, math.nan, math.nan, apart.n_a, apart.n_b, "nothing")
    return Pair(family, apart, drawn, difference(family, base, found, level=strict_level(many)), many)


def comparisons(shown: Sequence[Family], found: Mapping[str, Outcome]) -> int:
    """How many pairs could be told apart: those of the families with two seeds or more. At least 1."""
    several = sum(n >= 2 for _, n in _means(shown, found, "final").values())
    return max(1, several * (several - 1) // 2)


def strict_level(comparisons: int) -> float:
    """The level of each of so many intervals at which all of them hold together as often as LEVEL says (Bonferroni)."""
    return 1 - (1 - LEVEL) / comparisons


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
        found, drawn, seeds = pair.found, pair.drawn, _seeds(pair.found)
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
    heads = [
        f"Minus {inert_markdown(base.label)}",
        "Difference",
        "Over seeds (Welch's t, 95\u00a0%)",
        "Bootstrap",
        "Verdict",
    ]
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
    text += "Higher or lower is said only where both leave 0 out"
    many = max(pair.comparisons for pair in pairs)
    return text + (f". {allowed(many)}" if many > 1 else ": one comparison, so nothing is widened.")


def allowed(many: int) -> str:
    """How so many comparisons are allowed for, in plain words."""
    return (
        f"The methods here with two seeds or more make {count(many, 'comparison')}, one of which can look real by "
        f"luck alone up to {min(99, round(100 * many * (1 - LEVEL)))} times in 100. So the first interval must leave 0 "
        f"out also when widened from {_percent(LEVEL)} to {_percent(strict_level(many))}; where it does not, it says "
        "“on its own”: by this pair alone, had no other been looked at."
    )


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


def _seeds(found: Difference) -> str:
    """`3 seeds`, of each; or `3 and 2 seeds`."""
    return count(found.n_a, "seed") if found.n_a == found.n_b else f"{found.n_a} and {found.n_b} seeds"


def _percent(level: float) -> str:
    """`98.3 %`."""
    return f"{100 * level:.4g}\u00a0%"


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
