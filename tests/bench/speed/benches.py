"""The benches by name, each with what it needs."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from core.config import RunConfig, load, parse_run
from core.engines.choose import INSTALL
from core.models.catalog import describe
from core.runs.folders import PRESETS
from tests.bench.speed.result import Comparison

PEERS = "pip install -r tests/requirements.txt"


class BenchError(ValueError):
    """A bench that cannot run here: one sentence that says what to install, or which names there are."""


@dataclass(frozen=True)
class Bench:
    """One comparison. `peer` is the package that it needs; `rounds` turns are measured unless others are asked for."""

    name: str
    peer: str
    install: str
    config: Callable[[], RunConfig]
    rounds: int
    run: Callable[[RunConfig, int], Comparison]

    def missing(self) -> str | None:
        """Why it cannot run here, in one sentence; None if it can."""
        if importlib.util.find_spec(self.peer) is None:
            return f"the bench {self.name} compares with {self.peer}, which is not installed: {self.install}"
        problem = describe(self.config().model).problem
        return problem and f"the bench {self.name} cannot run: {problem}"


def _embedded() -> RunConfig:
    return parse_run({"method": "grpo", "device": "cpu", "threads": 1})


def _smollm2() -> RunConfig:
    """The preset, on every core."""
    return parse_run(
        load(PRESETS / "smollm2_sums.yaml").run.model_dump() | {"device": "cpu", "threads": os.cpu_count()}
    )


def _step(micro_batch: int, warm_up: int) -> Callable[[RunConfig, int], Comparison]:
    def run(config: RunConfig, rounds: int) -> Comparison:
        from tests.bench.speed.step import StepBench

        return StepBench(config, rounds, warm_up, micro_batch).run()

    return run


def _vllm_config() -> RunConfig:
    return parse_run({"method": "grpo", "device": "cpu", "engine": "vllm", "threads": os.cpu_count()})


def _vllm(config: RunConfig, rounds: int) -> Comparison:
    from tests.bench.speed.vllm import VllmBench

    return VllmBench(config, rounds, warm_up=3).run()


def _rollouts(config: RunConfig, rounds: int) -> Comparison:
    from tests.bench.speed.rollouts import RolloutBench

    return RolloutBench(config, rounds, warm_up=2).run()


def _what_if(config: RunConfig, rounds: int) -> Comparison:
    from tests.bench.speed.whatif import WhatIfBench

    return WhatIfBench(config, rounds, warm_up=3).run()


BENCHES: Mapping[str, Bench] = {
    bench.name: bench
    for bench in (
        Bench("embedded", "trl", PEERS, _embedded, 97, _step(micro_batch=16, warm_up=3)),  # a run of 100 steps
        Bench("smollm2-135m", "trl", PEERS, _smollm2, 3, _step(micro_batch=16, warm_up=1)),
        Bench("rollouts", "transformers", PEERS, _embedded, 25, _rollouts),
        Bench("what-if", "torch", PEERS, _embedded, 31, _what_if),
        Bench("vllm", "vllm", INSTALL["cpu"], _vllm_config, 15, _vllm),
    )
}


def find(name: str) -> Bench:
    """The bench of this name. Raises BenchError."""
    if name not in BENCHES:
        raise BenchError(f"no bench is called {name!r}: there is {', '.join(BENCHES)}")
    return BENCHES[name]
