"""Training on what another model than the trainer's has sampled: a real one, with real gaps."""

import dataclasses

import numpy as np
import pytest
import torch

from core.advantage import PROXY_DROPPED
from core.advantage.tis import GAP_METRICS
from core.config import read_run
from core.engines.transformers import TransformersEngine
from core.store import check
from core.train.loop import Trainer
from core.train.policy import Policy, load_policy
from tests.core.train.runs import Reporter, configure, rows, table

LR = 0.5
SETTINGS = {
    "steps": 2,
    "optimizer": {"name": "sgd", "lr": LR, "max_grad_norm": None},
    "lora": {"alpha": 256},
    "evaluate": {"every": 0},
    "record": {"after_update": "off"},
}


class Lagging:
    """An engine with a model of its own, which has the adapter of one step before and gives no entropies."""

    def __init__(self, trainer: Trainer):
        self.theirs = trainer.policy
        self.own: Policy = load_policy(trainer.config)
        self.engine = TransformersEngine(self.own.model, self.own.tokenizer)
        self.version = 0

    def generate(self, prompts, group_size, sampling, key, adapter=0):
        drawn = self.engine.generate(prompts, group_size, sampling, key)
        if key.split == "train":
            with torch.no_grad():
                for name, parameter in self.own.parameters.items():
                    parameter.copy_(self.theirs.parameters[name])
        return dataclasses.replace(drawn, entropy=None)


def lagging(run_dir, **settings) -> Trainer:
    """A trainer whose engine lags; its first step, at which both still are equal, is done."""
    trainer = Trainer(configure(run_dir, **SETTINGS | settings), Reporter())
    trainer.sampler.engine = Lagging(trainer)
    trainer.step()
    return trainer


def gradient(policy: Policy, before: torch.Tensor, run_dir, cap: float | None) -> torch.Tensor:
    """Of step 1's loss, from nothing but the adapter before it and the tokens that it stored."""
    start = 0
    for parameter in policy.parameters.values():
        parameter.grad = None
        parameter.data.copy_(before[start : start + parameter.numel()].view_as(parameter))
        start += parameter.numel()
    prompts = {group["group"]: group["prompt"] for group in rows(run_dir, 1, "groups", split="train")}
    tokens = rows(run_dir, 1, "tokens", split="train")
    total = torch.zeros(())
    for key in dict.fromkeys((t["group"], t["rollout"]) for t in tokens):
        mine = [t for t in tokens if (t["group"], t["rollout"]) == key]
        response = [t["token_id"] for t in mine]
        ids = torch.tensor([policy.tokenizer(prompts[key[0]])["input_ids"] + response])
        logp = policy.model(input_ids=ids).logits[0].log_softmax(-1)[-len(response) - 1 : -1]
        logp = logp.gather(-1, torch.tensor(response)[:, None])[:, 0]
        for t, logprob in zip(mine, logp, strict=True):
            tis = 1.0 if cap is None else min(np.exp(logprob.item() - t["sampler_logprob"]), cap)
            total = total - t["loss_weight"] * tis * t["advantage"] * logprob
    total.backward()
    return torch.cat([p.grad.flatten() for p in policy.parameters.values()])


@pytest.mark.parametrize("cap", [1.1, None])
def test_the_gradient_is_weighted_as_said(tmp_path, cap):
    path = tmp_path / "run"
    trainer = lagging(path, tis={"cap": cap})
    before = trainer.policy.flat()
    trainer.step()
    taken = (before - trainer.policy.flat()) / LR
    as_said, otherwise = (gradient(trainer.policy, before, path, value) for value in (cap, None if cap else 1.1))
    assert (taken - as_said).norm() < 1e-4 * taken.norm()
    assert (taken - otherwise).norm() > 1e-2 * taken.norm()
    tokens = rows(path, 1, "tokens", split="train")
    ratios = np.array([np.exp(t["trainer_logprob"] - t["sampler_logprob"]) for t in tokens])
    assert ratios.max() > 1.1 and ratios.min() < 0.9, "the two models do differ"
    if cap is None:
        assert all(t["tis"] is None for t in tokens)
    else:
        np.testing.assert_allclose([t["tis"] for t in tokens], np.minimum(ratios, cap), rtol=1e-6)


def test_the_correction_changes_the_update_and_nothing_about_the_advantages(tmp_path):
    made = {}
    for name, cap in (("corrected", 2.0), ("plain", None)):
        trainer = lagging(tmp_path / name, tis={"cap": cap})
        trainer.step()
        made[name] = trainer.policy.flat(), rows(tmp_path / name, 1, "tokens", split="train")
    (corrected, one), (plain, other) = made.values()
    assert (corrected - plain).norm() > 1e-3 * plain.norm()
    assert [t["token_id"] for t in one] == [t["token_id"] for t in other]
    for column in ("sampler_logprob", "trainer_logprob", "advantage", "loss_weight"):
        np.testing.assert_allclose([t[column] for t in one], [t[column] for t in other], atol=1e-4)


def test_the_gap_is_recorded_with_or_without_a_correction(tmp_path):
    exam = {"every": 1, "prompts": 2, "rollouts": 2, "k": 2, "probes": 1}
    for name, cap in (("corrected", 1.02), ("plain", None)):
        path = tmp_path / name
        trainer = lagging(path, tis={"cap": cap, "gap": 0.05}, evaluate=exam)
        trainer.step()
        trainer.finish()
        first, second = (table(path, step, "metrics").to_pylist()[0] for step in (0, 1))
        assert first["gap_max"] < 1e-4, "both begin as the same model"
        apart = np.array(
            [t["trainer_logprob"] - t["sampler_logprob"] for t in rows(path, 1, "tokens", split="train")], np.float64
        )
        assert second["gap_mean"] == pytest.approx(np.abs(apart).mean(), rel=1e-6)
        assert second["gap_max"] == pytest.approx(np.abs(apart).max(), rel=1e-6)
        assert second["gap_share"] == (np.abs(apart) > 0.05).mean() > 0
        assert second["tis_mean_ratio"] == pytest.approx(np.exp(apart).mean(), rel=1e-6)
        capped = None if cap is None else (np.exp(apart) > cap).mean()
        assert second["tis_capped_share"] == capped
        assert second["entropy_source"] == "trainer" and second["time_forward"] > 0
        assert second["entropy"] > 0
        probes = rows(path, 1, "tokens", split="probe")
        assert all(t["entropy"] is not None and t["tis"] is None for t in probes)
        assert table(path, 1, "evals").to_pylist()[0]["entropy"] is None, "the engine gives none, and nobody scores it"
        report = check(path)
        assert report.ok, report.problems


def test_refills_of_an_engine_without_entropies_are_scored_too(tmp_path):
    trainer = lagging(tmp_path / "run", method="dapo", prompts_per_step=2, group_size=2)
    trainer.step()
    path = tmp_path / "run"
    attempts = [g["attempt"] for step in (0, 1) for g in rows(path, step, "groups", split="train")]
    assert max(attempts) > 0, "no refill took place: the test shows nothing"
    tokens = rows(path, 1, "tokens", split="train")
    assert all(t["entropy"] is not None and t["tis"] is not None for t in tokens)
    assert check(path).ok


def test_proxies_are_the_trainers_where_another_engine_samples(tmp_path):
    exam = {"every": 1, "prompts": 2, "rollouts": 2, "k": 2, "probes": 1}
    method = {"name": "lp_reg", "set": {"lp_reg.ratio": 0.1, "min_p": 0.1}}
    path = tmp_path / "run"
    trainer = lagging(path, method=method, evaluate=exam)
    trainer.step()
    for split in ("train", "probe"):
        tokens = rows(path, 1, "tokens", split=split)
        left = [t for t in tokens if t["proxy_logprob"] != PROXY_DROPPED]
        assert 0 < len(left) < len(tokens)
        assert min(t["proxy_logprob"] - t["trainer_logprob"] for t in left) > -1e-6
        assert all(t["entropy"] is not None for t in tokens)
    assert max(abs(t["trainer_logprob"] - t["sampler_logprob"]) for t in tokens) > 1e-2
    metrics = table(path, 1, "metrics").to_pylist()[0]
    assert metrics["time_forward"] > 0 == metrics["time_proxy"]
    assert metrics["loss"] == pytest.approx(metrics["policy_loss"] + metrics["penalty"], rel=1e-4)
    assert check(path).problems == []


def test_where_the_trainer_itself_samples_there_is_no_gap_and_no_second_forward(tmp_path):
    trainer = Trainer(configure(tmp_path / "run", **SETTINGS), Reporter())
    trainer.step()
    metrics = table(tmp_path / "run", 0, "metrics").to_pylist()[0]
    assert {name: metrics[name] for name in GAP_METRICS} == dict.fromkeys(GAP_METRICS)
    assert (metrics["entropy_source"], metrics["time_forward"]) == ("sampler", 0)
    assert all(t["tis"] is None for t in rows(tmp_path / "run", 0, "tokens"))
    assert read_run(tmp_path / "run" / "config.yaml").tis.cap == 2.0


def test_in_bfloat16_the_sampler_is_corrected_by_default(tmp_path):
    trainer = Trainer(configure(tmp_path / "run", **SETTINGS, precision="bfloat16"), Reporter())
    trainer.step()
    tokens = rows(tmp_path / "run", 0, "tokens", split="train")
    ratios = np.array([np.exp(t["trainer_logprob"] - t["sampler_logprob"]) for t in tokens])
    assert np.abs(ratios - 1).max() > 1e-3
    np.testing.assert_allclose([t["tis"] for t in tokens], np.minimum(ratios, 2), rtol=1e-6)
    metrics = table(tmp_path / "run", 0, "metrics").to_pylist()[0]
    assert 0 < metrics["gap_mean"] < metrics["gap_max"] < 0.3
    assert metrics["tis_mean_ratio"] == pytest.approx(1, abs=0.02)
    assert check(tmp_path / "run").ok
