"""The promise behind every picture: what the store holds is whole, and gives the trained advantages when recomputed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from core.advantage import PROXY_DROPPED, Trace, gap_metrics, loss_weights, tis_weights
from core.advantage.tis import GAP_METRICS
from core.config import ConfigError, TisSettings, read_run
from core.store.check_rollouts import check_rollouts, without_rewards, without_tokens
from core.store.errors import StoreError
from core.store.open import Lab, StepLab, open_runs
from core.store.replay import Replay, replay
from core.store.schema import FACTOR_PREFIX, TABLES

TOLERANCE = 1e-6
"""Times max(1, |advantage|): how far a recomputed advantage may lie from the stored one."""
MASS_TOLERANCE = 1e-5
"""Relative: how far a metric's advantage mass may lie from the sum over the stored float32 tokens."""
PROXY_TOLERANCE = 1e-3
"""Nats by which rounding may put a renormalised log-prob below the plain one, which the sampler may have given."""
MASSES = {
    "mass_positive": (1, "advantage"),
    "mass_negative": (-1, "advantage"),
    "mass_positive_base": (1, "base_advantage"),
    "mass_negative_base": (-1, "base_advantage"),
}
"""The metrics that add up loss weight x |a token column| over the kept tokens of one polarity."""
MAX_PROBLEMS = 100


@dataclass
class CheckReport:
    """What `check` found. `problems` is empty for a run that keeps the promise."""

    steps: int = 0
    recomputed: list[int] | None = None
    """The steps whose advantages were recomputed, of a packed run, which keeps some steps' tokens; else None: all."""
    rollouts: int = 0
    tokens: int = 0
    largest_difference: float = 0.0
    """Of a recomputed advantage from the stored one, over max(1, |advantage|)."""
    where: str = ""
    """The token with the largest difference."""
    problems: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems

    def say(self, problem: str) -> None:
        if len(self.problems) < MAX_PROBLEMS and problem not in self.problems:
            self.problems.append(problem)


def check(run_dir: str | Path, progress: Callable[[int, int], None] | None = None) -> CheckReport:
    """Check every step of a run. `progress(done, total)` is called after each. Raises StoreError for no run at all."""
    report = CheckReport()
    with open_runs([run_dir]) as lab:
        (run,) = lab.runs
        steps = lab.steps(run)
        report.steps = len(steps)
        packed = lab.source(run).packed
        report.recomputed = sorted(packed.token_steps) if packed else None
        imported = _imported(Path(run_dir))
        try:
            _check_steps(lab, steps, report, None if imported else _promised(Path(run_dir)), imported)
        except (StoreError, ConfigError) as error:
            report.say(str(error))
        for done, step in enumerate(steps, start=1):
            here = lab.step(run, step)
            try:
                for split in _check_rows(here, report):
                    if packed and packed.token_steps and step not in packed.token_steps:
                        continue
                    if imported and without_rewards(here, split):
                        continue
                    again = replay(lab, run, step, split)
                    if imported and without_tokens(here, split):
                        check_rollouts(here, again, split, report)
                    else:
                        _check_advantages(here, again, split, report)
                    _check_groups(here, again, split, report)
            except (StoreError, ConfigError) as error:
                report.say(str(error))
            if progress is not None:
                progress(done, len(steps))
    return report


def _promised(run_dir: Path) -> int | None:
    """The steps that a run must have, since its status says that it is finished; None where it may go on."""
    try:
        state = json.loads((run_dir / "status.json").read_text(encoding="utf-8"))["state"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return read_run(run_dir / "config.yaml").steps if state == "finished" else None


def _imported(run_dir: Path) -> bool:
    """Whether the run came from elsewhere: its steps are those that its files had, and it may lack what they lacked."""
    try:
        return read_run(run_dir / "config.yaml").imported
    except ConfigError:
        return False  # said where the config is needed


def _check_steps(
    lab: Lab, steps: list[int], report: CheckReport, promised: int | None = None, imported: bool = False
) -> None:
    """No gap, no foreign step, none missing at a finished run's end, metrics with each trained one, nothing twice."""
    there = set(steps)
    if not imported and steps and steps[-1] != len(steps) - 1:
        missing = islice((step for step in range(steps[-1]) if step not in there), 10)
        report.say(f"steps {', '.join(map(str, missing))} are missing")
    for table in ("metrics", "evals"):
        for row in lab.rows(f"SELECT step, count(*) AS n FROM {table} GROUP BY step HAVING n > 1 ORDER BY step"):
            report.say(f"step {row['step']}: {row['n']} rows of {table}")
    trained = {row["step"] for row in lab.rows("SELECT DISTINCT step FROM rollouts WHERE split = 'train'")}
    if promised is not None and len(trained) < promised:
        report.say(f"the run says that it is finished, but {len(trained)} of its {promised} steps are here")
    measured = {row["step"] for row in lab.rows("SELECT step FROM metrics")}
    evaluated = {row["step"] for row in lab.rows("SELECT step FROM evals")}
    for step in steps:
        if step in trained and step not in measured:
            report.say(f"step {step}: no metrics")
        if step in measured and step not in trained:
            report.say(f"step {step}: metrics without rollouts")
        if step not in trained and not ((imported or step == steps[-1]) and step in evaluated):
            report.say(f"step {step}: no rollouts")
    for table in TABLES:
        for row in lab.rows(f"SELECT DISTINCT step FROM {table} ORDER BY step"):
            if row["step"] not in there:
                report.say(f"{table} has rows of step {row['step']}, which the run does not list")


def _check_rows(lab: StepLab, report: CheckReport) -> list[str]:
    """Rows agree with each other: groups with rollouts, tokens with the summary. Returns the splits to recompute."""
    rows = lab.rows(
        """
        WITH g AS (SELECT split, "group", count(*) AS copies, sum(n) AS n, sum(correct) AS correct
                   FROM groups GROUP BY ALL),
        r AS (SELECT split, "group", count(*) AS n, count(DISTINCT rollout) AS different, min(rollout) AS lowest,
                     max(rollout) AS highest,
                     CASE WHEN count(correct) > 0 THEN count(*) FILTER (correct) END AS correct,
                     count(correct) AS judged FROM rollouts GROUP BY ALL)
        SELECT split, "group", copies, g.n AS said, g.correct AS said_correct, r.* EXCLUDE (split, "group")
        FROM g FULL JOIN r USING (split, "group") ORDER BY split, "group"
        """
    )
    splits: dict[str, bool] = {}
    for row in rows:
        problem = _problem(row)
        if problem:
            report.say(f"step {lab.step}, {row['split']}, group {row['group']}: {problem}")
        report.rollouts += row["n"] or 0
        splits[row["split"]] = splits.get(row["split"], True) and not problem
    counts = lab.rows(
        """
        WITH t AS (SELECT split, count(*) AS n, count(sampler_logprob) AS recorded FROM tokens GROUP BY split),
        s AS (SELECT split, sum(n) AS summed FROM summary WHERE field = 'probability' GROUP BY split),
        p AS (SELECT split, sum(tokens) AS placed FROM positions GROUP BY split)
        SELECT split, n, recorded, coalesce(summed, 0) AS summed, coalesce(placed, n) AS placed
        FROM t LEFT JOIN s USING (split) LEFT JOIN p USING (split)
        """
    )
    for row in counts:
        report.tokens += row["n"]
        if row["summed"] != row["recorded"]:
            report.say(
                f"step {lab.step}, {row['split']}: the summary counts {row['summed']} of {row['recorded']} tokens"
            )
        if row["placed"] != row["n"]:
            report.say(f"step {lab.step}, {row['split']}: positions counts {row['placed']} of {row['n']} tokens")
    return [split for split, whole in splits.items() if whole and split != "eval"]


def _problem(row: dict[str, Any]) -> str:
    """What is wrong with a group and its rollouts; '' if nothing."""
    if row["copies"] is None:
        return "rollouts without a group"
    if row["n"] is None:
        return "a group without rollouts"
    if row["copies"] > 1 or row["different"] != row["n"]:
        return "the same key twice"
    if (row["lowest"], row["highest"]) != (0, row["n"] - 1) or row["said"] != row["n"]:
        return f"{row['n']} rollouts where the group says {row['said']}"
    if row["said_correct"] is not None and row["judged"] != row["n"]:
        return f"{row['n'] - row['judged']} rollouts without a verdict, right or wrong"
    if row["said_correct"] != row["correct"]:
        return f"{row['correct']} correct rollouts where the group says {row['said_correct']}"
    return ""


def _check_advantages(lab: StepLab, again: Replay, split: str, report: CheckReport) -> None:
    """Recomputed advantages, factors and loss weights equal the stored ones; factors multiply, masses add up."""
    batch, trace, mask = again.batch, again.trace, again.batch.mask
    stored = _stored(lab, split, batch.length)
    place = _Places(f"step {lab.step}, {split}", list(again.row), mask)
    base = trace.base if trace.base.ndim == 2 else np.broadcast_to(trace.base[:, None], mask.shape)
    difference, worst = _compare("advantage", stored, trace.advantage[mask], place, report)
    if difference > report.largest_difference:
        report.largest_difference, report.where = difference, place.name(worst)
    _compare("base_advantage", stored, base[mask], place, report)
    product = stored["base_advantage"].astype(np.float64)
    for factor in trace.factors:
        column = FACTOR_PREFIX + factor.id
        if column not in stored:
            report.say(f"{place.where}: the factor {factor.id} has no column {column}")
            continue
        _compare(column, stored, factor.spread(batch)[mask], place, report)
        product *= stored[column]
    _compare("advantage", stored, product, place, report, "as base x factors")
    _check_penalty(stored, trace, mask, place, report)
    if split == "train":
        _compare("minibatch", stored, np.repeat(trace.minibatch, batch.length), place, report)
        aggregation = trace.method.loss.aggregation
        weight = loss_weights(trace.kept, batch.length, batch.max_length, aggregation, trace.minibatch)
        _compare("loss_weight", stored, weight[mask], place, report, least=0)
        _check_masses(lab, stored, report)
        _check_tis(lab, stored, again.config.tis, place, report)
    for column, expected in (
        ("kept", trace.kept[mask]),
        ("kept_rollout", np.repeat(trace.kept.any(axis=1), batch.length)),
        ("polarity", np.repeat(trace.polarity, batch.length)),
    ):
        _compare(column, stored, expected, place, report)


def _check_penalty(
    stored: dict[str, np.ndarray], trace: Trace, mask: np.ndarray, place: _Places, report: CheckReport
) -> None:
    """Coefficients are the recomputed ones, and the proxy's log-probs those of a part of the policy's tokens."""
    if trace.penalty is not None:
        _compare("penalty", stored, trace.penalty.coefficient[mask], place, report)
    elif not np.isnan(stored["penalty"]).all():
        first = int(np.argmin(np.isnan(stored["penalty"])))
        report.say(f"{place.name(first)}: penalty is {stored['penalty'][first]:.9g}, but this method has none")
    trainer, proxy = stored["trainer_logprob"], stored["proxy_logprob"]
    wrong = (proxy != PROXY_DROPPED) & (proxy < trainer - PROXY_TOLERANCE)
    if wrong.any():
        first = int(np.argmax(wrong))
        report.say(
            f"{place.name(first)}: proxy_logprob is {proxy[first]:.9g}, below trainer_logprob, {trainer[first]:.9g}: "
            "filtering tokens out cannot do that"
        )


def _check_masses(lab: StepLab, stored: dict[str, np.ndarray], report: CheckReport) -> None:
    """The metrics' advantage masses are what the stored tokens add up to."""
    weight = np.where(stored["kept"] > 0, stored["loss_weight"], 0).astype(np.float64)
    for row in lab.rows(f"SELECT {', '.join(MASSES)} FROM metrics"):
        for name, (polarity, column) in MASSES.items():
            mine = stored["polarity"] == polarity
            expected = float((weight[mine] * np.abs(stored[column][mine].astype(np.float64))).sum())
            if row[name] is None or not np.isclose(row[name], expected, rtol=MASS_TOLERANCE, atol=1e-12):
                found = _word(row[name])
                report.say(f"step {lab.step}: {name} is {found} in the metrics, {expected:.9g} over the stored tokens")


def _check_tis(
    lab: StepLab, stored: dict[str, np.ndarray], settings: TisSettings, place: _Places, report: CheckReport
) -> None:
    """Where the step measured a gap between sampler and trainer, it and the weights follow from the log-probs."""
    sampler, trainer = stored["sampler_logprob"], stored["trainer_logprob"]
    rows = lab.rows(f"SELECT {', '.join(GAP_METRICS)} FROM metrics")
    measured = [row for row in rows if row["gap_mean"] is not None]
    if measured and settings.cap is not None:
        _compare("tis", stored, tis_weights(sampler, trainer, settings.cap), place, report)
    elif not np.isnan(stored["tis"]).all():
        first = int(np.argmin(np.isnan(stored["tis"])))
        report.say(f"{place.name(first)}: tis is {stored['tis'][first]:.9g}, but this step corrected nothing")
    for row in measured:
        for name, expected in gap_metrics(sampler, trainer, settings.gap, settings.cap).items():
            if not _same(row[name], expected):
                found, word = _word(row[name]), _word(expected)
                report.say(f"step {lab.step}: {name} is {found} in the metrics, {word} over the stored tokens")


def _check_groups(lab: StepLab, again: Replay, split: str, report: CheckReport) -> None:
    """Classes, what made them, and prompt weights of the stored groups are the recomputed ones."""
    classes = again.trace.classes
    expected: dict[str, Sequence[Any]] = {
        "class": classes.label,
        "length_advantage": classes.length_advantage,
        "difficulty_advantage": classes.difficulty_advantage,
        "weight": classes.weight,
        "longest_correct": classes.longest_correct,
        "mean_wrong_length": classes.mean_wrong,
    }
    columns = ", ".join(f'"{name}"' for name in expected)
    rows = lab.rows(f'SELECT "group", {columns} FROM groups WHERE split = ? ORDER BY "group"', [split])
    for i, row in enumerate(rows):
        for name, values in expected.items():
            found, value = row[name], _plain(values[i])
            if not _same(found, value):
                where = f"step {lab.step}, {split}, group {row['group']}"
                report.say(f"{where}: {name} is {_word(found)} in the store, {_word(value)} recomputed")


def _plain(value: Any) -> str | bool | float | None:
    """A recomputed value as the store gives it back: NaN is null."""
    if value is None or isinstance(value, str | bool | np.bool_):
        return bool(value) if isinstance(value, np.bool_) else value
    return None if np.isnan(value) else float(value)


def _same(found: Any, expected: str | bool | float | None) -> bool:
    if isinstance(found, float) and isinstance(expected, float):
        return abs(found - expected) <= TOLERANCE * max(1.0, abs(expected))
    return type(found) is type(expected) and found == expected


def _word(value: Any) -> str:
    return "missing" if value is None else f"{value:.9g}" if isinstance(value, float) else str(value)


@dataclass(frozen=True)
class _Places:
    """Names for the tokens of a split, in the store's order."""

    where: str
    keys: list[tuple[int, int]]
    mask: np.ndarray

    def name(self, token: int) -> str:
        row, position = (axis[token] for axis in np.nonzero(self.mask))
        group, rollout = self.keys[row]
        return f"{self.where}, group {group}, rollout {rollout}, position {position}"


def _stored(lab: StepLab, split: str, length: np.ndarray) -> dict[str, np.ndarray]:
    """What the store says of each token, (tokens,); values of its rollout are repeated."""
    tokens = lab.arrays(
        f"""SELECT base_advantage, advantage, kept::INT::DOUBLE AS kept, loss_weight, penalty, tis, sampler_logprob,
        trainer_logprob, proxy_logprob{_more(lab.factors("tokens"))}
        FROM tokens WHERE split = ? ORDER BY "group", rollout, position""",
        [split],
    )
    rollouts = lab.arrays(
        f"""SELECT polarity::DOUBLE AS polarity, kept::INT::DOUBLE AS kept_rollout, minibatch::DOUBLE AS minibatch
        {_more(lab.factors("rollouts"))} FROM rollouts WHERE split = ? ORDER BY "group", rollout""",
        [split],
    )
    return tokens | {name: np.repeat(values, length) for name, values in rollouts.items()}


def _more(columns: list[str]) -> str:
    return "".join(f", {column}" for column in columns)


def _compare(
    column: str,
    stored: dict[str, np.ndarray],
    expected: np.ndarray,
    place: _Places,
    report: CheckReport,
    how: str = "recomputed",
    least: float = 1.0,
) -> tuple[float, int]:
    """The largest difference over max(least, |expected|), and its token. Reports one that is too large, or a null."""
    values, expected = stored[column].astype(np.float64), np.asarray(expected, np.float64)
    apart = np.abs(values - expected)
    with np.errstate(divide="ignore"):
        difference = np.divide(apart, np.maximum(least, np.abs(expected)), out=apart.copy(), where=apart > 0)
    worst = int(np.argmax(np.nan_to_num(difference, nan=np.inf)))
    if not difference[worst] <= TOLERANCE:
        report.say(f"{place.name(worst)}: {column} is {values[worst]:.9g} in the store, {expected[worst]:.9g} {how}")
    return float(np.nan_to_num(difference[worst], nan=np.inf)), worst
