"""Training a run: sample, verify, advantage, update, write the step, checkpoint; again.

    train(run_dir, reporter)

reads `run_dir/config.yaml`, goes on from `run_dir/checkpoint/LATEST` if there is one, and leaves the steps in the
store, checkpoints, and the LoRA adapter in `run_dir/adapter/`. On a CPU the same config gives the same run, token for
token, and a run that was stopped or killed and resumed ends with the same adapter, bit for bit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

from core.advantage import compute, loss_weights, tis_weights
from core.config import ConfigError, RunConfig, dump, read_run
from core.engines.base import Engine, EngineError
from core.engines.choose import engine_name, make_engine
from core.engines.shared import SharedEngine
from core.ranks import ALONE, Ranks
from core.store import StepRecord, drop_steps_from, write_schema, write_step
from core.store.factors import trained_method
from core.store.files import replace_text
from core.tasks import get_task
from core.tasks.base import POOL_SEED
from core.train import checkpoint
from core.train.allocator import keep_freed_memory
from core.train.clock import Clock
from core.train.environment import check_same, environment, use_threads, versions
from core.train.evaluate import Evaluation, Evaluator
from core.train.failure import keep_batch, not_finite
from core.train.metrics import step_metrics
from core.train.policy import load_policy
from core.train.prompts import Cursor
from core.train.ranks import check_alike, score, score_with_proxy
from core.train.reporter import Reporter, TrainingError
from core.train.sampler import Sampler
from core.train.samples import Samples
from core.train.update import NotFiniteError, Plan, Updated, Updater

ADAPTER, MADE_WITH = "adapter", "made_with.json"
"""The trained adapter's folder, and the file in it that says which versions trained it."""


def train(run_dir: Path, reporter: Reporter, ranks: Ranks = ALONE) -> str:
    """Train until the config's steps are done or the reporter asks to stop: "finished" or "stopped".

    Several ranks train one run when each calls it; rank 0's reporter decides. Raises TrainingError where training
    cannot go on; the steps written until then stay.
    """
    with closing(Trainer(Path(run_dir), reporter, ranks)) as trainer:
        reporter.started(trainer.config.steps, trainer.done)
        while trainer.done < trainer.config.steps:
            if ranks.broadcast(reporter.should_stop()):
                trainer.leave()
                return "stopped"
            trainer.step()
        trainer.finish()
    return "finished"


class Trainer:
    """A run in memory. `done` counts the steps done, and so is the number of the next one."""

    def __init__(self, run_dir: Path, reporter: Reporter, ranks: Ranks = ALONE):
        self.run_dir, self.reporter, self.ranks = run_dir, reporter, ranks
        place = checkpoint.latest(run_dir)
        stored = checkpoint.read_state(place) if place else None
        self.config = config = _config(run_dir, stored, ranks)
        self.schedule_steps = config.schedule_steps or config.steps
        self.method, self.proxy_min_p = trained_method(run_dir, config), config.proxy_min_p
        use_threads(config, stored and stored["environment"], ranks.world)
        keep_freed_memory()
        reporter.loading(f"loading the model {config.model}")
        self.policy = load_policy(config)
        device = self.policy.device.type
        self.environment = environment(device, ranks.world, engine_name(config, device))
        task = get_task(config.task, trusted=True)
        self.cursor = Cursor(task.train_pool(config.task.pool_size, POOL_SEED), config.seed)
        self.environment["prompts"] = self.cursor.digest
        if len(self.cursor.pool) < config.prompts_per_step:
            raise TrainingError(
                f"prompts_per_step is {config.prompts_per_step}, but the task {task.name!r} has only "
                f"{len(self.cursor.pool)} distinct training prompts: lower it"
            )
        self.updater = Updater(self.policy, config, self.method.loss, ranks)
        self.done = 0
        self.checkpointed: int | None = None
        self.time_write = 0.0
        self._resume(place, stored)
        self.engine = self._start_engine()
        self.sampler = Sampler(self.engine, task, config, ranks)
        self.evaluator = Evaluator(self.sampler, config)

    def step(self) -> None:
        """Sample, verify, (score,) advantage, updates, (after-update forward,) write the step, checkpoint."""
        number, clock = self.done, Clock()
        with self._failures(number):
            evaluation = self._evaluate(number, clock)
            collected = self.sampler.collect(
                self.cursor, number, self.updater.count, self.method.dynamic_sampling, clock
            )
            samples = collected.samples
            self._score(samples, clock)
            plan = self._advantages(samples, number, clock)
            updated = self._update(samples, plan, number, clock)
            self._after(samples, evaluation, clock)
        metrics = step_metrics(number, collected, updated, self.config.tis, clock)
        metrics |= {"time_evaluate": clock.seconds["evaluate"], "time_write": self.time_write}
        start = time.perf_counter()
        write_step(self.run_dir, _record(number, evaluation, samples, metrics), self.ranks)
        self.done += 1
        if self.done % self.config.checkpoint_every == 0 or self.done == self.config.steps:
            self._checkpoint()
        self.time_write = time.perf_counter() - start
        self.reporter.step_done(number, metrics | _passed(evaluation))

    def leave(self) -> None:
        """Stopped: everything that resuming needs, and the adapter as it is."""
        if self.checkpointed != self.done:
            self._checkpoint()
        self._save_adapter()

    def finish(self) -> None:
        """All steps are done: the evaluation of the last policy, in a folder of its own, and the adapter."""
        with self._failures(self.done):
            evaluation = self._evaluate(self.done, Clock())
        if evaluation:
            write_step(self.run_dir, _record(self.done, evaluation), self.ranks)
            self.reporter.step_done(self.done - 1, _passed(evaluation))
        self._save_adapter()

    def close(self) -> None:
        """Give back what the engine holds; training is over, however it ended."""
        self.engine.close()

    def _start_engine(self) -> Engine:
        if engine_name(self.config, self.policy.device.type) == "vllm":
            self.reporter.loading("starting vLLM (about half a minute)")
        try:
            engine = make_engine(self.config, self.policy, self.run_dir, self.ranks.rank)
        except (ConfigError, EngineError) as error:
            raise TrainingError(str(error)) from error
        return engine if self.ranks.world == 1 else SharedEngine(engine, self.ranks)

    def _must_score(self, samples: Samples) -> bool:
        """Whether the trainer's log-probs need their own pass: an engine without entropies is not the trainer's model,
        and in low precision the sampler's log-probs are rounded otherwise."""
        return samples.record.entropy is None or self.config.precision != "float32"

    @property
    def _wants_reference(self) -> bool:
        return self.method.loss.kl > 0 or self.config.record.reference or "ref_logprob" in self.method.needs

    def _resume(self, place: Path | None, stored: dict[str, Any] | None) -> None:
        """Go on from a checkpoint, or from the start; steps written after it are dropped, and made again."""
        if place and stored:
            if self.config.checkpoint.exact:
                check_same(stored["environment"], self.environment)
            checkpoint.restore(place, self.policy, self.updater)
            self.cursor.restore(stored["cursor"])
            self.done = self.checkpointed = stored["step"]
            if self.done > self.config.steps:
                raise TrainingError(f"steps is {self.config.steps}, but the run has done {self.done} already: raise it")
            self.reporter.log(f"resuming after {self.done} steps, from {place.parent.name}/{place.name}")
        if self.ranks.first:
            self._prepare_store()
        self.ranks.gather(None)

    def _prepare_store(self) -> None:
        write_schema(self.run_dir, self.config)
        if dropped := drop_steps_from(self.run_dir, self.done):
            steps = f"step {dropped[0]}" if len(dropped) == 1 else f"steps {min(dropped)} to {max(dropped)}"
            self.reporter.log(f"dropped {steps}, newer than the checkpoint: computed again")

    def _evaluate(self, number: int, clock: Clock) -> Evaluation | None:
        """Where it is due, of the policy before the update of this step."""
        if not self.evaluator.due(number):
            return None
        with clock("evaluate"):
            evaluation = self.evaluator.evaluate(number, self.updater.count)
            if evaluation.probes:
                self._score(evaluation.probes, Clock())
                self._trace(evaluation.probes, number)
        return evaluation

    def _score(self, samples: Samples, clock: Clock) -> None:
        """The trainer's log-probs and entropies where they may differ from the sampler's; the proxy's and the
        reference's if wanted."""
        record, scorer = samples.record, self.policy.scorer
        samples.scored = self._must_score(samples)
        if self.proxy_min_p is not None:
            with clock("forward" if samples.scored else "proxy"):
                *scores, record.proxy_logprob = score_with_proxy(scorer, samples, self.ranks, self.proxy_min_p)
        elif samples.scored:
            with clock("forward"):
                scores = score(scorer, samples, self.ranks)
        if samples.scored:
            record.trainer_logprob, record.entropy = scores
        if self._wants_reference:
            with clock("reference"), self.policy.base():
                record.ref_logprob, _ = score(scorer, samples, self.ranks)

    def _trace(self, samples: Samples, number: int) -> None:
        record = samples.record
        config = self.config
        batch = samples.batch(number, self.schedule_steps, config.seed, config.updates.minibatches, self.proxy_min_p)
        record.trace = compute(self.method, batch, self.config.polarity_by)
        record.group_kept = np.bincount(record.group, record.trace.kept.any(axis=1)) > 0

    def _advantages(self, samples: Samples, number: int, clock: Clock) -> Plan:
        """The factor trace, what the aggregation makes of each token, and from both the plan of the update."""
        record, loss = samples.record, self.method.loss
        with clock("advantage"):
            self._trace(samples, number)
            record.minibatch = record.trace.minibatch
            record.loss_weight = loss_weights(
                record.trace.kept, record.length, record.max_length, loss.aggregation, record.minibatch
            )
            if samples.scored and self.config.tis.cap is not None:
                record.tis = tis_weights(record.sampler_logprob, record.trainer_logprob, self.config.tis.cap)
        return Plan(
            sequences=samples.sequences,
            old=record.trainer_logprob,
            advantage=record.trace.advantage,
            weight=record.loss_weight,
            reference=record.ref_logprob,
            minibatch=record.minibatch,
            tis=record.tis,
            penalty=record.trace.penalty,
            proxy=record.proxy_logprob,
            group=record.group,
        )

    def _update(self, samples: Samples, plan: Plan, number: int, clock: Clock) -> Updated:
        try:
            with clock("update"):
                updated = self.updater.update(plan, number)
        except NotFiniteError as error:
            kept = keep_batch(self.run_dir, number, samples, plan) if self.ranks.first else ""
            raise TrainingError(not_finite(error, number, self.config, kept)) from error
        samples.record.ratio, samples.record.clipped = updated.ratio, updated.clipped
        return updated

    def _after(self, samples: Samples, evaluation: Evaluation | None, clock: Clock) -> None:
        """Log-probs and entropies of the same tokens after the update, as `record.after_update` wants them."""
        wanted = self.config.record.after_update
        chosen = [samples] if wanted == "all" else []
        if wanted != "off" and evaluation and evaluation.probes:
            chosen.append(evaluation.probes)
        with clock("after"):
            for each in chosen:
                each.record.after_logprob, each.record.entropy_after = score(self.policy.scorer, each, self.ranks)

    def _checkpoint(self) -> None:
        check_alike(self.policy.flat(), self.done, self.ranks)
        self.checkpointed = self.done
        if not self.ranks.first:
            return
        state = {
            "step": self.done,
            "schedule_steps": self.schedule_steps,
            "cursor": self.cursor.state(),
            "environment": self.environment,
        }
        checkpoint.save(self.run_dir, state, self.policy, self.updater, self.config.checkpoint.keep)

    def _save_adapter(self) -> None:
        if self.ranks.first:
            self.policy.save(self.run_dir / ADAPTER)
            replace_text(self.run_dir / ADAPTER / MADE_WITH, json.dumps(versions(), indent=2) + "\n")

    @contextmanager
    def _failures(self, number: int) -> Iterator[None]:
        """What people can act on, for what happens deep down."""
        try:
            yield
        except EngineError as error:
            raise TrainingError(f"step {number}: {error}") from error
        except torch.OutOfMemoryError as error:
            raise TrainingError(
                f"step {number}: the GPU is out of memory: set gradient_checkpointing: true or a lower batch_tokens in "
                "the run's config.yaml, then resume; or start anew with precision: bfloat16 or a smaller model"
            ) from error


def _config(run_dir: Path, stored: dict[str, Any] | None, ranks: Ranks) -> RunConfig:
    """The run's settings; a run that goes on to more steps keeps the N of its schedules, and its config says so."""
    config = read_run(run_dir / "config.yaml")
    if stored and config.schedule_steps is None and stored["schedule_steps"] != config.steps:
        config = config.model_copy(update={"schedule_steps": stored["schedule_steps"]})
        if ranks.first:
            replace_text(run_dir / "config.yaml", dump(config))
    return config


def _passed(evaluation: Evaluation | None) -> dict[str, Any]:
    """The held-out numbers whose names no metric of a step has."""
    return {name: evaluation.metrics[name] for name in ("pass_at_1", "pass_at_k", "greedy")} if evaluation else {}


def _record(
    number: int,
    evaluation: Evaluation | None,
    samples: Samples | None = None,
    metrics: dict[str, Any] | None = None,
) -> StepRecord:
    """Everything of a step, as the store takes it."""
    splits = [samples.record] if samples else []
    if evaluation:
        splits += [evaluation.probes.record] if evaluation.probes else []
        splits.append(evaluation.rollouts.record)
    return StepRecord(number, splits, metrics, evaluation.metrics if evaluation else None)
