"""Rollouts of an import that has no tokens: what is not known is null, and the promise holds for what is."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from core.advantage import compute, loss_weights
from core.config import RunConfig, dump, parse_run
from core.importers.metrics import metrics_row
from core.store import (
    SplitRecord,
    StepRecord,
    StoreError,
    check,
    open_runs,
    pack,
    replay,
    seal,
    write_schema,
    write_step,
)
from core.store.factors import Factors
from core.store.replay import tokenless_batch
from core.store.rows import tables

TOKENS = (
    "token_ids", "token_text", "sampler_logprob", "trainer_logprob", "entropy", "after_logprob", "entropy_after",
    "ratio", "clipped", "minibatch", "proxy_logprob",
)  # fmt: skip


@pytest.fixture
def config() -> RunConfig:
    return parse_run({"imported": True, "method": "grpo", "loss": {"aggregation": "sequence_mean"}, "steps": 9})


@pytest.fixture
def record(step_record: StepRecord, config: RunConfig) -> StepRecord:
    """The training rollouts of a step as a trainer's text log has them."""
    train = step_record.splits[0]
    for name in TOKENS:
        setattr(train, name, None)
    train.length = train.truncated = None
    judge(train, config, 4)
    return StepRecord(4, [train], metrics_row(train, 0.1))


def judge(train: SplitRecord, config: RunConfig, step: int) -> None:
    lengths = np.full(len(train.group), -1) if train.length is None else np.asarray(train.length)
    batch = tokenless_batch(
        config, step, train.group, train.rollout, train.reward, train.correct, np.zeros(len(lengths), bool), lengths
    )
    train.trace = compute(config.build_method(), batch)
    train.loss_weight = loss_weights(
        train.trace.kept, batch.length, batch.max_length, "sequence_mean", train.trace.minibatch
    )
    train.imported_advantage = train.trace.base + 0.01


@pytest.fixture
def run_dir(record: StepRecord, config: RunConfig, tmp_path: Path) -> Path:
    path = tmp_path / "run"
    path.mkdir()
    (path / "config.yaml").write_text(dump(config))
    (path / "status.json").write_text('{"state": "finished"}')
    write_schema(path, config)
    write_step(path, record)
    return path


def test_what_is_not_known_is_null(record: StepRecord) -> None:
    train = record.splits[0]
    train.text[0] = None
    train.prompt[1] = train.answer[0] = None
    made = tables(record, Factors())
    assert set(made) == {"groups", "rollouts", "metrics"}
    rollouts, groups = made["rollouts"], made["groups"].to_pylist()
    for name in ("length", "truncated", "repeated", "sequence_logprob"):
        assert rollouts[name].null_count == len(rollouts)
    assert rollouts["text"][0].as_py() is None and rollouts["text"].null_count == 1
    assert [row["prompt"] is None for row in groups] == [False, True, *[False] * (len(groups) - 2)]
    assert groups[0]["answer"] is None
    assert all(row["longest_correct"] is row["length_advantage"] is None for row in groups)
    assert rollouts["imported_advantage"].to_pylist() == train.imported_advantage.tolist()
    assert rollouts["mass"].to_pylist() == pytest.approx(np.abs(train.trace.base) / len(rollouts))


def test_some_lengths_may_be_known(record: StepRecord, config: RunConfig) -> None:
    train = record.splits[0]
    train.length = [3, *[None] * (len(train.group) - 1)]
    train.truncated = [None, True, *[False] * (len(train.group) - 2)]
    rollouts = tables(record, Factors())["rollouts"]
    assert rollouts["length"].to_pylist() == train.length
    assert rollouts["truncated"].to_pylist() == train.truncated
    train.length = np.arange(len(train.group))
    judge(train, config, 4)
    assert tables(record, Factors())["rollouts"]["length"].to_pylist() == list(range(len(train.group)))


def test_tokens_need_every_length(record: StepRecord) -> None:
    record.splits[0].token_ids = np.zeros((len(record.splits[0].group), 2), np.int32)
    with pytest.raises(StoreError, match="with tokens, every length is a number"):
        tables(record, Factors())


def test_without_rewards_and_verdicts_the_rest_is_kept(record: StepRecord) -> None:
    train = record.splits[0]
    train.trace = train.correct = train.loss_weight = None
    train.reward = train.correctness = np.full(len(train.group), np.nan)
    train.polarity = np.where(np.arange(len(train.group)) % 2, 1, -1)
    made = tables(record, Factors())
    assert made["rollouts"]["polarity"].to_pylist() == train.polarity.tolist()
    for table, name in (
        ("rollouts", "reward"),
        ("rollouts", "correct"),
        ("groups", "correct"),
        ("groups", "pass_rate"),
    ):
        assert made[table][name].null_count == len(made[table])


def test_live_sealed_and_packed_it_is_recomputed_and_whole(run_dir: Path, tmp_path: Path) -> None:
    live = check(run_dir)
    assert live.problems == [] and live.rollouts > 8 and live.tokens == 0, "an import may begin at step 4"
    packed = pack(run_dir, tmp_path / "packed")
    assert check(packed).problems == []
    seal(run_dir)
    shutil.rmtree(run_dir / "steps")
    assert check(run_dir).problems == []
    again = replay(run_dir, "run", 4)
    assert again.batch.measured is False and again.trace.advantage.shape == (live.rollouts, 1)
    with open_runs([run_dir]) as lab:
        stored = lab.arrays('SELECT base_advantage FROM rollouts ORDER BY "group", rollout')["base_advantage"]
    assert np.allclose(stored, again.trace.base, atol=1e-6)


@pytest.mark.parametrize(
    ("table", "column", "change", "words"),
    [
        ("rollouts", "base_advantage", lambda v: [v[0] + 0.01, *v[1:]], "base_advantage is"),
        ("rollouts", "base_advantage", lambda v: [None, *v[1:]], "base_advantage is nan"),
        ("rollouts", "mass", lambda v: [v[0] + 0.01, *v[1:]], "mass is"),
        ("rollouts", "polarity", lambda v: [-v[0], *v[1:]], "polarity is"),
        ("rollouts", "kept", lambda v: [False, *v[1:]], "kept is 0"),
        ("rollouts", "correct", lambda v: [None, *v[1:]], "1 rollouts without a verdict"),
        ("rollouts", "correct", lambda v: [not v[0], *v[1:]], "correct rollouts where the group says"),
        ("rollouts", "reward", lambda v: [None, *v[1:]], "without rewards"),
        ("groups", "class", lambda v: ["uniform"] * len(v), "class is uniform"),
        ("metrics", "mass_negative", lambda v: [9.0], "mass_negative is 9 in the metrics"),
    ],
)
def test_check_sees_what_is_wrong(run_dir: Path, table: str, column: str, change: Callable, words: str) -> None:
    file = run_dir / "steps/step=000004" / f"{table}.parquet"
    rows = pq.read_table(file, partitioning=None)
    i = rows.schema.get_field_index(column)
    pq.write_table(
        rows.set_column(i, column, pa.array(change(rows[column].to_pylist()), rows.schema.field(i).type)), file
    )
    assert any(words in problem for problem in check(run_dir).problems)


def test_a_run_of_this_lab_may_lack_nothing(run_dir: Path) -> None:
    text = (run_dir / "config.yaml").read_text()
    (run_dir / "config.yaml").write_text(text.replace("imported: true", "imported: false"))
    problems = check(run_dir).problems
    assert any("the step is not whole" in problem for problem in problems)
    assert any("are missing" in problem for problem in problems)
