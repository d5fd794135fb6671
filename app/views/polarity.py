"""What the right and the wrong answers each teach, in numbers: by step, over a window of steps, and in one sentence."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from app.words import count, number, share
from core.store.queries.polarity import ROLLOUT_FIELDS
from core.store.schema import SUMMARY_EDGES

CELL_NAMES = {
    ("probability", "low"): "least probable tokens",
    ("probability", "high"): "most probable tokens",
    ("entropy", "low"): "lowest-entropy tokens",
    ("entropy", "high"): "highest-entropy tokens",
}
"""The four token sets of a polarity; both polarities make the eight cells."""


@dataclass(frozen=True)
class Side:
    """One polarity over a window of steps. Means are over its rollouts or tokens, masses a step; NaN where there is
    none.
    """

    rollouts: int
    length: float  # tokens
    reward: float
    truncated: float  # share of its rollouts
    entropy: float  # nats
    probability: float
    base_mass: float
    mass: float
    flagged: int  # correct rollouts with a negative base advantage
    recorded: bool = True  # its tokens, at least in sum; the masses are NaN where not


@dataclass(frozen=True)
class Window:
    """Both polarities over the steps first..last, and the groups that carry no signal."""

    first: int
    last: int
    wrong: Side
    right: Side
    groups: int
    no_signal: int
    all_correct: int
    all_wrong: int

    @property
    def steps(self) -> str:
        """`step 7` or `steps 30 to 39`."""
        return steps_words(self.first, self.last)

    def ratio(self, before: bool = False) -> float:
        """Mass of the wrong answers over that of the right ones; inf without any of the right, NaN without either."""
        wrong, right = (self.wrong.base_mass, self.right.base_mass) if before else (self.wrong.mass, self.right.mass)
        return wrong / right if right > 0 else np.inf if wrong > 0 else np.nan

    def wrong_share(self, before: bool = False) -> float:
        """The wrong answers' share of the advantage mass; NaN without any mass."""
        wrong, right = (self.wrong.base_mass, self.right.base_mass) if before else (self.wrong.mass, self.right.mass)
        return wrong / (wrong + right) if wrong + right > 0 else np.nan


@dataclass(frozen=True)
class Series:
    """A run as a whole, one split: `by_step`, `signal_by_step`, and the steps whose tokens are there."""

    steps: pd.DataFrame
    signal: pd.DataFrame
    token_steps: list[int]


SIGNAL = ("groups", "all_correct", "all_wrong", "mixed", "no_signal", "dropped")
"""Columns of `signal_by_step`: groups of a step by what they can teach."""


def steps_words(first: int, last: int) -> str:
    """`step 7` or `steps 30 to 39`."""
    return f"step {first}" if first == last else f"steps {first} to {last}"


def by_step(answers: pd.DataFrame, fields: pd.DataFrame) -> pd.DataFrame:
    """The queries `answers_by_step` and `fields_by_step` in one frame, a row for each step and polarity.

    Counts and masses are 0, means NaN where a step has no answer of a polarity; `recorded` says whether the tokens of
    its answers were added up.
    """
    steps = np.union1d(answers["step"], fields["step"]).astype(int)
    grid = pd.MultiIndex.from_product([steps, [-1, 1]], names=["step", "polarity"])
    frame = pd.DataFrame(index=grid)
    for part in (answers.drop(columns=list(SIGNAL), errors="ignore"), fields):
        frame = frame.join(part.astype({"step": int, "polarity": int}).set_index(["step", "polarity"]))
    frame = frame.astype(float).reset_index()
    frame["recorded"] = frame["mass"].notna()
    none = ["rollouts", "tokens", "mass", "base_mass", "flagged"]
    frame[none] = frame[none].fillna(0)
    frame["share"] = frame["rollouts"] / frame.groupby("step")["rollouts"].transform("sum")
    return frame


def signal_by_step(answers: pd.DataFrame) -> pd.DataFrame:
    """The groups of each step: step and the columns of SIGNAL, one row a step."""
    return answers.drop_duplicates("step")[["step", *SIGNAL]].fillna(0).astype(int).reset_index(drop=True)


def window(frame: pd.DataFrame, signal: pd.DataFrame, first: int, last: int) -> Window:
    """The steps first..last of `by_step` and `signal_by_step`, summed up."""
    part = frame[frame["step"].between(first, last)]
    groups = signal[signal["step"].between(first, last)]
    counts = {name: int(groups[name].sum()) for name in ("groups", "no_signal", "all_correct", "all_wrong")}
    return Window(first, last, _side(part[part["polarity"] < 0]), _side(part[part["polarity"] > 0]), **counts)


def verdict(seen: Window, trained: bool) -> str:
    """One sentence (or two) about the window, made from its numbers; Markdown without foreign text."""
    words = [_mass_words(seen, trained), _difference_words(seen)]
    if seen.groups and seen.no_signal:
        kinds = f"{seen.all_correct} all right, {seen.all_wrong} all wrong"
        words.append(f"**{share(seen.no_signal / seen.groups)}** of {seen.groups} groups carry no signal ({kinds}).")
    elif seen.groups:
        words.append(f"Every one of the {seen.groups} groups carries a signal.")
    if seen.right.flagged:
        words.append(f"{seen.right.flagged} right answers have a negative advantage.")
    return " ".join(word for word in words if word)


def histogram_window(histograms: pd.DataFrame, first: int, last: int, buckets: int) -> pd.DataFrame:
    """Token counts over a window: bucket, n_wrong, n_right, and each as a share of its polarity's tokens."""
    part = histograms[histograms["step"].between(first, last)]
    counts = part.groupby(["polarity", "bucket"])["n"].sum()
    out = pd.DataFrame({"bucket": range(buckets)})
    for name, polarity in (("wrong", -1), ("right", 1)):
        n = np.array([counts.get((polarity, bucket), 0) for bucket in range(buckets)], dtype=float)
        out[f"n_{name}"] = n
        out[name] = n / n.sum() if n.sum() else np.nan
    return out


LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
"""The quantiles that `quantiles` gives, as columns q10, q25, ..."""


def quantiles(histograms: pd.DataFrame, field: str) -> pd.DataFrame:
    """Quantiles of a field by step and polarity, read from its histogram: linear in a bucket, so exact to its width.

    Columns: step, polarity, and one a level (`q10`). An open end bucket is as wide as its neighbour, a probability's
    ends at 0 and 1, an entropy's begins at 0.
    """
    edges = full_edges(field)
    keys, row = np.unique(histograms[["step", "polarity"]].to_numpy(dtype=np.int64), axis=0, return_inverse=True)
    counts = np.zeros((len(keys), len(edges) - 1))
    np.add.at(counts, (row.reshape(-1), histograms["bucket"].to_numpy(dtype=np.int64)), histograms["n"].to_numpy())
    keys, counts = keys[counts.sum(axis=1) > 0], counts[counts.sum(axis=1) > 0]
    reached = counts.cumsum(axis=1) / counts.sum(axis=1, keepdims=True)  # share below each bucket's upper edge
    out = pd.DataFrame({"step": keys[:, 0], "polarity": keys[:, 1]})
    rows = np.arange(len(keys))
    for level in LEVELS:
        bucket = (reached < level - 1e-12).sum(axis=1)
        share_of = counts[rows, bucket] / counts.sum(axis=1)
        inside = (level - (reached[rows, bucket] - share_of)) / share_of
        out[f"q{round(100 * level)}"] = edges[bucket] + inside * (edges[bucket + 1] - edges[bucket])
    return out


def value_quantiles(values: pd.DataFrame) -> pd.DataFrame:
    """The same of what each rollout has one of (`query.rollout_values`): the least value that so many reach, exact."""
    rows = []
    for (step, polarity), part in values.groupby(["step", "polarity"], sort=True):
        reached = part["n"].to_numpy().cumsum()
        at = np.searchsorted(reached, np.asarray(LEVELS) * reached[-1] - 1e-9)
        rows.append((int(step), int(polarity), *part["value"].to_numpy()[at]))
    return pd.DataFrame(rows, columns=["step", "polarity", *(f"q{round(100 * level)}" for level in LEVELS)])


MOST_BINS = 24


def value_bins(values: pd.DataFrame, field: str, first: int, last: int) -> tuple[pd.DataFrame, list[str]]:
    """`histogram_window` of `query.rollout_values`, and the names of its buckets: one a value where there are few, else
    at most MOST_BINS of equal width, for lengths a whole number of tokens.
    """
    part = values[values["step"].between(first, last)]
    there = np.unique(part["value"].to_numpy(float))
    if not len(there):
        return histogram_window(values.assign(bucket=0), first, last, 0), []
    if field != "length" and len(there) <= MOST_BINS:
        bucket, names = np.searchsorted(there, part["value"].to_numpy(float)), [number(value) for value in there]
    else:
        low, high = there[0], there[-1]
        width = np.ceil((high - low + 1) / MOST_BINS) if field == "length" else (high - low) / MOST_BINS
        bins = int((high - low) // width) + 1 if field == "length" else MOST_BINS
        bucket = np.minimum((part["value"].to_numpy(float) - low) // width, bins - 1).astype(int)
        starts = low + width * np.arange(bins)
        ends = starts + width - (1 if field == "length" else 0)
        names = [number(a) if a == b else f"{number(a)} – {number(b)}" for a, b in zip(starts, ends, strict=True)]
    return histogram_window(part.assign(bucket=bucket), first, last, len(names)), names


def pooled(frame: pd.DataFrame, first: int, last: int) -> pd.DataFrame:
    """The window's counts (`query.histograms` or `query.rollout_values`) as if it were one step, named `first`."""
    part = frame[frame["step"].between(first, last)]
    keys = [name for name in frame if name not in ("step", "n")]
    return part.groupby(keys, as_index=False, sort=True)["n"].sum().assign(step=first)


def distribution_words(
    seen: pd.DataFrame, moves: pd.DataFrame, counts: pd.DataFrame, field: str, first: int, last: int
) -> str:
    """Where the middle of each polarity lies in the window, over how many, and where the run began; Markdown.

    `seen` holds the quantiles of the pooled window, `moves` those of every step, `counts` is the window's histogram.
    """
    unit = {"entropy": "nats", "change": "nats", "length": "tokens"}.get(field, "")
    name = {"push": "push", "change": "change of log p"}.get(field, field)
    what = "answer" if field in ROLLOUT_FIELDS else "token"
    words = []
    for polarity, side in ((1, "right"), (-1, "wrong")):
        inside, own = seen[seen["polarity"] == polarity], moves[moves["polarity"] == polarity]
        if inside.empty:
            words.append(f"none in {side} answers" if what == "token" else f"no {side} answer")
            continue
        now = inside.iloc[0]
        n = f"n = {count(int(counts[f'n_{side}'].sum()), what)}"
        spread = f"the middle 80 % from {number(now['q10'])} to {number(now['q90'])}"
        began = "" if own["step"].min() >= first else f"; {number(own['q50'].iloc[0])} at step {own['step'].iloc[0]}"
        words.append(f"**{number(now['q50'], unit)}** in {side} answers ({n}; {spread}{began})")
    text = f"Median {name} of {'an answer' if what == 'answer' else 'a token'} in {steps_words(first, last)}: "
    text += f"{', '.join(words)}."
    if len(seen) == 2:
        both = np.minimum(counts["wrong"], counts["right"]).sum()
        text += f" The two distributions overlap by {share(float(both))}."
    if what == "token":
        edges = SUMMARY_EDGES[field]
        text += f" Quantiles come from bins {number(edges[1] - edges[0])} wide: smaller differences say nothing."
    return text


def full_edges(field: str) -> np.ndarray:
    """All edges of a field's histogram, its open ends closed."""
    inner = np.asarray(SUMMARY_EDGES[field], dtype=float)
    low, high = inner[0] - (inner[1] - inner[0]), inner[-1] + (inner[-1] - inner[-2])
    if field == "probability":
        low, high = 0.0, 1.0
    elif field == "entropy":
        low = 0.0
    return np.concatenate([[low], inner, [high]])


def bucket_names(field: str) -> list[str]:
    """`0.95 – 1`; `< −3` and `≥ 3` for open ends."""
    edges = full_edges(field)
    names = [f"{number(low)} – {number(high)}" for low, high in pairwise(edges)]
    if field not in ("probability", "entropy"):
        names[0] = f"< {number(edges[1])}"
    if field != "probability":
        names[-1] = f"≥ {number(edges[-2])}"
    return names


def _side(part: pd.DataFrame) -> Side:
    def mean(column: str, weight: str) -> float:
        there = part[[column, weight]].dropna()
        total = there[weight].sum()
        return float((there[column] * there[weight]).sum() / total) if total else np.nan

    steps = max(1, part["step"].nunique())
    recorded = bool(part["recorded"].any()) or not part["rollouts"].sum()
    masses = [float(part[name].sum()) / steps if recorded else np.nan for name in ("base_mass", "mass")]
    return Side(
        int(part["rollouts"].sum()), mean("length", "rollouts"), mean("reward", "rollouts"), mean("truncated",
        "rollouts"),
        mean("entropy", "tokens"), mean("probability", "tokens"), *masses, int(part["flagged"].sum()), recorded,
    )  # fmt: skip


def _mass_words(seen: Window, trained: bool) -> str:
    if not trained:
        return "Probes are not trained, so they have no advantage mass."
    after, before = seen.wrong_share(), seen.wrong_share(before=True)
    if not (seen.wrong.recorded and seen.right.recorded):
        return f"The advantage mass is not known: it is a sum over tokens, and {seen.steps} came without."
    if np.isnan(after):
        return f"Nothing was trained on in {seen.steps}: no token has advantage mass."
    if after in (0.0, 1.0):
        only = "right" if after == 0 else "wrong"
        return f"Only the {only} answers teach: they carry all of the advantage mass in {seen.steps}."
    words = f"In {seen.steps} the wrong answers carry **{share(after)}** of the advantage mass"
    if np.isnan(before):
        return f"{words}."
    same = abs(after - before) < 0.005
    return f"{words}, {'as before shaping' if same else f'{share(before)} before shaping'}."


def _difference_words(seen: Window) -> str:
    longer, sharper = seen.wrong.length - seen.right.length, seen.wrong.entropy - seen.right.entropy
    if not seen.wrong.rollouts and not seen.right.rollouts:
        return ""
    if not seen.wrong.rollouts or not seen.right.rollouts:
        return f"Every answer was {'right' if seen.right.rollouts else 'wrong'}."
    words = []
    if not np.isnan(longer):
        far = f"{number(abs(longer), 'tokens')} {'longer' if longer > 0 else 'shorter'}"
        words.append(far if abs(longer) >= 0.5 else "as long")
    if not np.isnan(sharper):
        less = "less" if sharper > 0 else "more"
        words.append(
            f"{number(abs(sharper), 'nats')} {less} certain a token" if abs(sharper) >= 0.01 else "as certain a token"
        )
    if not words:
        return f"{count(seen.wrong.rollouts, 'answer was', 'answers were')} wrong, {seen.right.rollouts} right."
    close = words[-1].startswith("as ")
    wrong, right = (f"n = {side.rollouts:,}".replace(",", "\u202f") for side in (seen.wrong, seen.right))
    return f"Wrong answers ({wrong}) are {' and '.join(words)} {'as' if close else 'than'} right ones ({right})."
