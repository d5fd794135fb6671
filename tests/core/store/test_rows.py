"""What a record says is what the tables hold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from core.advantage import PROXY_DROPPED, Penalty
from core.store import StepRecord, StoreError, schema
from core.store.factors import Factors
from core.store.rows import tables

A3PO = Factors(rollout=("selected",), token=("a3po",))


def test_tables_have_the_schemas_columns_and_types(step_record: StepRecord) -> None:
    made = tables(step_record, A3PO)
    assert set(made) == set(schema.TABLES)
    for name, table in made.items():
        assert table.schema == schema.arrow(name, rollout_factors=A3PO.rollout, token_factors=A3PO.token)


def test_a_correction_is_stored_where_there_is_one_and_null_elsewhere(step_record: StepRecord) -> None:
    train = step_record.splits[0]
    assert tables(step_record, A3PO)["tokens"]["tis"].null_count == tables(step_record, A3PO)["tokens"].num_rows
    train.tis = np.random.default_rng(0).uniform(0, 2, train.token_ids.shape)
    stored = tables(step_record, A3PO)["tokens"].to_pylist()
    mask = np.arange(train.tis.shape[1]) < train.length[:, None]
    assert [t["tis"] for t in stored if t["split"] == "train"] == train.tis[mask].astype(np.float32).tolist()
    assert all(t["tis"] is None for t in stored if t["split"] == "probe")


def test_proxies_and_penalties_are_stored_where_there_are_some_and_null_elsewhere(step_record: StepRecord) -> None:
    train = step_record.splits[0]
    tokens = tables(step_record, A3PO)["tokens"]
    assert tokens["proxy_logprob"].null_count == tokens["penalty"].null_count == tokens.num_rows
    random, shape = np.random.default_rng(0), train.token_ids.shape
    train.proxy_logprob = np.where(random.random(shape) < 0.3, PROXY_DROPPED, -random.random(shape))
    coefficient = np.where(random.random(shape) < 0.2, 0.5, 0.0)
    train.trace = replace(train.trace, penalty=Penalty("rule", "proxy", coefficient, "", lambda i, t: ""))
    stored = tables(step_record, A3PO)["tokens"].to_pylist()
    mask = np.arange(shape[1]) < train.length[:, None]
    mine = [t for t in stored if t["split"] == "train"]
    assert [t["proxy_logprob"] for t in mine] == train.proxy_logprob[mask].astype(np.float32).tolist()
    assert [t["penalty"] for t in mine] == coefficient[mask].tolist()
    assert all(t["proxy_logprob"] is t["penalty"] is None for t in stored if t["split"] == "probe")


def test_tokens_are_those_of_the_record_without_padding(step_record: StepRecord) -> None:
    train, probe = step_record.splits[:2]
    tokens = tables(step_record, A3PO)["tokens"].to_pylist()
    assert len(tokens) == train.length.sum() + probe.length.sum()
    i = 5
    mine = [
        t for t in tokens if t["split"] == "train" and (t["group"], t["rollout"]) == (train.group[i], train.rollout[i])
    ]
    n = train.length[i]
    assert [t["position"] for t in mine] == list(range(n))
    assert [t["token"] for t in mine] == train.token_text[i]
    assert [t["token_id"] for t in mine] == train.token_ids[i, :n].tolist()
    for name in ("sampler_logprob", "entropy", "after_logprob", "loss_weight", "ratio"):
        assert [t[name] for t in mine] == getattr(train, name)[i, :n].astype(np.float32).tolist()
    assert [t["advantage"] for t in mine] == train.trace.advantage[i, :n].astype(np.float32).tolist()
    (factor,) = (f for f in train.trace.factors if f.id == "a3po")
    assert [t["f_a3po"] for t in mine] == factor.values[i, :n].astype(np.float32).tolist()


def test_groups_count_their_rollouts(step_record: StepRecord) -> None:
    train = step_record.splits[0]
    groups = [g for g in tables(step_record, A3PO)["groups"].to_pylist() if g["split"] == "train"]
    for group in groups:
        mine = train.group == group["group"]
        assert (group["n"], group["correct"]) == (mine.sum(), train.correct[mine].sum())
        assert group["pass_rate"] == pytest.approx(train.correct[mine].mean())
        assert group["class"] == train.trace.classes.label[group["group"]]
        longest = train.length[mine & train.correct]
        assert group["longest_correct"] == (longest.max() if len(longest) else None)


def test_what_was_not_recorded_is_null(step_record: StepRecord) -> None:
    made = tables(step_record, A3PO)
    assert made["tokens"]["ref_logprob"].null_count == made["tokens"].num_rows
    probes = [t for t in made["tokens"].to_pylist() if t["split"] == "probe"]
    assert {(t["loss_weight"], t["ratio"], t["clipped"]) for t in probes} == {(None, None, None)}
    assert {r["minibatch"] for r in made["rollouts"].to_pylist() if r["split"] == "probe"} == {None}


def test_metrics_that_are_missing_or_nan_are_null(step_record: StepRecord) -> None:
    step_record.metrics = {"reward": 0.5, "kl": float("nan"), "traits": {"wait": None, "check": 0.25}}
    row = tables(step_record, A3PO)["metrics"].to_pylist()[0]
    assert (row["step"], row["reward"], row["kl"], row["loss"]) == (0, 0.5, None, None)
    assert dict(row["traits"]) == {"wait": None, "check": 0.25}


def test_an_evaluation_alone_makes_only_its_tables(step_record: StepRecord) -> None:
    probe = step_record.splits[1]
    held_out = replace(probe, split="eval", token_ids=None, token_text=None, trace=None)
    made = tables(StepRecord(7, [held_out], eval={"pass_at_1": 0.5}), Factors())
    assert set(made) == {"groups", "rollouts", "evals"}
    assert made["evals"]["step"].to_pylist() == [7]
    assert made["rollouts"]["polarity"].to_pylist() == np.where(probe.correct, 1, -1).tolist()


def test_hostile_text_is_stored(step_record: StepRecord) -> None:
    train = step_record.splits[0]
    train.text[0] = train.prompt[0] = train.token_text[0][0] = "a\ud800\x00<b>\x1b[0m\u202e"
    train.traits[0] = {"wa\ud800it": 1.0}
    made = tables(step_record, A3PO)
    safe = "a\u241bud800\u241bu0000<b>\x1b[0m\u202e"
    assert made["rollouts"]["text"][0].as_py() == made["groups"]["prompt"][0].as_py() == safe
    assert made["tokens"]["token"][0].as_py() == safe
    assert dict(made["rollouts"]["traits"][0].as_py()) == {"wa\u241bud800it": 1.0}


@pytest.mark.parametrize(
    ("name", "value_of", "told"),
    [
        ("text", lambda n: ["only one"], "text has 1 entries for [0-9]+ rollouts"),
        ("answer", lambda n: [], "answer has 0 entries for [0-9]+ groups"),
        ("group", lambda n: np.full(n, 99), r"group must lie in 0\.\."),
        ("token_text", lambda n: [["a"]] * n, "one text a token"),
        ("entropy", lambda n: np.zeros((n, 2)), "entropy has shape"),
        ("token_ids", lambda n: np.zeros((n, 2), int), "token_ids has 2"),
    ],
)
def test_a_record_that_contradicts_itself_is_refused(step_record: StepRecord, name: str, value_of, told: str) -> None:
    train = step_record.splits[0]
    step_record.splits = [replace(train, **{name: value_of(len(train.group))})]
    with pytest.raises(StoreError, match="step 0.*" + told):
        tables(step_record, A3PO)


def test_a_factor_or_metric_that_has_no_column_is_refused(step_record: StepRecord) -> None:
    with pytest.raises(StoreError, match=r"the factor a3po is not in the run's schema\.json"):
        tables(step_record, Factors(rollout=("selected",)))
    step_record.metrics = {"rewrad": 1.0}
    with pytest.raises(StoreError, match="metrics has no column rewrad"):
        tables(step_record, A3PO)


def test_arrays_may_be_wider_than_the_longest_response(step_record: StepRecord) -> None:
    before = tables(step_record, A3PO)["tokens"]
    train = step_record.splits[0]
    train.entropy = np.pad(train.entropy, ((0, 0), (0, 9)), constant_values=7)
    assert tables(step_record, A3PO)["tokens"].equals(before)
    assert isinstance(before, pa.Table)
