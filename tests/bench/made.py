"""The runs that the benches ask: believable in what they hold, as large as asked for, quick to make.

`make` writes a run step by step through the real rules and the real `write_step`: long responses over a vocabulary of
thousands of words, prompts of a pool that come back, right and wrong ones of several lengths, some truncated, some
right by luck, evaluations and probes every few steps. `repeat` makes a sealed run many times as long by copying its
steps inside DuckDB, since writing 100 million tokens the other way would take half an hour.
"""

from __future__ import annotations

import itertools
import os
import shutil
import time
from pathlib import Path
from typing import ClassVar

import duckdb
import numpy as np

from core.config import RunConfig, dump, parse_run, read_run
from core.runs.status import Status, write_status
from core.store import SplitRecord, StepRecord, seal, sweep, write_schema, write_step
from core.store.files import SEALED, STEPS, step_folder
from core.store.schema import TABLES
from core.store.sources import SEALED_STEPS
from core.tasks.base import Prompt
from tests.synthetic import EOS, VOCABULARY, Drawn, World

GROUPS, SIZE, LENGTH = 16, 8, 200
"""Prompts a step, rollouts a prompt, mean tokens a rollout."""
EXAM_EVERY = 20
SYLLABLES = ("ba", "co", "di", "fe", "gu", "ha", "lo", "mi", "ne", "po", "ra", "si", "tu", "ve")
WORDS = [*VOCABULARY, *(" " + "".join(three) for three in itertools.product(SYLLABLES, repeat=3))]
"""What responses are written in: the embedded task's tokens and 2,744 words of three syllables."""
LUCKY = 0.06
"""Share of right answers whose steps are wrong."""
GAP = 0.005
"""Nats between the sampler's and the trainer's log-probs at the first step, as between two engines."""


def per_step() -> int:
    """About how many training tokens a step has."""
    return GROUPS * SIZE * LENGTH


def steps_of(tokens: int) -> int:
    return max(tokens // per_step(), 2)


def config(steps: int, **changes: object) -> RunConfig:
    exam = {"every": EXAM_EVERY, "prompts": 16, "rollouts": 8, "k": 8, "probes": 4}
    size = {"steps": steps, "prompts_per_step": GROUPS, "group_size": SIZE, "task": {"pool_size": 8 * GROUPS}}
    method = {"name": "a3po", "also": ["adora_amplify"], "set": {"alpha": 0}}  # every step has the same rho
    rules = {"method": method, "dynamic_sampling": {"enabled": False}, "evaluate": exam}
    return parse_run(size | rules | {"sampling": {"max_new_tokens": max(8 * LENGTH // 5, 6)}} | changes)


class LongWorld(World):
    """The pretended policy of the tests, with much more to say."""

    ids: ClassVar[dict[str, int]] = {word: number for number, word in enumerate(WORDS)}

    def __init__(self, run: RunConfig) -> None:
        super().__init__(run, GAP)
        usual = 1 / (10 + np.arange(len(WORDS)))
        usual[[self.ids[word] for word in ("\\boxed{", "}", EOS)]] = 0  # these end a response
        self.words, self.upto = np.array(WORDS, object), np.cumsum(usual / usual.sum())

    def draw(self, prompt: Prompt, step: int, random: np.random.Generator, count: int | None = None) -> Drawn:
        count, done, limit = count or self.run.group_size, self.progress(step), self.run.sampling.max_new_tokens
        correct = random.random(count) < 1 / (1 + np.exp(0.4 - self.ease[prompt.id] - 1.2 * done))
        meant = LENGTH * np.exp(random.normal(0, 0.25, count)) * np.where(correct, 0.9, 1.06)
        truncated = meant > limit
        correct &= ~truncated
        length = np.clip(meant, 5, limit).astype(int)
        width = int(length.max())
        mask = np.arange(width) < length[:, None]
        drawn = self.words[np.searchsorted(self.upto, random.random((count, width))).clip(max=len(WORDS) - 1)]
        tokens = []
        for row, size, cut, right in zip(drawn, length, truncated, correct, strict=True):
            said = prompt.answer if right else str((int(prompt.answer) + int(random.integers(1, 4))) % 30)
            end = [] if cut else ["\\boxed{", said, "}", EOS]
            tokens.append([*row[: size - len(end)], *end])
        sure = random.random((count, width)) > 0.45 - 0.2 * done
        p = np.clip(random.beta(np.where(sure, 40, 2), np.where(sure, 1, 2.5)), 0.002, 0.99999)
        entropy = -p * np.log(p) - (1 - p) * np.log((1 - p) / 3) * random.uniform(0.4, 1, (count, width))
        shown = [np.where(mask, values, 0).astype(np.float32) for values in (np.log(p), entropy)]
        return Drawn(tokens, correct, *shown, truncated)

    def split(
        self, name: str, step: int, prompts: list[Prompt], drawn: list[Drawn],
        attempt: np.ndarray, random: np.random.Generator,
    ) -> SplitRecord:  # fmt: skip
        record = super().split(name, step, prompts, drawn, attempt, random)
        for traits, right in zip(record.traits, record.correct, strict=True):
            if right and random.random() < LUCKY:
                traits |= {"lucky": 1.0, "steps": traits["steps"] + 1}
        return record


def make(path: Path, steps: int, **changes: object) -> list[float]:
    """Make a finished run, not sealed; gives the milliseconds that each training step took to write."""
    run = config(steps, **changes)
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(dump(run), encoding="utf-8")
    write_schema(path, run)
    world = LongWorld(run)
    written = [1e3 * write_step(path, world.step(step)) for step in range(steps)]
    write_step(path, StepRecord(steps, [*world.probe(steps), world.exam(steps)], eval=world.evaluation(steps)))
    (path / "log.txt").write_text("".join(f"step {step}\n" for step in range(steps)), encoding="utf-8")
    say(path, run, "finished")
    return written


def say(path: Path, run: RunConfig, state: str, sealed: bool = False, step: int | None = None) -> None:
    """Write the status; a running run is another machine's, so that nobody looks for its process here."""
    now, running = time.time(), state == "running"
    write_status(
        path,
        Status(
            state=state, step=step or run.steps, total=2 * run.steps if running else run.steps, created=now - 60,
            started=now - 50, heartbeat=now, finished=None if running else now, step_s=0.3, sealed=sealed,
            label=run.build_method().label, host="elsewhere" if running else "",
        ),
    )  # fmt: skip


def seal_at_once(path: Path) -> None:
    """Seal a finished run and remove its live steps."""
    seal(path)
    sweep(path, grace_s=0)


def still_running(source: Path, path: Path) -> None:
    """A run that is half through, with the steps of a finished, unsealed one; they share their files."""
    shutil.copytree(source, path, copy_function=os.link)
    run = read_run(source / "config.yaml")
    shutil.rmtree(path / STEPS / step_folder(run.steps))  # the last policy's evaluation
    say(path, run, "running")


def repeat(source: Path, path: Path, times: int) -> None:
    """A sealed run whose steps are those of another sealed one, `times` times over, the numbers going on."""
    steps = read_run(source / "config.yaml").steps
    run = config(steps * times, name=path.name)
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(dump(run), encoding="utf-8")
    shutil.copy(source / "schema.json", path / "schema.json")
    with duckdb.connect() as connection:
        connection.execute(f"ATTACH '{source / SEALED}' AS short (READ_ONLY)")
        connection.execute(f"ATTACH '{path / SEALED}' AS long (RECOVERY_MODE no_wal_writes)")
        for table in (*TABLES, SEALED_STEPS):
            connection.execute(f"CREATE TABLE long.{table} AS FROM short.{table} LIMIT 0")
            for turn in range(times):  # the last policy's evaluation, step `steps`, comes at the very end only
                end = steps if turn == times - 1 else steps - 1
                connection.execute(
                    f"INSERT INTO long.{table} SELECT * REPLACE (step + {turn * steps} AS step) "
                    f"FROM short.{table} WHERE step <= {end}"
                )
        connection.execute("CHECKPOINT long")
    say(path, run, "finished", sealed=True)
