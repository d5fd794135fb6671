"""Two processes train what one trains: real ones, started by `accelerate launch` and joined by gloo."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from core.advantage import PROXY_DROPPED
from core.config import parse_run
from core.engines.shared import SharedEngine
from core.engines.transformers import TransformersEngine
from core.ranks import ALONE, Ranks
from core.store import check, open_runs
from core.tasks import get_task
from core.tasks.base import Verdict
from core.train import environment
from core.train.clock import Clock
from core.train.loop import train
from core.train.policy import Policy, load_policy
from core.train.ranks import check_alike, score, score_with_proxy
from core.train.reporter import TrainingError
from core.train.sampler import Sampler
from tests.core.train.rank_steps import gradients_of
from tests.core.train.runs import Reporter, configure
from tests.ranks import Threads

LAUNCH = [
    sys.executable, "-m", "accelerate.commands.accelerate_cli", "launch", "--multi_gpu", "--num_processes", "2",
    "--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0",
]  # fmt: skip
RUNS = {
    "sgd": {"steps": 3, "optimizer": {"name": "sgd", "lr": 0.5, "max_grad_norm": None}},
    "dapo": {
        "method": {"name": "kl_cov", "base": "dapo", "set": {"kl_cov.ratio": 0.05, "kl_cov.coefficient": 5}},
        "steps": 2,
        "updates": {"minibatches": 2, "epochs": 2},
        "dynamic_sampling": {"max_refills": 2},
        "loss": {"kl": 0.01},
        "record": {"reference": True, "proxy_min_p": 0.05},
    },
    "adamw": {
        "steps": 6,
        "prompts_per_step": 6,
        "group_size": 6,
        "optimizer": {"lr": 0.005},
        "evaluate": {"every": 6, "prompts": 32, "rollouts": 4, "k": 2, "greedy": False, "probes": 0},
        "record": {"after_update": "off"},
    },
}
SEEDS = (0, 1, 2)


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The folders of the runs that one process trained, and of those that two trained."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    folders = [configure(two / name, **settings, processes=2) for name, settings in RUNS.items()]
    command = [*LAUNCH, "-m", "tests.core.train.rank_steps", two / "meeting", *folders]
    launched = subprocess.Popen(
        list(map(str, command)), cwd=Path(__file__).parents[3], env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    for name, settings in RUNS.items():
        gradients_of(configure(one / name, **settings))
    output, _ = launched.communicate(timeout=300)
    assert launched.returncode == 0, output
    return one, two


def gradients(folder: Path, rank: int = 0) -> list[np.ndarray]:
    """What each optimizer step was given, all parameters in one vector."""
    with np.load(folder / f"gradients-{rank}.npz") as stored:
        steps = sorted({int(name.partition(".")[0]) for name in stored.files})
        return [
            np.concatenate([stored[name].ravel() for name in stored.files if name.startswith(f"{step}.")])
            for step in steps
        ]


def adapter(folder: Path) -> torch.Tensor:
    weights = load_file(folder / "adapter" / "adapter_model.safetensors")
    return torch.cat([weights[name].flatten() for name in sorted(weights)])


def query(folder: Path, sql: str) -> pd.DataFrame:
    with open_runs([folder]) as lab:
        return lab.df(sql)


@pytest.mark.parametrize("name", ["sgd", "dapo"])
def test_samples_and_advantages_of_the_first_step_are_the_same_to_the_last_bit(
    pair: tuple[Path, Path], name: str
) -> None:
    one, two = (folder / name for folder in pair)
    for sql in (
        'SELECT split, "group", rollout, position, token_id, token, base_advantage, advantage, kept, loss_weight '
        "FROM tokens WHERE step = 0 ORDER BY ALL",
        'SELECT split, "group", rollout, prompt_id, text, reward, correct, minibatch, kept, length, truncated '
        "FROM rollouts WHERE step = 0 ORDER BY ALL",
        "SELECT * FROM groups WHERE step = 0 ORDER BY ALL",
    ):
        pd.testing.assert_frame_equal(query(one, sql), query(two, sql), check_exact=True)
    assert query(one, "SELECT count(DISTINCT advantage) AS n FROM tokens WHERE step = 0")["n"][0] > 2


def test_gradients_agree_before_the_optimizer(pair: tuple[Path, Path]) -> None:
    """As long as SGD leads, and before AdamW's first step: it makes much of a small gradient's rounding."""
    for name, steps in (("sgd", 3), ("dapo", 1)):
        one, two = (gradients(folder / name)[:steps] for folder in pair)
        assert len(one) == len(two) == steps
        for mine, theirs in zip(one, two, strict=True):
            assert 0 < np.linalg.norm(mine - theirs) < 1e-5 * np.linalg.norm(mine)
    for name in RUNS:
        ranks = (gradients(pair[1] / name, rank) for rank in (0, 1))
        for first, second in zip(*ranks, strict=True):
            np.testing.assert_array_equal(first, second)


def test_adapters_agree_after_three_steps_of_sgd(pair: tuple[Path, Path]) -> None:
    one, two = (adapter(folder / "sgd") for folder in pair)
    torch.testing.assert_close(two, one, rtol=0, atol=1e-5)
    fresh = load_file(pair[1] / "sgd" / "checkpoint" / "step=2" / "adapter.safetensors")
    assert max(float(weights.abs().max()) for name, weights in fresh.items() if "lora_B" in name) > 1e-3, "it moved"


def test_everything_that_is_recorded_agrees(pair: tuple[Path, Path]) -> None:
    """Ratios, clipping, log-probs before, after and of the reference, evaluations, metrics."""
    for name in ("sgd", "dapo"):
        one, two = (folder / name for folder in pair)
        assert check(two).problems == []
        for sql in (
            "SELECT ratio, clipped, penalty, trainer_logprob, ref_logprob, proxy_logprob, entropy, after_logprob, "
            'entropy_after FROM tokens WHERE step = 0 ORDER BY split, "group", rollout, position',
            "SELECT * EXCLUDE (run) FROM evals ORDER BY step",
        ):
            pd.testing.assert_frame_equal(query(one, sql), query(two, sql), rtol=1e-3, atol=1e-4)
        summary = "split, polarity, bin, field, n, sum, histogram FROM summary WHERE step = 0 AND field <> 'agreed'"
        sums = [query(folder, f"SELECT {summary} ORDER BY ALL") for folder in (one, two)]
        pd.testing.assert_frame_equal(*sums, rtol=1e-3, atol=1e-3)  # a sum adds up the rounding of its tokens
        agreed = "SELECT sum(n) AS n, sum(sum) AS agreed FROM summary WHERE step = 0 AND field = 'agreed'"
        moved = [query(folder, agreed) for folder in (one, two)]  # rounding decides of a token that moved by UNMOVED
        assert moved[0]["n"][0] > 100
        pd.testing.assert_frame_equal(*moved, rtol=0, atol=2)
        metrics = [
            query(folder, "SELECT * FROM metrics ORDER BY step").drop(columns=["tokens_per_second", "time", *TIMES])
            for folder in (one, two)
        ]
        pd.testing.assert_frame_equal(*metrics, rtol=1e-3, atol=1e-4)
    dapo = query(pair[1] / "dapo", "SELECT max(ratio) AS ratio, count(ref_logprob) AS reference FROM tokens")
    assert dapo["ratio"][0] > 1.001 and dapo["reference"][0] > 100
    penalty = query(pair[1] / "dapo", "SELECT penalty, penalised_share AS share FROM metrics")
    assert penalty["penalty"].min() > 1e-3 and penalty["share"].min() > 0.01


TIMES = [f"time_{phase}" for phase in (
    "sample", "verify", "forward", "reference", "proxy", "advantage", "update", "after", "evaluate", "write", "step",
)]  # fmt: skip


def test_each_rank_wrote_its_own_files_and_one_checkpoint_is_there(pair: tuple[Path, Path]) -> None:
    folder = pair[1] / "sgd"
    files = {path.name for path in (folder / "steps/step=000001").iterdir()}
    assert {"tokens.parquet", "tokens-1.parquet", "rollouts-1.parquet", "groups-1.parquet"} <= files
    assert not {"metrics-1.parquet", "summary-1.parquet"} & files
    assert {path.name for path in (folder / "checkpoint").iterdir()} == {"LATEST", "step=2", "step=3"}


def test_a_run_goes_on_with_another_number_of_processes(pair: tuple[Path, Path], tmp_path: Path) -> None:
    folder = shutil.copytree(pair[1] / "sgd", tmp_path / "run")
    settings = {**RUNS["sgd"], "steps": 4, "processes": 1}
    with pytest.raises(TrainingError, match="processes was 2, now 1"):
        train(configure(folder, **settings), Reporter())
    reporter = Reporter()
    train(configure(folder, **settings, checkpoint={"exact": False}), reporter)
    assert reporter.start == (4, 3)
    assert (check(folder).problems, check(folder).steps) == ([], 5)


def test_an_outcome_of_adamw_lies_within_the_spread_over_seeds(pair: tuple[Path, Path], tmp_path: Path) -> None:
    """pass@1 after a few steps of AdamW, whose scaling makes a bit of rounding into different weights."""

    def outcome(folder: Path) -> float:
        return query(folder, "SELECT pass_at_1 FROM evals ORDER BY step DESC LIMIT 1")["pass_at_1"][0]

    others = [gradients_of_seed(tmp_path, seed) for seed in SEEDS[1:]]
    seeds = [outcome(folder) for folder in (pair[0] / "adamw", *others)]
    spread = max(seeds) - min(seeds)
    print(f"pass@1 of one process over seeds: {seeds}; of two processes, seed 0: {outcome(pair[1] / 'adamw')}")
    assert spread > 0
    assert abs(outcome(pair[1] / "adamw") - seeds[0]) <= spread
    assert not torch.equal(adapter(pair[0] / "adamw"), adapter(pair[1] / "adamw"))


def gradients_of_seed(root: Path, seed: int) -> Path:
    folder = configure(root / f"seed{seed}", **RUNS["adamw"], seed=seed)
    gradients_of(folder)
    return folder


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy(parse_run({}))


def test_verdicts_and_scores_are_shared_out_and_the_same(policy: Policy) -> None:
    config, task = parse_run({"sampling": {"max_new_tokens": 12}}), get_task("embedded")
    prompts = task.train_pool(5, 0)
    engine = TransformersEngine(policy.model, policy.tokenizer)
    judged: dict[int, int] = {}

    def work(ranks: Ranks) -> tuple[Any, ...]:
        sampler = Sampler(SharedEngine(engine, ranks), task, config, ranks)
        judge = sampler._judge

        def counted(*what: object) -> Verdict:
            judged[ranks.rank] = judged.get(ranks.rank, 0) + 1
            return judge(*what)

        sampler._judge = counted
        samples = sampler.draw("train", prompts, 4, 0, 0, Clock())
        return samples, *score(policy.scorer, samples, ranks), *score_with_proxy(policy.scorer, samples, ranks, 0.5)

    alone, *scores = work(ALONE)
    assert judged == {0: 20}
    judged.clear()
    for samples, *others in Threads(3).run(work):
        assert samples.record.reward.tolist() == alone.record.reward.tolist()
        assert samples.record.parts == alone.record.parts
        for mine, theirs in zip(scores, others, strict=True):
            np.testing.assert_allclose(theirs, mine, atol=1e-5)
        assert (others[-1] == PROXY_DROPPED).any()
    assert sum(judged.values()) == 20 and len(judged) == 3


def test_adapters_that_drifted_apart_are_an_error(policy: Policy) -> None:
    weights = policy.flat()

    def work(ranks: Ranks) -> str:
        mine = weights.clone()
        mine[-1] += ranks.rank * 1e-7
        try:
            check_alike(mine, 4, ranks)
        except TrainingError as error:
            return str(error)
        return "alike"

    assert work(ALONE) == "alike"
    assert len(set(Threads(2).run(work))) == 1
    assert "after 4 steps the adapter of rank 1 is not that of rank 0" in Threads(2).run(work)[0]
    assert Threads(2).run(lambda ranks: check_alike(weights, 4, ranks)) == [None, None]


def test_threads_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_cores", lambda: 8)
    now = torch.get_num_threads()
    try:
        for settings, then, processes, threads in (
            ({"model": "some/folder"}, None, 2, 4),
            ({"model": "some/folder"}, None, 16, 1),
            ({"model": "some/folder"}, {"threads": 3, "processes": 2}, 2, 3),
            ({"model": "some/folder"}, {"threads": 8}, 2, 4),
            ({"model": "some/folder", "threads": 5}, {"threads": 8}, 2, 5),
            ({}, None, 2, 1),
        ):
            environment.use_threads(parse_run(settings), then, processes)
            assert torch.get_num_threads() == threads, (settings, then, processes)
    finally:
        torch.set_num_threads(now)


def test_another_number_of_processes_is_no_exact_resume() -> None:
    now = environment.environment("cpu", 2)
    environment.check_same(now, now)
    with pytest.raises(TrainingError, match=r"processes was 1, now 2.*checkpoint\.exact: false"):
        environment.check_same({name: value for name, value in now.items() if name != "processes"}, now)


def test_another_engine_is_no_exact_resume() -> None:
    now = environment.environment("cpu", engine="vllm")
    environment.check_same(now, now)
    with pytest.raises(TrainingError, match=r"engine was transformers, now vllm.*checkpoint\.exact: false"):
        environment.check_same({name: value for name, value in now.items() if name != "engine"}, now)
