"""Which curves the Live page shows, in which order, and how each is read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go

from app.inert import inert_markdown, visible
from app.palette import Theme, series_styles
from app.views.live import Line, Series, by_polarity, curves, mass_lines, one_each


@dataclass(frozen=True)
class Panel:
    """One figure: its words, and the column it draws for several runs. `alone` gives the lines of a single run, which
    can show more of it at once, then under `alone_title` and `alone_y` where they are given. `level` is the value that
    the curve should keep, drawn as a line; `log` gives the axis a logarithmic scale."""

    key: str
    title: str
    y: str
    how: str
    column: str
    table: str = "metrics"
    share: bool = False
    alone: Callable[[Series, Theme], list[Line]] | None = None
    alone_title: str = ""
    alone_y: str = ""
    absent: str = "This run has not recorded it."
    level: float | None = None
    log: bool = False

    def lines(self, series: Sequence[Series], theme: Theme) -> list[Line]:
        """The lines for these runs."""
        if len(series) == 1:
            if self.alone:
                return self.alone(series[0], theme)
            return [Line(series[0], self.column, self.title, theme.reinforced, "solid", self.table)]
        return one_each(series, self.column, self.table)

    def figure(self, series: Sequence[Series], theme: Theme, smooth: int) -> go.Figure:
        """The figure for these runs; `smooth` is the width in steps of the trailing mean."""
        alone = len(series) == 1
        return curves(
            theme,
            self.lines(series, theme),
            title=self.alone_title if alone and self.alone_title else self.title,
            y=self.alone_y if alone and self.alone_y else self.y,
            smooth=smooth,
            share=self.share and not (alone and self.alone_y),
            level=self.level,
            log=self.log,
        )


def _exam(run: Series, theme: Theme) -> list[Line]:
    return [
        Line(run, "pass_at_1", "pass@1, sampled", theme.reinforced, "solid", "evals"),
        Line(run, "greedy", "greedy", theme.muted, "dash", "evals"),
    ]


def _self_checks(run: Series, theme: Theme) -> list[Line]:
    return [
        Line(run, "traits.self_check", "all", theme.text),
        Line(run, "traits_correct.self_check", "+ correct", theme.reinforced),
    ]


def _clips(run: Series, theme: Theme) -> list[Line]:
    return [
        Line(run, "clip_low_share", "at the lower bound", theme.suppressed),
        Line(run, "clip_high_share", "at the upper bound", theme.reinforced),
    ]


def _gaps(run: Series, theme: Theme) -> list[Line]:
    return [
        Line(run, "gap_max", "largest", theme.muted, "dot"),
        Line(run, "gap_mean", "mean", theme.reinforced),
    ]


def _far(run: Series, theme: Theme) -> list[Line]:
    return [
        Line(run, "gap_share", "far apart", theme.reinforced),
        Line(run, "tis_capped_share", "cut at the cap", theme.suppressed, "dash"),
    ]


def _silent(run: Series, theme: Theme) -> list[Line]:
    return [
        Line(run, "no_signal_share", "no signal", theme.text),
        Line(run, "all_correct_share", "all right", theme.reinforced, "dot"),
        Line(run, "all_wrong_share", "all wrong", theme.suppressed, "dot"),
    ]


CURVES = (
    Panel(
        "reward", "Reward on training prompts", "mean reward",
        "The mean reward of the rollouts that each step samples and then trains on. It is noisy, since every step has "
        "other prompts; the pale line is the raw value, the strong one a trailing mean.",
        "reward", alone=lambda run, theme: [Line(run, "reward", "reward", theme.reinforced)],
    ),
    Panel(
        "pass", "pass@1 on held-out prompts", "share solved",
        "The share of answers that are right on prompts never trained on, at the run's own temperature. **Greedy** "
        "takes the likeliest token each time. This curve, not the reward, says whether what it learned carries over.",
        "pass_at_1", "evals", share=True, alone=_exam,
        absent="Held-out evaluation is off for this run, or the first one is still to come.",
    ),
    Panel(
        "entropy", "Entropy of the policy", "entropy (nats per token)",
        "How undecided the policy is at each token it writes, on average. It falls as the policy grows sure; near 0 it "
        "no longer explores. Methods that train on right answers only let it fall fastest.",
        "entropy", alone=lambda run, theme: by_polarity(run, theme, "entropy"),
    ),
    Panel(
        "length", "Length of correct responses", "length (tokens)",
        "Mean length of the right answers, the end token included. Shorter right answers mean that steps and checks "
        "are being dropped; longer ones that they are being kept or added.",
        "length_correct", alone=lambda run, theme: by_polarity(run, theme, "length"), alone_title="Length of responses",
    ),
    Panel(
        "mass", "Share of advantage mass on correct rollouts", "share of mass",
        "Advantage mass = sum of loss weight × |advantage| over the trained tokens: how hard the update pulls. Its "
        "share on right answers is 1 for positives only (PSR) and 0 for negatives only (NSR). Dotted lines, where "
        "there are any, are the mass before the method's weights.",
        "mass_positive_share", share=True, alone=mass_lines, alone_title="Advantage mass by polarity",
        alone_y="advantage mass",
    ),
    Panel(
        "checks", "Share of self-checks", "share of responses",
        "How many responses check themselves (a second chain after “check”). The verifier records it as a trait.",
        "traits.self_check", share=True, alone=_self_checks,
        absent="This task's verifier records no self-checks.",
    ),
)  # fmt: skip
"""The six that a run is first judged by."""

PART = "traits.part_"
"""What the columns of the reward's parts begin with."""
MOST_PARTS = 6


def part_panels(series: Sequence[Series]) -> list[Panel]:
    """What rewards are made of where a verifier adds up several parts: all of one run in one panel, else one a part."""
    names = sorted({name for run in series for name in run.curves.metrics.columns if name.startswith(PART)})
    titles = {name: visible(name.removeprefix(PART))[:30] for name in names[:MOST_PARTS]}
    how = (
        "What each part adds to the reward, its weight included, averaged over the step's rollouts: the reward's curve "
        "is their sum. Where one rises and the others stay, the policy has found what pays without what was meant."
    )
    if len(series) > 1:
        return [
            Panel(f"part_{i}", f"Reward part: {inert_markdown(title)}", "mean reward", how, name)
            for i, (name, title) in enumerate(titles.items())
        ]

    def lines(run: Series, theme: Theme) -> list[Line]:
        looks = zip(titles.items(), series_styles(len(titles), theme.dark), strict=True)
        return [Line(run, name, title, colour, dash) for (name, title), (colour, dash) in looks]

    return [Panel("parts", "What the reward is made of", "mean reward", how, names[0], alone=lines)] if names else []


MORE = (
    Panel(
        "pass_k", "pass@k on held-out prompts", "share solved",
        "The share of held-out prompts that at least one of k answers solves: what the policy can reach by trying.",
        "pass_at_k", "evals", share=True, absent="Held-out evaluation is off for this run.",
    ),
    Panel(
        "silent", "Groups without a signal", "share of groups",
        "A group whose rollouts all have the same reward has advantage 0 everywhere: it teaches nothing.",
        "no_signal_share", share=True, alone=_silent,
    ),
    Panel(
        "gradient", "Gradient norm before clipping", "norm",
        "The size of the step's gradient, mean over its updates, before it is scaled down to the limit.",
        "grad_norm",
    ),
    Panel(
        "clipped", "Tokens clipped at the upper bound", "share of trained tokens",
        "Tokens whose ratio left the clip range in their last gradient pass, so that they taught nothing there. With "
        "one update a step every ratio is 1 and nothing can clip.",
        "clip_high_share", alone=_clips, alone_title="Clipped tokens",
    ),
    Panel(
        "kl", "KL to the base model", "KL (nats per token)",
        "How far the policy has moved from the model it started from (k3 estimate).",
        "kl", absent="Not computed: it needs loss.kl above 0 or record.reference.",
    ),
    Panel(
        "truncated", "Truncated responses", "share of responses",
        "Responses stopped by the length limit; they count as wrong.",
        "truncated_share", share=True,
    ),
    Panel(
        "time", "Time of a step", "time (s)",
        "From sampling to the end of the update and recordings.",
        "time_step",
    ),
    Panel(
        "update", "Size of the update", "norm",
        "How far the adapter's weights moved in the step.",
        "update_norm",
    ),
    Panel(
        "penalty", "Penalised tokens", "share of tokens",
        "KL-Cov and Lp-Reg hold a few tokens in place by a penalty of their own; this is the share of the trained "
        "tokens that met it in their last gradient pass.",
        "penalised_share", share=True, absent="This run's method has no penalty.",
    ),
)  # fmt: skip
"""Behind the switch "More curves"."""

GAP = (
    Panel(
        "ratio", "Mean ratio of trainer to sampler", "mean ratio",
        "Each token's probability in the trainer over that in the engine that sampled it, averaged over the step. "
        "Around **1** all is well, however large the gap: over draws of the engine's own distribution the mean is 1. "
        "Away from 1 by more than chance, the tokens were not drawn as the engine says (it has a temperature, top-k or "
        "top-p of its own), or the gap is so large that a few rare tokens carry the mean.",
        "tis_mean_ratio", level=1.0,
    ),
    Panel(
        "gap", "Gap of their log-probs", "|trainer − sampler| (nats)",
        "How far the two log-probs of a token are apart: on average over the step, and at the worst token. The axis is "
        "logarithmic. A mean of 0.01 nats is a difference of 1 % in probability. **If it grows**, give the engine the "
        "trainer's precision; if it has that already, a lower optimizer.lr slows the growth.",
        "gap_mean", alone=_gaps, log=True,
    ),
    Panel(
        "far", "Tokens far apart", "share of tokens",
        "Tokens whose log-probs differ by more than tis.gap (0.1 nats unless set otherwise), and those whose "
        "correction is cut at tis.cap (2 unless set otherwise). Each token's policy term is multiplied by its ratio; "
        "what the cap cuts stays uncorrected, so few tokens should reach it.",
        "gap_share", alone=_far, alone_title="Tokens far apart, and cut at the cap",
    ),
)  # fmt: skip
"""Of runs whose sampler is not the trainer's own model."""
