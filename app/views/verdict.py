"""What the numbers of a run say in one line, and the illnesses that training runs are known for.

Pure: frames in, findings out. Levels compare the mean of the last steps with the mean of the first; the window is a
fifth of the run, 3 to 10 steps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from app.words import count, number, share
from core.store.queries.live import Curves

EARLY = 5
"""Steps before which nothing is claimed."""


@dataclass(frozen=True)
class Finding:
    """One sentence of Markdown about a run, its tone (good, neutral, warning, bad), and the page that shows it."""

    tone: str
    sentence: str
    page: str | None = None
    params: dict[str, Any] = field(default_factory=dict)
    look: str = ""
    """What to look at there: the words of the link."""


def window(n: int) -> int:
    """Steps that a level is averaged over."""
    return max(1, min(10, max(3, n // 5), n))


def levels(frame: pd.DataFrame, column: str) -> tuple[float, float]:
    """(first, last) level of a column; NaN where it has no value."""
    if column not in frame:
        return math.nan, math.nan
    values = pd.to_numeric(frame[column], errors="coerce").dropna()
    if values.empty:
        return math.nan, math.nan
    width = window(len(values))
    return float(values.iloc[:width].mean()), float(values.iloc[-width:].mean())


def verdict(curves: Curves, ended: bool = False) -> Finding:
    """Is it learning, or has it, where the run has `ended`? One sentence with its numbers and their n."""
    steps = len(curves.metrics)
    if steps == 0:
        return Finding("neutral", "No step is done yet: the first curve appears with the first step.")
    if steps < EARLY:
        return _early(curves.metrics)
    tone, gain = _gain(curves, ended)
    parts = [gain]
    start, now = levels(curves.metrics, "entropy")
    means = f", means of {count(window(steps), 'step')}"
    if start > 0:
        moved = now / start - 1
        if moved < -0.4:
            parts.append(f"entropy falling fast ({number(start)} → {number(now, 'nats')}{means})")
        elif abs(moved) > 0.15:
            way = "falling" if moved < 0 else "rising"
            parts.append(f"entropy {way} ({number(start)} → {number(now, 'nats')}{means})")
        else:
            parts.append(f"entropy steady at {number(now, 'nats')}")
    _, silent = levels(curves.metrics, "no_signal_share")
    if silent >= 0.005:
        parts.append(f"{share(silent)} of groups carry no signal")
    return Finding(tone, "; ".join(parts) + ".")


def _early(metrics: pd.DataFrame) -> Finding:
    """Of a run that has just begun: nothing, unless not one of its groups could teach anything."""
    words = f"Too early to say: {count(len(metrics), 'step')} so far"
    silent, wrong, cut = (levels(metrics, f"{name}_share")[0] for name in ("no_signal", "all_wrong", "truncated"))
    if len(metrics) < 2 or not silent > 0.99:
        return Finding("neutral", f"{words}.")
    why = ": every answer was wrong" if wrong > 0.99 else ""
    limit = f", and {share(cut)} of the answers were cut off by the length limit" if cut > 0.3 else ""
    return Finding("warning", f"{words}, but **no group had a signal yet**{why}{limit}.")


def _gain(curves: Curves, ended: bool) -> tuple[str, str]:
    """Held-out pass@1 from the first evaluation to the last, against its binomial error; else the training reward."""
    evals = curves.evals
    if len(evals) >= 2 and "pass_at_1" in evals:
        first, last = evals.iloc[0], evals.iloc[-1]
        before, after = float(first["pass_at_1"]), float(last["pass_at_1"])
        prompts, rollouts = int(last["prompts"]), int(last["rollouts"])
        n = prompts * rollouts
        error = math.sqrt(before * (1 - before) / n + after * (1 - after) / n) if n else math.inf
        span = count(int(last["step"] - first["step"]), "step")
        words = (
            f"held-out pass@1 {number(after - before, signed=True)} in {span} "
            f"({number(before)} → {number(after)}, {prompts} prompts × {rollouts} rollouts)"
        )
        return _judge(after - before, 2 * error, words, ended)
    rewards = pd.to_numeric(curves.metrics["reward"], errors="coerce").dropna()
    width = window(len(rewards))
    before, after = levels(curves.metrics, "reward")
    spread = float(rewards.diff().std()) / math.sqrt(2) if len(rewards) > 2 else math.inf
    change = f"training reward {number(after - before, signed=True)} ({number(before)} → {number(after)}, "
    return _judge(after - before, 2 * spread * math.sqrt(2 / width), f"{change}means of {count(width, 'step')})", ended)


def _judge(gain: float, noise: float, words: str, ended: bool) -> tuple[str, str]:
    if gain > noise:
        return "good", f"**{'It learned' if ended else 'Learning'}**: {words}"
    if gain < -noise:
        return "bad", f"**{'It got worse' if ended else 'Getting worse'}**: {words}"
    return "neutral", f"**{'No clear change' if ended else 'No clear change yet'}**: {words}, within the noise"


def illnesses(curves: Curves, run: str, max_new_tokens: int | None = None) -> list[Finding]:
    """The known illnesses that this run shows now."""
    metrics = curves.metrics
    if len(metrics) < EARLY:
        return []
    here = {"run": run, "step": curves.last_step}
    found = []

    def now(column: str) -> float:
        return levels(metrics, column)[1]

    entropy_before, entropy = levels(metrics, "entropy")
    if entropy < 0.05 or (entropy_before > 0 and entropy < 0.2 * entropy_before):
        found.append(
            Finding(
                "warning",
                f"**Entropy collapse**: {number(entropy, 'nats')} a token, from {number(entropy_before)}. The "
                "policy has almost stopped exploring; what it does not sample it cannot learn.",
                "polarity", {"run": run}, "Entropy of right and wrong answers",
            )
        )  # fmt: skip
    if now("no_signal_share") > 0.9:
        right, wrong = now("all_correct_share"), now("all_wrong_share")
        why = "the prompts are too easy for it now" if right >= wrong else "the prompts are too hard for it"
        found.append(
            Finding(
                "bad",
                f"**Nearly all groups are uniform**: {share(now('no_signal_share'))} of groups have equal rewards "
                f"({share(right)} all right, {share(wrong)} all wrong), so comparing within a group gives them no "
                f"advantage: {why}.",
                "favorability", {"run": run}, "Which prompts still count",
            )
        )  # fmt: skip
    if (cut := now("truncated_share")) > 0.3:
        limit = f" of {max_new_tokens} tokens" if max_new_tokens else ""
        found.append(
            Finding(
                "bad" if cut > 0.9 else "warning",
                f"**{'Every' if cut > 0.995 else share(cut) + ' of'} response{'s are' if cut <= 0.995 else ' is'} "
                f"truncated** by the limit{limit}: a cut answer counts as wrong. Raise sampling.max_new_tokens, or "
                "find out why it does not stop.",
                "tokens", here, "The newest responses",
            )
        )  # fmt: skip
    found += _disagreement(metrics, here) + _growth(metrics, run) + _updates(metrics, here)
    return found


def _disagreement(metrics: pd.DataFrame, here: dict[str, Any]) -> list[Finding]:
    """Sampler against trainer: a mean ratio beyond 5 % of 1, a mean gap beyond 0.05 nats, many tokens far apart."""
    ratio, gap, far = (levels(metrics, column)[1] for column in ("tis_mean_ratio", "gap_mean", "gap_share"))
    biased = abs(ratio - 1) > 0.05
    if not (biased or gap > 0.05 or far > 0.1):
        return []
    look = (
        "A mean away from 1 says that the tokens were not drawn as the engine says, or that the gap is very large: "
        "look for a temperature or top-p of its own, or another precision."
        if biased
        else "The rollouts come from another policy than the one that is updated: give the engine the trainer's "
        "precision and the newest adapter, or lower optimizer.lr if the gap grows."
    )
    return [
        Finding(
            "bad" if biased or gap > 0.05 else "warning",
            f"**Sampler and trainer disagree**: their log-probs differ by {number(gap, 'nats')} a token, "
            f"{share(far)} of tokens are far apart, and the mean ratio is {number(ratio)} where 1 is expected. {look}",
            "tokens", here, "The newest step's tokens",
        )
    ]  # fmt: skip


def _growth(metrics: pd.DataFrame, run: str) -> list[Finding]:
    short, long = levels(metrics, "length")
    before, after = levels(metrics, "reward")
    if short > 0 and long > 1.6 * short and after > before:
        return [
            Finding(
                "warning",
                f"**Length is growing with the reward**: {number(short)} → {number(long, 'tokens')} while reward went "
                f"{number(before)} → {number(after)}. Check that the extra tokens do work.",
                "polarity", {"run": run}, "Length of right and wrong answers",
            )
        ]  # fmt: skip
    return []


def _updates(metrics: pd.DataFrame, here: dict[str, Any]) -> list[Finding]:
    found = []
    clipped = levels(metrics, "clip_low_share")[1] + levels(metrics, "clip_high_share")[1]
    if clipped > 0.2:
        found.append(
            Finding(
                "warning",
                f"**Clipping is at its ceiling**: {share(clipped)} of trained tokens were clipped in their last "
                "gradient pass and taught nothing there. Fewer updates a step or a smaller learning rate lower it.",
                "tokens", here, "Which tokens were clipped",
            )
        )  # fmt: skip
    norms = pd.to_numeric(metrics.get("grad_norm", pd.Series(dtype=float)), errors="coerce").dropna()
    if len(norms) and norms.iloc[-1] > 20 * max(norms.median(), 1e-9):
        found.append(
            Finding(
                "warning",
                f"**The gradient jumped**: its norm was {number(norms.iloc[-1])} at the newest step, the median of "
                f"{count(len(norms), 'step')} is {number(norms.median())}.",
                "tokens", here, "The step's tokens",
            )
        )  # fmt: skip
    loss = pd.to_numeric(metrics.get("policy_loss", pd.Series(dtype=float)), errors="coerce").dropna().tail(10)
    if len(loss) and loss.abs().median() < 1e-3 and norms.tail(10).median() > 1e-3:
        updates = pd.to_numeric(metrics.get("updates", pd.Series(dtype=float)), errors="coerce")
        once = "with one update a step every ratio is 1, so the loss is"
        several = "a step's first update finds every ratio at 1, where the loss is"
        found.append(
            Finding(
                "neutral",
                f"**The loss reads 0 and that is no error**: {once if updates.max() <= 1 else several} "
                f"minus the mean advantage, which a group centres on 0. Its gradient is not 0 (norm "
                f"{number(norms.tail(10).median())}): each token is pushed by its own advantage.",
                "tokens", here, "Advantages of the newest step",
            )
        )  # fmt: skip
    return found
