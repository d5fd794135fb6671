"""A whole RLVR step: sample, verify, advantages, update, record. The peer is TRL's GRPOTrainer.

Three trainers take turns, each with a model of its own and the same prompts: the lab with recording off (no pass after
the update, no evaluation, no checkpoint; the store write stays), the lab as the config says with a checkpoint at every
step, and TRL.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from core.config import RunConfig, parse_run
from core.tasks import get_task
from core.tasks.base import POOL_SEED
from core.train.prompts import Cursor
from tests.bench.speed.entropy import entropy_seconds
from tests.bench.speed.ours import Ours
from tests.bench.speed.result import FIRST, Comparison

PHASES = ("sample", "verify", "forward", "reference", "advantage", "update", "after", "write")


@dataclass(frozen=True)
class StepBench:
    """`warm_up` + `rounds` steps of `config`; TRL's rollouts of a step go through its model `micro_batch` at a time."""

    config: RunConfig
    rounds: int
    warm_up: int
    micro_batch: int

    def run(self) -> Comparison:
        """Raises PeerError where TRL did something else than one whole step."""
        from tests.bench.speed.trl_peer import TrlStepper

        config = changed(self.config, steps=self.rounds + self.warm_up, checkpoint={"every": 1})
        off: list[dict[str, Any]] = []
        full: list[dict[str, Any]] = []
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
            folder = Path(place)
            quiet, whole = Ours(without_recording(config), folder / "off"), Ours(config, folder / "full")

            def ours() -> None:
                off.append(quiet.step())
                full.append(whole.step())

            trl = TrlStepper(config, prompts_of(config), self.micro_batch, ours, folder / "trl")
            trl.run()
            return self._result(off[self.warm_up :], trl.steps[self.warm_up :], full, entropy_seconds(quiet))

    def _result(
        self, off: list[dict[str, Any]], trl: list[dict[str, Any]], full: list[dict[str, Any]], entropy_s: float
    ) -> Comparison:
        config = self.config
        evaluations = [step["time_evaluate"] for step in full if step["time_evaluate"]]
        evaluating = statistics.median(evaluations) / config.evaluate.every if evaluations else 0.0
        ours_s, trl_s = median(off, "seconds"), median(trl, "seconds")
        recorded = full[self.warm_up :]
        full_s = statistics.median(step["seconds"] - step["time_evaluate"] for step in recorded) + evaluating
        write_s = median(off, "time_write")
        return Comparison(
            what=f"an RLVR step, {config.prompts_per_step} prompts x {config.group_size} rollouts, "
            f"at most {config.sampling.max_new_tokens} new tokens",
            unit="s a step",
            peer="trl",
            ours=ours_s,
            theirs=trl_s,
            ratio=trl_s / ours_s,
            rounds=len(off),
            threads=torch.get_num_threads(),
            more={
                "full_s": full_s,
                "full_ratio": trl_s / full_s,
                "first_ratio": median(trl[:FIRST], "seconds") / median(off[:FIRST], "seconds"),
                "evaluation_s": evaluating,
                "full_after_s": median(recorded, "time_after"),
                "full_write_s": median(recorded, "time_write"),
                **{f"{phase}_s": median(off, f"time_{phase}") for phase in PHASES},
                "entropy_s": entropy_s,
                "entropy_and_write_share": (entropy_s + write_s) / ours_s,
                "ours_cpu_s": median(off, "cpu_seconds"),
                "trl_cpu_s": median(trl, "cpu_seconds"),
                "ours_tokens": median(off, "tokens"),
                "trl_tokens": median(trl, "tokens"),
                "no_signal_share": median(off, "no_signal_share"),
            },
        )


def changed(config: RunConfig, **changes: Any) -> RunConfig:
    """The config with other values, checked again."""
    return parse_run(config.model_dump() | changes)


def without_recording(config: RunConfig) -> RunConfig:
    """No pass after the update, no evaluation, no checkpoint before the last step."""
    return changed(
        config,
        steps=config.steps + 1,  # the last step always makes a checkpoint: it is never reached
        record={"after_update": "off"},
        evaluate={"every": 0},
        checkpoint={"every": config.steps + 1},
    )


def prompts_of(config: RunConfig) -> list[Any]:
    """The prompts of every step of a run, in the order in which it takes them."""
    cursor = Cursor(get_task(config.task).train_pool(config.task.pool_size, POOL_SEED), config.seed)
    return [prompt for _ in range(config.steps) for prompt in cursor.take(config.prompts_per_step)]


def median(steps: Iterable[dict[str, Any]], name: str) -> float:
    return float(statistics.median(step[name] for step in steps))
