"""Believable run folders without a model: numpy draws the rollouts, the real rules and the real store do the rest.

    path = make_run(tmp_path, "grpo-seed0", method="grpo", steps=12)

Accuracy rises and entropy falls over the steps; wrong answers are longer; prompts of a fixed pool come back; probes and
evaluations come every few steps. Token texts look like the embedded task's.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from core.advantage import PROXY_DROPPED, Batch, Trace, compute, gap_metrics, loss_weights, tis_weights
from core.config import RunConfig, dump, parse_run
from core.runs.status import Status, write_status
from core.store import SplitRecord, StepRecord, seal, write_schema, write_step
from core.tasks.base import Prompt

EOS = "⟨eos⟩"
VOCABULARY = [*map(str, range(30)), "+", "-", "=", "?", " so ", " then ", " wait ", " check ", "\\boxed{", "}", EOS]


def make_run(
    root: str | Path,
    name: str,
    method: str | dict[str, Any] = "grpo",
    steps: int = 12,
    prompts: int = 6,
    group_size: int = 8,
    seed: int = 0,
    sealed: bool = False,
    state: str = "finished",
    error: str = "",
    gap: float = 0.0,
    **config: Any,
) -> Path:
    """Make a run folder with `steps` recorded steps; other run settings by name, such as `experiment="x"`.

    With a `gap` (nats, at the first step; it doubles over the run) the trainer's log-probs are not the sampler's, as
    with another engine. A finished run has its final evaluation too; a queued or loading one has no step. Returns the
    folder.
    """
    path = Path(root) / name
    path.mkdir(parents=True)
    recorded = 0 if state in ("queued", "loading") else steps
    settings = {
        "name": name,
        "task": {"pool_size": prompts * 3},
        "method": method,
        "seed": seed,
        "steps": steps if state == "finished" else 2 * steps,
        "prompts_per_step": prompts,
        "group_size": group_size,
        "evaluate": {"every": 4, "prompts": 16, "rollouts": 8, "k": 8, "probes": 2},
    }
    run = parse_run(settings | config)
    (path / "config.yaml").write_text(dump(run), encoding="utf-8")
    write_schema(path, run)
    last: dict[str, Any] = {}
    for record in records(run, recorded, final=state == "finished", gap=gap):
        write_step(path, record)
        last |= {k: v for k, v in ((record.metrics or {}) | (record.eval or {})).items() if isinstance(v, float)}
    words = "".join(f"step {i}\n" for i in range(recorded)) + (f"{error}\n" if error else "")
    (path / "log.txt").write_text(words, encoding="utf-8")
    now = time.time()
    write_status(
        path,
        Status(
            state=state,
            step=recorded,
            total=run.steps,
            error=error,
            created=now - 60,
            started=now - 50,
            heartbeat=now,
            finished=now if state in ("finished", "failed", "stopped") else None,
            step_s=0.3,
            eta_s=(run.steps - recorded) * 0.3 if state == "running" else None,
            metrics=last,
            label=run.build_method().label,
            host="elsewhere" if state in ("running", "loading", "stopping") else "",
        ),
    )
    if sealed:
        seal(path)
    return path


def records(run: RunConfig, steps: int, final: bool = True, gap: float = 0.0) -> list[StepRecord]:
    """The records of a run's first `steps` steps, and with `final` that of the last policy's evaluation."""
    world = World(run, gap)
    made = [world.step(step) for step in range(steps)]
    if final and steps and run.evaluate.every:
        splits = [*world.probe(steps), world.exam(steps)]
        made.append(StepRecord(steps, splits, metrics=None, eval=world.evaluation(steps)))
    return made


@dataclass
class Drawn:
    """Responses of some prompts, those of one prompt next to each other."""

    tokens: list[list[str]]
    correct: np.ndarray  # (N,)
    logprob: np.ndarray  # (N, T)
    entropy: np.ndarray  # (N, T)
    truncated: np.ndarray  # (N,)

    @property
    def length(self) -> np.ndarray:
        return np.array([len(tokens) for tokens in self.tokens], np.int32)


class World:
    """A pretended policy that gets better."""

    ids: ClassVar[dict[str, int]] = {text: i for i, text in enumerate(VOCABULARY)}
    """Numbers of the token texts that it writes."""

    def __init__(self, run: RunConfig, gap: float = 0.0) -> None:
        self.run, self.method, self.gap = run, run.build_method(), gap
        random = np.random.default_rng([run.seed, 7])
        self.pool = [_prompt(random) for _ in range(run.task.pool_size)]
        held_out = np.random.default_rng(7)  # the same exam for every seed
        self.held_out = [_prompt(held_out) for _ in range(max(run.evaluate.prompts, 1))]
        self.ease = {prompt.id: random.normal(0, 1.1) for prompt in self.pool + self.held_out}
        self.cursor, self.epoch, self.order = 0, 0, np.array([], int)

    def progress(self, step: int) -> float:
        return step / max(self.run.steps, 1)

    def step(self, step: int) -> StepRecord:
        run = self.run
        random = np.random.default_rng([run.seed, 1, step])
        chosen, drawn, attempts = [], [], []
        attempt, missing = 0, run.prompts_per_step
        while missing and attempt <= (run.dynamic_sampling.max_refills if self.method.dynamic_sampling else 0):
            fresh = self.next_prompts(missing)
            got = [self.draw(prompt, step, random) for prompt in fresh]
            mixed = [g.correct.min() != g.correct.max() or not self.method.dynamic_sampling for g in got]
            chosen, drawn = chosen + fresh, drawn + got
            attempts += [attempt] * missing
            missing, attempt = missing - sum(mixed), attempt + 1
        split = self.split("train", step, chosen, drawn, np.array(attempts), random)
        evaluate = bool(run.evaluate.every) and step % run.evaluate.every == 0
        record = StepRecord(step, [split], metrics=self.metrics(split, step, missing))
        if evaluate:
            record.splits += [*self.probe(step), self.exam(step)]
            record.eval = self.evaluation(step)
        return record

    def probe(self, step: int) -> list[SplitRecord]:
        random = np.random.default_rng([self.run.seed, 2, step])
        prompts = self.held_out[: self.run.evaluate.probes]
        if not prompts:
            return []
        drawn = [self.draw(prompt, step, random) for prompt in prompts]
        n = len(prompts)
        return [self.split("probe", step, prompts, drawn, np.zeros(n, int), random)]

    def answers(self, step: int) -> list[Drawn]:
        random = np.random.default_rng([self.run.seed, 3, step])
        return [self.draw(prompt, step, random, self.run.evaluate.rollouts) for prompt in self.held_out]

    def exam(self, step: int) -> SplitRecord:
        """The held-out rollouts, without tokens and without advantages."""
        drawn, size = self.answers(step), self.run.evaluate.rollouts
        tokens, correct = [t for d in drawn for t in d.tokens], np.concatenate([d.correct for d in drawn])
        count = len(drawn)
        return SplitRecord(
            split="eval",
            prompt_id=[p.id for p in self.held_out], prompt=[p.text for p in self.held_out],
            answer=[p.answer for p in self.held_out], attempt=np.zeros(count, int), group_kept=np.ones(count, bool),
            group=np.repeat(np.arange(count), size), rollout=np.tile(np.arange(size), count),
            text=["".join(t[:-1] if t[-1] == EOS else t) for t in tokens],
            reward=correct.astype(np.float32), correctness=correct.astype(np.float32), correct=correct,
            parts=[{"correct": float(c)} for c in correct],
            traits=[_traits(t, bool(c)) for t, c in zip(tokens, correct, strict=True)],
            length=np.concatenate([d.length for d in drawn]), truncated=np.concatenate([d.truncated for d in drawn]),
            max_length=self.run.sampling.max_new_tokens,
        )  # fmt: skip

    def evaluation(self, step: int) -> dict[str, Any]:
        settings, drawn = self.run.evaluate, self.answers(step)
        correct = np.array([d.correct for d in drawn])
        length = np.concatenate([d.length for d in drawn])
        flat = correct.ravel()
        return {
            "prompts": len(drawn),
            "rollouts": settings.rollouts,
            "pass_at_1": float(correct.mean()),
            "k": settings.k,
            "pass_at_k": float(correct.any(axis=1).mean()),
            "greedy": min(1.0, float(correct.mean()) + 0.06),
            "reward": float(correct.mean()),
            "length": float(length.mean()),
            "length_correct": _mean(length[flat]),
            "length_wrong": _mean(length[~flat]),
            "truncated_share": float(np.concatenate([d.truncated for d in drawn]).mean()),
            "entropy": _mean(np.concatenate([d.entropy[d.entropy > 0] for d in drawn])),
            "traits": {"self_check": float(np.mean([" check " in t for d in drawn for t in d.tokens]))},
        }

    def next_prompts(self, count: int) -> list[Prompt]:
        prompts = []
        for _ in range(count):
            if self.cursor == len(self.order):
                self.order = np.random.default_rng([self.run.seed, 4, self.epoch]).permutation(len(self.pool))
                self.cursor, self.epoch = 0, self.epoch + 1
            prompts.append(self.pool[self.order[self.cursor]])
            self.cursor += 1
        return prompts

    def draw(self, prompt: Prompt, step: int, random: np.random.Generator, count: int | None = None) -> Drawn:
        count, done = count or self.run.group_size, self.progress(step)
        chance = 1 / (1 + np.exp(-(self.ease[prompt.id] - 0.4 + 2.2 * done)))
        correct = random.random(count) < chance
        limit = self.run.sampling.max_new_tokens
        written = [_response(prompt, bool(right), done, random) for right in correct]
        truncated = np.array([len(tokens) > limit for tokens in written])
        written = [tokens[:limit] for tokens in written]
        correct &= ~truncated
        width = max(map(len, written))
        mask = np.arange(width) < np.array([len(tokens) for tokens in written])[:, None]
        unsure = random.random((count, width)) < 0.45 - 0.2 * done
        p = np.where(unsure, random.beta(2, 2.5, (count, width)), random.beta(40, 1.0, (count, width)))
        p = np.clip(p, 0.002, 0.99999)
        entropy = -p * np.log(p) - (1 - p) * np.log((1 - p) / 3) * random.uniform(0.4, 1, (count, width))
        return Drawn(
            written, correct, np.where(mask, np.log(p), 0).astype(np.float32),
            np.where(mask, entropy, 0).astype(np.float32), truncated,
        )  # fmt: skip

    def split(
        self, name: str, step: int, prompts: list[Prompt], drawn: list[Drawn],
        attempt: np.ndarray, random: np.random.Generator,
    ) -> SplitRecord:  # fmt: skip
        run, size = self.run, self.run.group_size
        width = max(d.logprob.shape[1] for d in drawn)
        logprob = np.concatenate([np.pad(d.logprob, ((0, 0), (0, width - d.logprob.shape[1]))) for d in drawn])
        entropy = np.concatenate([np.pad(d.entropy, ((0, 0), (0, width - d.entropy.shape[1]))) for d in drawn])
        tokens = [t for d in drawn for t in d.tokens]
        length = np.array([len(t) for t in tokens], np.int32)
        correct = np.concatenate([d.correct for d in drawn])
        truncated = np.concatenate([d.truncated for d in drawn])
        group = np.repeat(np.arange(len(prompts)), size)
        mask = np.arange(width) < length[:, None]
        apart = self.gap * (1 + self.progress(step)) * random.normal(0, 1, logprob.shape)
        trainer = np.where(mask, np.minimum(logprob + apart, -1e-6), 0)
        trainer = trainer.astype(np.float32)
        rollout = np.tile(np.arange(size), len(prompts))
        proxy = None if run.proxy_min_p is None else np.where(mask, _proxy(trainer, run.proxy_min_p), 0)
        batch = Batch(
            group=group, reward=correct.astype(np.float32), correct=correct, length=length, truncated=truncated,
            max_length=run.sampling.max_new_tokens, step=step, total_steps=run.schedule_steps or run.steps,
            sampler_logprob=logprob, trainer_logprob=trainer, ref_logprob=trainer, entropy=entropy,
            proxy_logprob=proxy, proxy_min_p=run.proxy_min_p, rollout=rollout, seed=run.seed,
            minibatches=run.updates.minibatches if name == "train" else 1,
        )  # fmt: skip
        trace = compute(self.method, batch, polarity_by=run.polarity_by)
        push = 0.25 * trace.advantage * (1 - np.exp(trainer)) + random.normal(0, 0.01, trainer.shape)
        after = np.where(mask, np.minimum(trainer + push, -1e-6), 0).astype(np.float32)
        ids = np.zeros((len(tokens), width), np.int32)
        for i, texts in enumerate(tokens):
            ids[i, : len(texts)] = [self.ids[text] for text in texts]
        record = SplitRecord(
            split=name,
            prompt_id=[p.id for p in prompts], prompt=[p.text for p in prompts], answer=[p.answer for p in prompts],
            attempt=attempt, group_kept=np.bincount(group, trace.kept.any(axis=1)) > 0,
            group=group, rollout=rollout, proxy_logprob=proxy,
            text=["".join(t[:-1] if t[-1] == EOS else t) for t in tokens],
            reward=correct.astype(np.float32), correctness=correct.astype(np.float32), correct=correct,
            parts=[{"correct": float(c)} for c in correct],
            traits=[_traits(t, bool(c)) for t, c in zip(tokens, correct, strict=True)],
            length=length, truncated=truncated, max_length=run.sampling.max_new_tokens,
            token_ids=ids, token_text=tokens, sampler_logprob=logprob, trainer_logprob=trainer, entropy=entropy,
            after_logprob=after, entropy_after=np.where(mask, entropy * 0.99, 0).astype(np.float32), trace=trace,
        )  # fmt: skip
        if name == "train":
            record.minibatch = trace.minibatch
            if self.gap and run.tis.cap is not None:
                record.tis = tis_weights(logprob, trainer, run.tis.cap).astype(np.float32)
            record.ratio = np.where(mask, np.exp(0.05 * push), 0).astype(np.float32)
            record.clipped = mask & (np.abs(record.ratio - 1) > 0.2)
            record.loss_weight = loss_weights(
                trace.kept, length, run.sampling.max_new_tokens, self.method.loss.aggregation, record.minibatch
            ).astype(np.float32)
        return record

    def metrics(self, split: SplitRecord, step: int, shortfall: int) -> dict[str, Any]:
        trace, correct, length = split.trace, split.correct, split.length
        mask = np.arange(split.entropy.shape[1]) < length[:, None]
        base = trace.base if trace.base.ndim == 2 else np.broadcast_to(trace.base[:, None], trace.advantage.shape)
        rate = np.bincount(split.group, weights=correct) / np.bincount(split.group)
        labels = np.array(trace.classes.label)
        weight = np.where(trace.kept, split.loss_weight, 0)
        mass, mass_base = weight * np.abs(trace.advantage), weight * np.abs(base)
        checks = np.array([traits["self_check"] for traits in split.traits])
        return {
            "time": time.time(), "reward": float(split.reward.mean()), "reward_std": float(split.reward.std()),
            "pass_rate": float(correct.mean()), "rollouts": len(correct), "tokens": int(length.sum()),
            "groups_sampled": len(rate), "groups_kept": int(split.group_kept.sum()),
            "refills": int(split.attempt.max()), "shortfall": shortfall,
            "no_signal_share": float(np.mean((rate == 0) | (rate == 1))),
            "all_correct_share": float(np.mean(rate == 1)), "all_wrong_share": float(np.mean(rate == 0)),
            "favorable_share": float(np.mean(labels == "favorable")),
            "unfavorable_share": float(np.mean(labels == "unfavorable")),
            "uniform_share": float(np.mean(labels == "uniform")), "mean_weight": float(trace.classes.weight.mean()),
            "length": float(length.mean()), "length_correct": _mean(length[correct]),
            "length_wrong": _mean(length[~correct]), "truncated_share": float(split.truncated.mean()),
            "entropy": _mean(split.entropy[mask]), "entropy_correct": _mean(split.entropy[mask & correct[:, None]]),
            "entropy_wrong": _mean(split.entropy[mask & ~correct[:, None]]),
            "entropy_after": _mean(split.entropy_after[mask]),
            "mass_positive_base": float(mass_base[correct].sum()),
            "mass_negative_base": float(mass_base[~correct].sum()),
            "mass_positive": float(mass[correct].sum()), "mass_negative": float(mass[~correct].sum()),
            "loss": -float((weight * trace.advantage).sum()), "policy_loss": -float((weight * trace.advantage).sum()),
            **_penalty(trace, weight),
            "clip_low_share": 0.0, "clip_high_share": float(np.mean(split.clipped[mask])),
            "ratio_mean": _mean(split.ratio[mask]), "ratio_max": float(split.ratio[mask].max()),
            "grad_norm": 0.3 + 0.2 * (1 - self.progress(step)), "update_norm": 0.05, "lr": self.run.optimizer.lr,
            "updates": self.run.updates.minibatches, "skipped": 0,
            "entropy_source": "trainer" if self.gap else "sampler", **self.apart(split, mask),
            "tokens_per_second": float(length.sum()) / 0.3, "time_sample": 0.12, "time_verify": 0.003,
            "time_advantage": 0.004, "time_update": 0.09, "time_after": 0.04, "time_write": 0.02, "time_step": 0.3,
            "traits": {"self_check": float(checks.mean())}, "traits_correct": {"self_check": _mean(checks[correct])},
        }  # fmt: skip

    def apart(self, split: SplitRecord, mask: np.ndarray) -> dict[str, float | None]:
        if not self.gap:
            return {}
        tis = self.run.tis
        return gap_metrics(split.sampler_logprob[mask], split.trainer_logprob[mask], tis.gap, tis.cap)


def _prompt(random: np.random.Generator) -> Prompt:
    numbers = [int(random.integers(0, 20))]
    text = str(numbers[0])
    for _ in range(int(random.integers(2, 5))):
        total = sum(numbers)
        plus = total < 10
        number = int(random.integers(0, 10 if plus else total + 1))
        numbers.append(number if plus else -number)
        text += f"{'+' if plus else '-'}{number}"
    return Prompt(text + "=?", str(sum(numbers)))


def _response(prompt: Prompt, right: bool, progress: float, random: np.random.Generator) -> list[str]:
    """A chain of steps, as the embedded model writes them; a wrong one ends off the answer and tends to ramble."""
    terms = _tokens(prompt.text.removesuffix("=?"))
    answer = int(prompt.answer) if right else (int(prompt.answer) + int(random.integers(1, 4))) % 30
    tokens: list[str] = []
    if random.random() > 0.3 * (1 - progress):
        while len(terms) > 3:
            a, sign, b = terms[:3]
            value = (int(a) + int(b) if sign == "+" else int(a) - int(b)) % 30
            terms = [str(value), *terms[3:]]
            tokens += [*terms, " so " if random.random() < 0.5 else " then "]
            if not right and random.random() < 0.25:
                tokens += [" wait ", str(value), " then "]
        tokens += [str(answer), " then "]
        if random.random() < (0.3 if right else 0.15):
            tokens += [" check ", *tokens]
    return [*tokens, "\\boxed{", str(answer), "}", EOS]


def _tokens(expression: str) -> list[str]:
    spaced = expression.replace("+", " + ").replace("-", " - ")
    return spaced.split()


def _traits(tokens: list[str], correct: bool) -> dict[str, float]:
    steps = tokens.count(" so ") + tokens.count(" then ")
    return {
        "steps": float(steps), "steps_right": float(steps if correct else max(steps - 1, 0)),
        "self_check": float(" check " in tokens), "wait": float(" wait " in tokens), "direct": float(steps == 0),
        "lucky": 0.0,
    }  # fmt: skip


def _proxy(logprob: np.ndarray, min_p: float) -> np.ndarray:
    """What a min-p filter could have made of log-probs: the unlikely are dropped, the rest gets what they had."""
    p = np.exp(logprob)
    renormalised = np.minimum(logprob - np.log1p(-0.3 * min_p * (1 - p)), 0)
    return np.where(p < 0.8 * min_p, PROXY_DROPPED, renormalised).astype(np.float32)


def _penalty(trace: Trace, weight: np.ndarray) -> dict[str, float]:
    """As if every penalised token were a hundredth of a nat from where it should be."""
    if trace.penalty is None:
        return {}
    coefficient = trace.penalty.coefficient
    share = float(np.mean(coefficient[trace.kept] > 0)) if trace.kept.any() else None
    return {"penalty": float((weight * coefficient).sum()) * 0.01, "penalised_share": share}


def _mean(values: np.ndarray) -> float | None:
    return float(values.mean()) if len(values) else None
