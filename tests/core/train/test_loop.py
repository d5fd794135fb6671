import json
import math

import numpy as np
import pytest

from core.advantage.tis import GAP_METRICS
from core.store import schema
from core.store.check import check
from core.tasks import get_task
from core.train import loop, sampler, update
from core.train.reporter import TrainingError
from tests.core.train.runs import Reporter, configure, contents, rows, run, table


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """One finished run of the small settings, with its reporter."""
    reporter = Reporter()
    return run(tmp_path_factory.mktemp("plain") / "run", reporter), reporter


def test_a_run_leaves_steps_evaluations_and_an_adapter(plain):
    path, reporter = plain
    assert reporter.start == (3, 0)
    assert reporter.steps == [0, 1, 2, 2]
    assert sorted(p.name for p in (path / "steps").iterdir()) == [f"step=00000{n}" for n in range(4)]
    assert (path / "adapter" / "adapter_model.safetensors").is_file()
    assert [(path / "steps" / f"step=00000{n}" / "evals.parquet").exists() for n in range(4)] == [1, 0, 1, 1]
    assert not (path / "steps" / "step=000003" / "metrics.parquet").exists()
    report = check(path)
    assert report.ok, report.problems
    assert report.steps == 4


def test_every_metric_has_a_value(plain):
    path, reporter = plain
    row = table(path, 1, "metrics").to_pylist()[0]
    empty = [c.name for c in schema.METRICS if row[c.name] is None]
    not_here = {"kl", "penalty", "penalised_share", *GAP_METRICS}
    assert set(empty) - {"length_correct", "entropy_correct"} == not_here, "one model samples and trains"
    tokens = rows(path, 1, "tokens", split="train")
    assert row["tokens"] == len(tokens)
    assert row["entropy"] == pytest.approx(np.mean([t["entropy"] for t in tokens]), rel=1e-5)
    assert row["entropy_after"] == pytest.approx(np.mean([t["entropy_after"] for t in tokens]), rel=1e-5)
    correct = {(r["group"], r["rollout"]): r["correct"] for r in rows(path, 1, "rollouts", split="train")}
    for right, name in ((True, "positive"), (False, "negative")):
        mine = [t for t in tokens if correct[t["group"], t["rollout"]] == right]
        mass = sum(t["loss_weight"] * abs(t["advantage"]) for t in mine)
        assert row[f"mass_{name}"] == pytest.approx(mass, rel=1e-5, abs=1e-9)
        if mine:
            side = "correct" if right else "wrong"
            assert row[f"entropy_{side}"] == pytest.approx(np.mean([t["entropy"] for t in mine]), rel=1e-5)
    assert {"reward", "pass_rate", "grad_norm", "time_sample"} <= reporter.metrics[1].keys()
    assert {"pass_at_1", "pass_at_k", "greedy"} == reporter.metrics[-1].keys()
    assert reporter.metrics[0]["reward"] == table(path, 0, "metrics").to_pylist()[0]["reward"]


def test_the_next_step_samples_from_what_the_update_made(plain):
    """After-update log-probs of step 0, and the probes sampled later, come from other policies than the sampler's."""
    path, _ = plain
    tokens = rows(path, 0, "tokens", split="train")
    change = [t["after_logprob"] - t["trainer_logprob"] for t in tokens]
    assert max(map(abs, change)) > 1e-3
    push = [t["advantage"] * (1 - math.exp(t["sampler_logprob"])) for t in tokens]
    assert np.corrcoef(push, change)[0, 1] > 0.2, "what was rewarded should have become likelier"
    assert all(t["sampler_logprob"] == t["trainer_logprob"] for t in tokens)
    passed = [t["ratio"] for t in tokens if t["advantage"]]
    assert passed and all(abs(ratio - 1) < 1e-4 for ratio in passed)


def test_probes_have_advantages_but_are_not_trained(plain):
    path, _ = plain
    probes = rows(path, 2, "tokens", split="probe")
    assert {t["group"] for t in probes} == {0, 1}
    assert all(t["advantage"] is not None and t["after_logprob"] is not None for t in probes)
    assert all(t["loss_weight"] is None and t["ratio"] is None for t in probes)
    held_out = [prompt.text for prompt in get_task("embedded").held_out(2)]
    assert [g["prompt"] for g in rows(path, 2, "groups", split="probe")] == held_out
    final = rows(path, 3, "tokens", split="probe")
    assert final
    assert all(t["after_logprob"] is None for t in final)
    train_prompts = {g["prompt"] for n in range(3) for g in rows(path, n, "groups", split="train")}
    assert not train_prompts & {prompt.text for prompt in get_task("embedded").held_out(64)}


def test_evaluation_counts_what_it_stored(plain):
    path, _ = plain
    row = table(path, 2, "evals").to_pylist()[0]
    judged = rows(path, 2, "rollouts", split="eval")
    assert len(judged) == 16
    assert row["pass_at_1"] == np.mean([r["correct"] for r in judged])
    assert row["length"] == np.mean([r["length"] for r in judged])
    assert not rows(path, 2, "tokens", split="eval")


def test_the_same_config_gives_the_same_run(plain, tmp_path):
    assert contents(run(tmp_path / "again")) == contents(plain[0])


def test_another_seed_gives_another_run(plain, tmp_path):
    other = run(tmp_path / "other", seed=1, steps=1)
    assert [g["prompt"] for g in rows(other, 0, "groups", split="train")] != [
        g["prompt"] for g in rows(plain[0], 0, "groups", split="train")
    ]


def test_evaluating_and_recording_change_nothing_about_the_training(plain, tmp_path):
    settings = {"evaluate": {"every": 0}, "record": {"after_update": "off", "reference": True}}
    bare = run(tmp_path / "bare", **settings)
    assert contents(bare)["adapter"] == contents(plain[0])["adapter"]
    tokens = rows(bare, 1, "tokens")
    assert all(t["after_logprob"] is None and t["ref_logprob"] is not None for t in tokens)
    assert table(bare, 0, "metrics").to_pylist()[0]["kl"] == pytest.approx(0, abs=1e-6)
    assert table(bare, 2, "metrics").to_pylist()[0]["kl"] > 1e-5
    assert not (bare / "steps" / "step=000003").exists()


def test_low_precision_takes_log_probs_from_the_trainer(tmp_path):
    path = run(tmp_path / "run", steps=1, precision="bfloat16", evaluate={"every": 0})
    metrics = table(path, 0, "metrics").to_pylist()[0]
    assert metrics["entropy_source"] == "trainer"
    assert metrics["time_forward"] > 0
    tokens = rows(path, 0, "tokens")
    gap = [abs(t["sampler_logprob"] - t["trainer_logprob"]) for t in tokens]
    assert 0 < max(gap) < 0.3
    assert all(abs(t["ratio"] - 1) < 0.05 for t in tokens if t["advantage"])
    assert check(path).ok


def test_after_update_for_probes_only(tmp_path):
    path = run(tmp_path / "run", steps=1, record={"after_update": "probe"})
    assert all(t["after_logprob"] is None for t in rows(path, 0, "tokens", split="train"))
    assert all(t["after_logprob"] is not None for t in rows(path, 0, "tokens", split="probe"))


def test_several_minibatches_and_epochs_move_the_ratios(tmp_path):
    path = run(tmp_path / "run", steps=1, method="dapo", updates={"minibatches": 2, "epochs": 2})
    metrics = table(path, 0, "metrics").to_pylist()[0]
    assert metrics["updates"] + metrics["skipped"] == 4
    assert metrics["ratio_max"] > 1.001
    tokens = rows(path, 0, "tokens", split="train")
    clipped = [t["clipped"] for t in tokens if t["kept"]]
    assert metrics["clip_low_share"] + metrics["clip_high_share"] == pytest.approx(np.mean(clipped))
    assert check(path).ok


def test_dynamic_sampling_stores_dropped_groups_and_says_what_is_missing(tmp_path, monkeypatch):
    monkeypatch.setattr(
        sampler.Sampler,
        "_judge",
        lambda self, prompt, response: type(self.task.verify(prompt, response))(0.0, 0.0),
    )
    path = run(tmp_path / "run", steps=1, method="dapo", dynamic_sampling={"max_refills": 2})
    metrics = table(path, 0, "metrics").to_pylist()[0]
    assert (metrics["groups_sampled"], metrics["groups_kept"], metrics["refills"], metrics["shortfall"]) == (
        12,
        0,
        2,
        4,
    )
    assert (metrics["updates"], metrics["skipped"], metrics["update_norm"]) == (0, 1, 0)
    assert metrics["no_signal_share"] == 1
    groups = rows(path, 0, "groups", split="train")
    assert [g["attempt"] for g in groups] == [0] * 4 + [1] * 4 + [2] * 4
    assert not any(g["kept"] for g in groups)
    assert check(path).ok


def test_positives_only_keeps_correct_rollouts(tmp_path):
    path = run(tmp_path / "run", steps=2, method="psr", evaluate={"every": 0})
    for step in range(2):
        for rollout in rows(path, step, "rollouts", split="train"):
            assert rollout["kept"] == rollout["correct"]
        kept = {g["group"]: g["kept"] for g in rows(path, step, "groups", split="train")}
        assert all(kept[g["group"]] == (g["correct"] > 0) for g in rows(path, step, "groups", split="train"))


def test_schedules_run_on_the_original_length(tmp_path):
    settings = {"method": {"name": "a3po", "set": {"alpha": 0.5}}, "evaluate": {"every": 0}}
    path = run(tmp_path / "run", **settings)
    factors = [max(t["f_a3po"] for t in rows(path, n, "tokens", split="train")) for n in range(3)]
    assert factors == [2.0, 1.5, 1.0]


def test_a_loss_that_is_no_number_fails_with_the_step_the_batch_and_advice(tmp_path, monkeypatch):
    path = configure(tmp_path / "run")
    inner = update.policy_terms

    def broken(*arguments):
        terms = inner(*arguments)
        if broken.steps:
            terms.term = terms.term * float("nan")
        return terms

    broken.steps = 0
    monkeypatch.setattr(update, "policy_terms", broken)
    reporter = Reporter(at=lambda step: setattr(broken, "steps", step + 1))
    with pytest.raises(
        TrainingError, match=r"^step 1: the loss is not a finite number.*failed_batch.npz.*optimizer.lr"
    ):
        loop.train(path, reporter)
    assert check(path).steps == 1, "the step before stays readable"
    with np.load(path / "failed_batch.npz", allow_pickle=False) as batch:
        assert batch["step"] == 1
        assert batch["token_ids"].shape == batch["advantage"].shape == batch["loss_weight"].shape
        assert len(batch["prompt"]) == 4


def test_weights_that_blew_up_fail_with_the_step(tmp_path):
    path = configure(tmp_path / "run", optimizer={"name": "adamw", "lr": 1.0, "max_grad_norm": None}, steps=60)
    settings = {"evaluate": {"every": 0}, "optimizer": {"name": "sgd", "lr": 1.0, "weight_decay": 1e30}}
    configure(path, **settings)
    with pytest.raises(TrainingError, match=r"^step [12]: the model's logits are not finite numbers"):
        loop.train(path, Reporter())


def test_a_pool_too_small_for_a_step_is_named(tmp_path, monkeypatch):
    task = type("Task", (), {"name": "toy", "train_pool": lambda *_: get_task("embedded").train_pool(3, 0)})
    monkeypatch.setattr(loop, "get_task", lambda *_, **__: task())
    with pytest.raises(TrainingError, match=r"prompts_per_step is 4, but the task 'toy' has only 3"):
        loop.train(configure(tmp_path / "run"), Reporter())


def test_schema_names_the_factors(plain):
    assert json.loads((plain[0] / "schema.json").read_text())["token_factors"] == []


def test_the_reference_is_the_base_model_at_the_runs_temperature_and_kl_its_k3(plain, tmp_path):
    settings = {"sampling": {"temperature": 0.7}, "record": {"reference": True}, "evaluate": {"every": 0}}
    path = run(tmp_path / "run", **settings, steps=2)
    first, second = (rows(path, step, "tokens", split="train") for step in (0, 1))
    assert max(abs(t["ref_logprob"] - t["sampler_logprob"]) for t in first) < 1e-4, "the adapter begins as nothing"
    apart = np.array([t["ref_logprob"] - t["trainer_logprob"] for t in second])
    assert np.abs(apart).max() > 1e-3
    kl = table(path, 1, "metrics").to_pylist()[0]["kl"]
    assert kl == pytest.approx(np.mean(np.exp(apart) - apart - 1), rel=1e-4)
    assert kl > 0
    assert all(t["ref_logprob"] is None for t in rows(plain[0], 0, "tokens", split="train"))
    assert table(plain[0], 1, "metrics").to_pylist()[0]["kl"] is None
