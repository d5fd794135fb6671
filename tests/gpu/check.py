"""Train on a GPU and on the CPU, compare, and measure.

    python -m tests.gpu.check [--device cuda|cpu] [--large] [--json]

Needs torch, transformers, peft and this repository, no pytest and no database. `--large` takes models of half a billion
parameters beside the embedded one. Ends with 1 if a comparison fails. README.md here says what is printed.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from core.models.catalog import require
from core.runs.memory import CONTEXT_BYTES, LIBRARIES_BYTES, gigabytes, longest_prompt, plan
from core.train.clock import Clock
from core.train.environment import environment
from tests.gpu.models import models
from tests.gpu.trial import PHASES, Size, Trial

COMPARED = Size(prompts=4, group_size=4, new_tokens=24)
TIMED = {False: Size(4, 8, 24), True: Size(16, 16, 128)}
TIMED_STEPS = 3
SGD_STEPS = 3
SGD = {"name": "sgd", "lr": 0.02, "max_grad_norm": None}

LIMITS = {
    "float32": {"logprob": 1e-3, "entropy": 1e-3, "gap": 1e-3, "loss": 1e-4, "gradient": 1e-3, "adapter": 1e-3},
    "bfloat16": {"logprob": 0.3, "entropy": 0.3, "gap": 0.3, "loss": 0.1, "gradient": 0.1, "adapter": 0.1},
}
"""What may lie between this device and float32 on the CPU. Of log-probs, entropies and the gap between sampler and
trainer the largest of all tokens, in nats; the rest relative: to the CPU's norm, to the sizes of the loss's terms."""
MEMORY_LIMIT = 1.1
"""The peak may be so many times the plan."""


@dataclass(frozen=True)
class Comparison:
    model: str
    variant: str
    what: str
    value: float
    limit: float

    @property
    def ok(self) -> bool:
        return bool(np.isfinite(self.value)) and self.value <= self.limit


@dataclass(frozen=True)
class Timing:
    model: str
    variant: str
    rollout_tokens_per_s: float
    training_tokens_per_s: float
    step_s: float
    shares: dict[str, float]  # of the step, by phase
    peak_bytes: int | None  # of tensors; None on a CPU, where nobody counts them
    planned_bytes: int  # of tensors


@dataclass(frozen=True)
class Reference:
    """float32 on the CPU: its samples, and what it makes of them."""

    trial: Trial
    rollouts: Any
    logprob: np.ndarray
    entropy: np.ndarray
    before: torch.Tensor
    loss: float
    loss_size: float
    gradient: torch.Tensor
    after: torch.Tensor


def reference(model: str) -> Reference:
    """Sample on the CPU, then take SGD steps on those samples."""
    trial = _sgd_trial(model, "cpu", "float32")
    trial.stir()
    rollouts = trial.sample(0)
    logprob, entropy = trial.score(rollouts)
    before = trial.adapter()
    given = trial.plan(rollouts, logprob, 0)
    gradient, loss = _train(trial, given)
    size = float((given.weight * np.abs(given.advantage)).sum())
    return Reference(trial, rollouts, logprob, entropy, before, loss, size, gradient, trial.adapter())


def compare(
    name: str, model: str, device: str, precision: str, checkpointing: bool, cpu: Reference
) -> list[Comparison]:
    """The same samples, scored and trained on here."""
    trial = _sgd_trial(model, device, precision, gradient_checkpointing=checkpointing)
    trial.adopt(cpu.before)
    mask = np.arange(cpu.logprob.shape[1])[None, :] < cpu.rollouts.length[:, None]
    logprob, entropy = trial.score(cpu.rollouts)
    own = trial.sample(0)
    scored, _ = trial.score(own)
    gradient, loss = _train(trial, cpu.trial.plan(cpu.rollouts, logprob, 0))
    found = {
        "logprob": np.abs(logprob - cpu.logprob)[mask].max(),
        "entropy": np.abs(entropy - cpu.entropy)[mask].max(),
        "gap": np.abs(scored - own.logprob).max(),
        "gradient": (gradient - cpu.gradient).norm() / cpu.gradient.norm(),
        "loss": abs(loss - cpu.loss) / cpu.loss_size,
        "adapter": (trial.adapter() - cpu.after).norm() / (cpu.after - cpu.before).norm(),
    }
    limits, variant = LIMITS[precision], _variant(precision, checkpointing)
    return [Comparison(name, variant, what, float(value), limits[what]) for what, value in found.items()]


def measure(
    name: str, model: str, device: str, size: Size, precision: str, checkpointing: bool, compiled: bool = False
) -> Timing:
    """Whole steps with AdamW: the first one is for warming up."""
    trial = Trial(model, device, size, precision, gradient_checkpointing=checkpointing)
    trial.stir()
    if compiled:
        for layer in trial.policy.scorer.model.model.layers:
            layer.compile(dynamic=True)
    trial.step(0, Clock())
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()
    clock = Clock()
    tokens = sum(trial.step(1 + number, clock) for number in range(TIMED_STEPS))
    info = require(model)
    planned = plan(trial.config, info, longest_prompt(trial.config, info, trial.task), device).total
    seconds = sum(clock.seconds.values())
    return Timing(
        model=name,
        variant=_variant(precision, checkpointing) + (", compiled" if compiled else ""),
        rollout_tokens_per_s=tokens / clock.seconds["sample"],
        training_tokens_per_s=tokens / clock.seconds["update"],
        step_s=seconds / TIMED_STEPS,
        shares={phase: clock.seconds[phase] / seconds for phase in PHASES},
        peak_bytes=torch.cuda.max_memory_allocated() if device == "cuda" else None,
        planned_bytes=planned - (CONTEXT_BYTES if device == "cuda" else LIBRARIES_BYTES),
    )


def check(device: str, large: bool, log: Any = print) -> tuple[list[Comparison], list[Timing]]:
    """Everything, each line as soon as it is known."""
    comparisons: list[Comparison] = []
    timings: list[Timing] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, model in models(Path(folder), large).items():
            cpu = reference(model)
            for precision in LIMITS:
                for checkpointing in (False, True):
                    found = compare(name, model, device, precision, checkpointing, cpu)
                    comparisons += found
                    log("\n".join(map(said, found)))
                    _free()
            size = TIMED[large and name != "embedded"]
            for precision, checkpointing, compiled in _timed(device, name):
                timing = measure(name, model, device, size, precision, checkpointing, compiled)
                timings.append(timing)
                log(said_of(timing))
                if timing.peak_bytes is not None:
                    ratio = timing.peak_bytes / timing.planned_bytes
                    comparisons.append(Comparison(name, timing.variant, "peak / plan", ratio, MEMORY_LIMIT))
                    log(said(comparisons[-1]))
                _free()
    return comparisons, timings


def said(one: Comparison) -> str:
    verdict = "ok  " if one.ok else "FAIL"
    return f"{verdict} {one.model:<12} {one.variant:<24} {one.what:<12} {one.value:9.2e}, at most {one.limit:g}"


def said_of(one: Timing) -> str:
    shares = ", ".join(f"{phase} {100 * share:.0f} %" for phase, share in one.shares.items() if share >= 0.005)
    peak = f"peak {gigabytes(one.peak_bytes)}, " if one.peak_bytes is not None else ""
    return (
        f"     {one.model:<12} {one.variant:<24} rollouts {one.rollout_tokens_per_s:.0f} tokens/s, training "
        f"{one.training_tokens_per_s:.0f} tokens/s, {one.step_s:.3g} s a step ({shares}); {peak}"
        f"planned {gigabytes(one.planned_bytes)}"
    )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.check", description=__doc__.partition("\n")[0])
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--large", action="store_true", help="also models of half a billion parameters")
    parser.add_argument("--json", action="store_true", help="one JSON object in place of lines")
    chosen = parser.parse_args(arguments)
    if chosen.device == "cuda" and not torch.cuda.is_available():
        print("torch finds no GPU here; --device cpu tries the script itself", file=sys.stderr)
        return 2
    machine = environment(chosen.device)
    log = (lambda text: None) if chosen.json else (lambda text: print(text, flush=True))
    log(f"{machine['machine']}, torch {machine['torch']}, {machine['threads']} CPU threads")
    comparisons, timings = check(chosen.device, chosen.large, log)
    failed = [one for one in comparisons if not one.ok]
    if chosen.json:
        print(json.dumps({
            "machine": machine,
            "comparisons": [{**asdict(one), "ok": one.ok} for one in comparisons],
            "timings": [asdict(one) for one in timings],
        }))  # fmt: skip
    log(f"{len(comparisons) - len(failed)} of {len(comparisons)} comparisons hold")
    return 1 if failed else 0


def _sgd_trial(model: str, device: str, precision: str, **settings: Any) -> Trial:
    return Trial(model, device, COMPARED, precision, optimizer=SGD, **settings)


def _train(trial: Trial, given: Any) -> tuple[torch.Tensor, float]:
    """SGD steps on one plan: the first one's gradient, the last one's loss (the first is the same for any model)."""
    trial.update(given, 0)
    gradient = trial.gradient()
    for step in range(1, SGD_STEPS):
        loss = trial.update(given, step).loss
    return gradient, loss


def _timed(device: str, name: str) -> list[tuple[str, bool, bool]]:
    """(precision, gradient checkpointing, compiled) of what is timed; compiling pays on a GPU, if anywhere."""
    plain = [("float32", False, False), ("float32", True, False), ("bfloat16", False, False), ("bfloat16", True, False)]
    return [*plain, ("bfloat16", False, True)] if device == "cuda" and name != "embedded" else plain


def _variant(precision: str, checkpointing: bool) -> str:
    return precision + (", checkpointing" if checkpointing else "")


def _free() -> None:
    """Give the last trial's memory back before the next one is measured."""
    gc.collect()
    if torch.cuda.is_initialized():
        torch.cuda.empty_cache()


if __name__ == "__main__":
    sys.exit(main())
