"""Numbers of the authors' public code and of verl, matched to 1e-5."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from core.advantage import batch_from_json, build, classify, compute, recipes, trace_to_json

ENTRIES = json.loads(Path(__file__).with_name("golden.json").read_text())
OFF = {f"{p}_{e}_ratio": 0 for p in ("positive", "negative") for e in ("high", "low")}
KEYS = {
    "grpo": ("grpo", {}),
    "dr_grpo": ("dr_grpo", {}),
    "rloo": ("rloo", {}),
    "reinforce_pp": ("reinforce_pp", {}),
    "reinforce_pp_baseline": ("reinforce_pp_baseline", {}),
    "pass_at_k_4": ("pass_at_k", {"k": 4}),
    "psr_pm1": ("psr_pm1", {}),
    "nsr_pm1": ("nsr_pm1", {}),
    "w_reinforce_0.1": ("w_reinforce", {"lambda": 0.1}),
    "polarity_p2n1": ("polarity", {"positive": 2, "negative": 1}),
    "polarity_p1n2": ("polarity", {"positive": 1, "negative": 2}),
    "token_prob_neg_high_0.2_x5": ("token_shaping", OFF | {"negative_high_ratio": 0.2, "negative_high_scale": 5}),
    "token_prob_pos_low_0.2_x2": ("token_shaping", OFF | {"positive_low_ratio": 0.2, "positive_low_scale": 2}),
    "token_entropy_pos_high_0.2_x0.5": (
        "token_shaping",
        OFF | {"metric": "entropy", "positive_high_ratio": 0.2, "positive_high_scale": 0.5},
    ),
    "a3po_step0": ("a3po", {"rho_positive": 2, "rho_negative": 2, "alpha": 0.005, "ratio": 0.2}),
    "a3po_step100": ("a3po", {}),
    "a3po_step200": ("a3po", {}),
    "adora_llm_code": ("adora_code_llm", {"weight": 0.1}),
    "adora_vlm_code": ("adora_code_vlm", {"weight": 0.1}),
}
CASES = [
    pytest.param(entry, key, id=f"{entry['kind']}-{entry['seed']}-{key}")
    for entry in ENTRIES
    for key in entry["advantage"]
    if key in KEYS
]


def test_every_kind_of_batch_is_there():
    assert [entry["kind"] for entry in ENTRIES].count("binary") == 8
    assert [entry["kind"] for entry in ENTRIES].count("partial_credit") == 2
    assert [entry["kind"] for entry in ENTRIES].count("wide_ratio") == 1
    assert {case.values[1] for case in CASES} == set(KEYS)
    everything = {key for entry in ENTRIES for key in entry["advantage"]}
    assert everything == set(KEYS) | {"adora_vlm_code_weight"}  # a weight, not an advantage: see test_adora_weights


@pytest.mark.parametrize(("entry", "key"), CASES)
def test_advantage(entry, key):
    name, params = KEYS[key]
    step = {"step": int(key.partition("step")[2])} if "step" in key else {}
    batch = batch_from_json({**entry["inputs"], **step})
    found = trace_to_json(compute(build(name, params=params), batch), batch)["advantage"]
    for mine, theirs in zip(found, entry["advantage"][key], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-5)


def test_setting_one_pair_leaves_the_other_three_off():
    entry = ENTRIES[3]
    batch = batch_from_json(entry["inputs"])
    method = build("token_shaping", params={"negative_high_ratio": 0.2, "negative_high_scale": 5})
    found = trace_to_json(compute(method, batch), batch)["advantage"]
    np.testing.assert_allclose(
        np.concatenate(found), np.concatenate(entry["advantage"]["token_prob_neg_high_0.2_x5"]), atol=1e-5
    )


@pytest.mark.parametrize("key", ["psr_pm1", "nsr_pm1"])
def test_zero_marks_a_dropped_rollout(key):
    for entry in ENTRIES[:8]:
        batch = batch_from_json(entry["inputs"])
        trace = compute(build(key), batch)
        assert trace.kept.any(axis=1).tolist() == [value != 0 for value in entry["advantage"][key]]


@pytest.mark.parametrize("entry", [e for e in ENTRIES if e["kind"] == "partial_credit"], ids=lambda e: str(e["seed"]))
def test_adora_weights(entry):
    batch = batch_from_json(entry["inputs"])
    llm = compute(build("adora_code_llm"), batch).classes.weight
    vlm = compute(build("adora_code_vlm"), batch).classes.weight
    weights = entry["adora_llm_code_group_weight"]
    assert llm.tolist() == (list(weights.values()) if isinstance(weights, dict) else weights)
    assert vlm[batch.group].tolist() == entry["advantage"]["adora_vlm_code_weight"]


def test_no_golden_reward_lies_on_the_threshold():
    assert all(reward != 0.5 for entry in ENTRIES for reward in entry["inputs"]["reward"])


def test_all_recipes_run_on_a_golden_batch():
    batch = batch_from_json({**ENTRIES[0]["inputs"], "step": 3})
    batch = replace(batch, proxy_logprob=batch.trainer_logprob)  # the golden batches have no proxy, which Lp-Reg needs
    for name in recipes():
        assert compute(build(name), batch).advantage.shape == (batch.length.size, batch.length.max())
    assert classify(batch).trained is False
