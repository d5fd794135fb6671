"""What methods ask of the loop: proxies, penalties, bases per token, matched mass, rewards between right and wrong."""

import numpy as np
import pytest
import torch

from core.advantage import PROXY_DROPPED
from core.config import parse_run
from core.store import check, replay
from core.tasks.base import Verdict
from core.tasks.embedded import EmbeddedTask
from core.train import loop
from core.train.policy import load_policy
from tests.core.train.runs import contents, rows, run, table

NO_EXAMS = {"evaluate": {"every": 0}, "record": {"after_update": "off"}}
LP_REG = {"name": "lp_reg", "set": {"lp_reg.ratio": 0.2, "min_p": 0.05}}


def metrics(path, step=0):
    return table(path, step, "metrics").to_pylist()[0]


@pytest.fixture(scope="module")
def lp_reg(tmp_path_factory):
    """Two steps of two minibatches, with probes."""
    path = tmp_path_factory.mktemp("lp_reg") / "run"
    return run(path, method=LP_REG, steps=2, updates={"minibatches": 2}, sampling={"temperature": 0.9})


def test_proxies_are_those_of_the_policy_that_the_step_begins_with(lp_reg):
    """Of training rollouts and of probes: at step 0 the adapter is nothing, so the base model alone says them."""
    policy = load_policy(parse_run({}))
    for split in ("train", "probe"):
        prompts = {group["group"]: group["prompt"] for group in rows(lp_reg, 0, "groups", split=split)}
        tokens = rows(lp_reg, 0, "tokens", split=split)
        dropped = 0
        for key in dict.fromkeys((t["group"], t["rollout"]) for t in tokens):
            mine = [t for t in tokens if (t["group"], t["rollout"]) == key]
            response = torch.tensor([t["token_id"] for t in mine])
            ids = torch.cat([torch.tensor(policy.tokenizer(prompts[key[0]])["input_ids"]), response])[None]
            with torch.no_grad():
                prob = (policy.model(input_ids=ids).logits[0] / 0.9).softmax(-1)[-len(mine) - 1 : -1]
            left = torch.where(prob >= 0.05 * prob.amax(-1, keepdim=True), prob, 0)
            own = left.gather(-1, response[:, None])[:, 0] / left.sum(-1)
            expected = torch.where(own > 0, own.log(), PROXY_DROPPED)
            np.testing.assert_allclose([t["proxy_logprob"] for t in mine], expected, rtol=1e-4, atol=1e-4)
            dropped += int((own == 0).sum())
        assert 0 < dropped < len(tokens)
        assert all(t["penalty"] in (0, 1) for t in tokens)
    assert metrics(lp_reg)["time_proxy"] > 0 == metrics(lp_reg)["time_forward"]


def test_the_proxys_penalty_is_in_the_loss_and_in_the_metrics(lp_reg):
    second = metrics(lp_reg, 1)
    assert second["penalty"] > 0
    assert second["loss"] == pytest.approx(second["policy_loss"] + second["penalty"], rel=1e-4)
    tokens = rows(lp_reg, 1, "tokens", split="train")
    chosen = [t for t in tokens if t["penalty"]]
    assert chosen and all(t["advantage"] < 0 for t in chosen)
    passed = sum(t["ratio"] is not None for t in tokens)
    assert 0 < second["penalised_share"] <= len(chosen) / passed
    assert check(lp_reg).problems == []


def test_recording_proxies_for_others_changes_nothing_about_the_training(tmp_path):
    plain = run(tmp_path / "plain", steps=2, **NO_EXAMS)
    recorded = run(tmp_path / "recorded", steps=2, evaluate={"every": 0},
                   record={"after_update": "off", "proxy_min_p": 0.1})  # fmt: skip
    assert contents(plain)["adapter"] == contents(recorded)["adapter"]
    for step in range(2):
        tokens = rows(recorded, step, "tokens")
        assert all(
            t["proxy_logprob"] == PROXY_DROPPED or t["proxy_logprob"] > t["trainer_logprob"] - 1e-4 for t in tokens
        )
        assert all(t["penalty"] is None for t in tokens)
        assert all(t["proxy_logprob"] is None for t in rows(plain, step, "tokens"))
        assert metrics(recorded, step)["penalty"] is None and metrics(plain, step)["time_proxy"] == 0
    again = replay(recorded, "recorded", 1)
    assert again.batch.proxy_min_p == 0.1
    assert check(recorded).ok


def test_where_the_trainer_scores_anyway_proxies_cost_no_second_forward(tmp_path):
    path = run(tmp_path / "run", steps=1, precision="bfloat16", method=LP_REG, **NO_EXAMS)
    first = metrics(path)
    assert first["time_forward"] > 0 == first["time_proxy"]
    tokens = rows(path, 0, "tokens")
    apart = [t["proxy_logprob"] - t["trainer_logprob"] for t in tokens if t["proxy_logprob"] != PROXY_DROPPED]
    assert min(apart) >= -1e-6, "both are of one pass"
    assert max(abs(t["trainer_logprob"] - t["sampler_logprob"]) for t in tokens) > 1e-3
    assert check(path).ok


def test_kl_cov_holds_its_tokens_back_once_the_policy_has_moved(tmp_path):
    method = {"name": "kl_cov", "set": {"kl_cov.ratio": 0.05, "kl_cov.coefficient": 2.0}}
    optimizer = {"name": "sgd", "lr": 0.5, "max_grad_norm": None}
    once, twice = (
        run(tmp_path / str(epochs), method=method, steps=1, updates={"epochs": epochs}, optimizer=optimizer, **NO_EXAMS)
        for epochs in (1, 2)
    )
    assert metrics(once)["penalty"] == 0, "nothing has moved yet"
    tokens = rows(twice, 0, "tokens")
    assert {t["penalty"] for t in tokens} == {0.0, 2.0}
    distance = sum(t["loss_weight"] * t["penalty"] * abs(np.log(t["ratio"])) for t in tokens if t["penalty"])
    assert metrics(twice)["penalty"] == pytest.approx(distance / 2, rel=1e-3), "the mean over two updates"
    assert not any(t["clipped"] for t in tokens if t["penalty"])
    passed = [t for t in tokens if t["ratio"] is not None]
    share = np.mean([t["penalty"] > 0 for t in passed])
    assert metrics(twice)["penalised_share"] == pytest.approx(share)
    assert check(twice).ok


def test_what_a_rule_draws_is_drawn_again_from_the_store(tmp_path):
    method = {"name": "clip_cov", "set": {"clip_cov.ratio": 0.2, "cov_low": 0.01}}
    path = run(tmp_path / "run", steps=1, seed=7, method=method, updates={"minibatches": 2}, **NO_EXAMS)
    drawn = [t["f_clip_cov"] == 0 for t in rows(path, 0, "tokens")]
    assert 5 < sum(drawn) < len(drawn) / 2
    assert check(path).problems == []


def test_a_base_rule_may_be_per_token(tmp_path):
    path = run(tmp_path / "run", steps=2, method={"name": "reinforce_pp", "set": {"gamma": 0.9}}, **NO_EXAMS)
    rollouts = rows(path, 0, "rollouts")
    assert all(r["base_advantage"] is None for r in rollouts)
    right = next(r for r in rollouts if r["reward"] == 1 and r["length"] > 2)
    mine = rows(path, 0, "tokens", group=right["group"], rollout=right["rollout"])
    values = [t["base_advantage"] for t in mine]
    assert values == sorted(values) and values[0] < values[-1], "the discount leaves less the further the reward is"
    assert metrics(path)["mass_positive"] == metrics(path)["mass_positive_base"] > 0
    assert check(path).problems == []


@pytest.mark.parametrize("minibatches", [1, 2])
def test_matched_mass_is_the_bases(tmp_path, minibatches):
    """ADORA x A3PO on DAPO: the factors change who gets the mass, and no longer how much there is."""
    method = {"name": "a3po", "base": "dapo", "also": ["adora_amplify"], "mass_matched": True}
    path = run(tmp_path / "run", steps=2, method=method, updates={"minibatches": minibatches}, **NO_EXAMS)
    assert check(path).problems == []
    for step in range(2):
        row = metrics(path, step)
        own, base = (sum(row[f"mass_{side}{end}"] for side in ("positive", "negative")) for end in ("", "_base"))
        assert own == pytest.approx(base, rel=1e-6) and own > 0
        factors = {r["f_mass_matched"] for r in rows(path, step, "rollouts")}
        assert len(factors) == 1 and factors != {1.0}


class Graded(EmbeddedTask):
    """Half for the share of right steps, half for the answer; a bonus for brevity, which is no correctness."""

    name = "graded"

    def verify(self, prompt, response):
        verdict = super().verify(prompt, response)
        steps = verdict.traits["steps"]
        right = verdict.traits["steps_right"] / steps if steps else 0.0
        grade = 0.5 * right + 0.5 * verdict.correctness
        brief = 0.1 if len(response) < 25 else 0.0
        return Verdict(grade + brief, grade, {"grade": grade, "brief": brief}, verdict.traits)


@pytest.mark.parametrize("method", ["dapo", "adora_code_llm", "a3po"])
def test_rewards_between_right_and_wrong(tmp_path, monkeypatch, method):
    monkeypatch.setattr(loop, "get_task", lambda *_, **__: Graded())
    overlong = {"buffer": 8, "factor": 0.5}
    path = run(tmp_path / "run", steps=2, method=method, correct_threshold=0.4, overlong=overlong, sampling={
        "max_new_tokens": 40})  # fmt: skip
    assert check(path).problems == []
    seen, pushed_all_the_same = set(), 0
    for step in range(2):
        rollouts = rows(path, step, "rollouts", split="train")
        wrong_groups = {r["group"] for r in rollouts} - {r["group"] for r in rollouts if r["correct"]}
        for r in rollouts:
            parts = dict(r["parts"])
            assert r["correctness"] == pytest.approx(parts["grade"])
            assert r["reward"] == pytest.approx(sum(parts.values()), abs=1e-6)
            assert r["correct"] == (r["correctness"] >= np.float32(0.4)) == (r["polarity"] > 0)
            seen.add(round(r["correctness"], 3))
        pushed = {t["group"] for t in rows(path, step, "tokens", split="train") if t["advantage"]}
        pushed_all_the_same += len(wrong_groups & pushed)
        row = metrics(path, step)
        assert row["pass_rate"] == np.mean([r["correct"] for r in rollouts])
        assert row["all_wrong_share"] == pytest.approx(len(wrong_groups) / row["groups_sampled"])
    assert len(seen) > 3 and pushed_all_the_same, "grades differ among the wrong"
    assert metrics(path)["update_norm"] > 0
