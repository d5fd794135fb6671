"""Explain: the ledger's numbers multiply, its loss is the golden loss, and its words say what happened."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.views.explain import ledgers, lines
from app.views.explain_loss import kl_term, loss_term, loss_weight
from core.advantage import PROXY_DROPPED, batch_from_json, build, recipes
from core.counterfactual import Spec, answer
from core.counterfactual.examples import EXAMPLES
from tests.core.advantage.batches import batch

GOLDEN = json.loads((Path(__file__).parents[1] / "core" / "advantage" / "golden.json").read_text())
LOSSES = {
    "ppo_clip_0.2_seqmean": "grpo",
    "dapo_0.2_0.28_tokenmean": "grpo;loss.aggregation=token_mean;loss.clip_high=0.28",
    "dapo_0.2_0.28_dual3_tokenmean": "grpo;loss.aggregation=token_mean;loss.clip_high=0.28;loss.dual_clip=3",
    "dr_grpo_0.2_sumnorm": "grpo;loss.aggregation=fixed_length",
    "gspo_3e-4_4e-4": "gspo",
    "cispo_1_0.28_tokenmean": "cispo",
}
CASES = [(index, name) for index in (0, 3, 10) for name in GOLDEN[index]["loss"]]


def golden(index):
    """(the entry, its batch, the ratios of its new log-probs)."""
    entry = GOLDEN[index]
    found = batch_from_json(entry["inputs"])
    ratio = np.full(found.mask.shape, np.nan)
    for i, row in enumerate(entry["inputs"]["new_logprob"]):
        ratio[i, : len(row)] = np.exp(np.array(row) - np.array(entry["inputs"]["old_logprob"][i]))
    return entry, found, ratio


def by_id(found):
    return {line.id: line for line in found}


def token(spec, found, i=0, t=0, ratio=None):
    return by_id(lines(answer(Spec.parse(spec).build(), found), found, i, t, ratio))


def example(name):
    return batch_from_json(EXAMPLES[name].batch)


@pytest.mark.parametrize(("index", "name"), CASES)
def test_terms_times_weights_are_the_golden_loss(index, name):
    entry, found, ratio = golden(index)
    own = answer(Spec.parse(LOSSES[name]).build(), found)
    total = 0.0
    for i, t in zip(*np.nonzero(found.mask), strict=True):
        term = loss_term(own, found, i, t, ratio)
        total += term.value * loss_weight(own, found, i, t, term.value).value
    assert total == pytest.approx(entry["loss"][name]["loss"], abs=1e-5)


def test_the_kl_is_goldens_turned_round():
    """Golden has the k3 of new to ref; before the update the term is that of old to ref."""
    _, found, _ = golden(0)
    own = answer(build("grpo", loss={"kl": 0.5, "aggregation": "token_mean"}), found)
    value = np.mean([kl_term(own, found, i, t, None).value for i, t in zip(*np.nonzero(found.mask), strict=True)])
    gap = (found.ref_logprob - found.trainer_logprob)[found.mask]
    assert value == pytest.approx(0.5 * np.mean(np.exp(gap) - gap - 1))
    line = by_id(lines(own, found, 0, 0))["kl"]
    assert line.raw == pytest.approx(0.5 * (math.exp(gap[0]) - gap[0] - 1)) and line.label == "KL to the base model"
    assert kl_term(answer(build("grpo"), found), found, 0, 0, None) is None
    without = by_id(lines(own, replace(found, ref_logprob=None), 0, 0))
    assert without["kl"].raw is None and "doesn't have" in without["kl"].words
    assert without["loss_weight"].words == ""


def test_the_kl_at_new_probabilities_is_goldens():
    entry, found, ratio = golden(0)
    own = answer(build("grpo", loss={"kl": 1.0, "aggregation": "token_mean"}), found)
    total = sum(
        kl_term(own, found, i, t, ratio).value * own.weight[i, t] for i, t in zip(*np.nonzero(found.mask), strict=True)
    )
    assert total == pytest.approx(entry["kl_k3_token_mean"], abs=1e-5)


@pytest.mark.parametrize("name", recipes())
def test_every_method_explains_its_advantage(name):
    _, found, ratio = golden(0)
    proxy = np.where(found.mask, np.minimum(found.trainer_logprob + 0.1, 0), 0)
    found = replace(found, proxy_logprob=proxy, proxy_min_p=0.02)
    own = answer(build(name), found)
    for i, t in ((0, 0), (1, 3), (5, 1)):
        told = lines(own, found, i, t, ratio)
        assert len(by_id(told)) == len(told) and all(line.label and line.value and line.formula for line in told)
        product = math.prod(line.raw for line in told if line.kind in ("base", "factor"))
        total = by_id(told)["advantage"]
        assert product == pytest.approx(total.raw, abs=1e-9) and total.raw == own.trace.advantage[i, t]
        assert by_id(told)["loss_weight"].raw == own.weight[i, t]
        assert ("loss_term" in by_id(told)) == bool(own.trace.kept[i, t])
        assert all(line.idle == (line.raw == 1) for line in told if line.kind == "factor")


def test_formula_numbers_and_words_of_a_composition():
    found = example("one_right")
    told = token("a3po;base=dapo;also=adora_amplify;rho_positive=3", found, 0, 5)
    base, kept, a3po, adora, total = (told[key] for key in ("grpo", "selected", "a3po", "adora_amplify", "advantage"))
    assert (base.label, base.formula, base.value) == ("GRPO", "A = (R − m) / (s + ε)", "+1.5")
    assert base.numbers == "(1 − 0.25) / 0.5 = 1.5" and base.words.startswith("reward minus the mean")
    assert (kept.label, kept.value, kept.idle, kept.words) == (
        "in the loss", "× 1", True, "kept: the rewards of its group differ",
    )  # fmt: skip
    assert (a3po.label, a3po.value, a3po.idle) == ("A3PO", "× 3", False)
    assert "max(3 − 0.005 × 0, 1)" in a3po.numbers and "schedule" not in a3po.numbers
    assert "p = 0.05 is among the 1 lowest of the 6 tokens of this correct response" in a3po.words
    assert adora.value == "× 2" and adora.words.startswith("favorable prompt")
    assert total.formula == "A = GRPO × in the loss × A3PO × ADORA amplify"
    assert total.numbers == "1.5 × 1 × 3 × 2 = 9" and total.kind == "total reinforced"


def test_a_schedule_is_named_where_it_is_used():
    _, found, _ = golden(0)
    a3po = token("adora_amplify;schedule=until;schedule_steps=50", replace(found, step=10))["adora_amplify"]
    assert "schedule until" in a3po.numbers and "schedule steps 50" in a3po.numbers


def test_conventions_can_be_told_apart():
    found = example("one_right")
    values = [token(spec, found)["grpo"].value for spec in ("grpo;eps=0.0001", "grpo;ddof=0")]
    assert values == ["+1.4997", "+1.732"]
    assert token("grpo;eps=0.0001", found)["grpo"].numbers == "(1 − 0.25) / 0.5 ≈ 1.5"
    assert token("dr_grpo", found)["dr_grpo"].numbers == "1 − 0.25 = 0.75"


def test_the_mass_matched_control_is_a_line_of_its_own():
    told = token("adora_code_llm;mass_matched=1", example("adora_edges"), 4, 0)
    assert told["mass_matched"].label == "mass-matched" and "advantage mass" in told["mass_matched"].words
    assert told["mass_matched"].raw > 1


def test_before_the_update_the_ratio_is_one():
    told = token("grpo", example("longest_wrong"), 3, 2)
    assert told["loss_term"].numbers == "−min(1 × −0.866, 1 × −0.866) = 0.866"
    assert told["loss_term"].words.startswith("r = 1 before the update; clip(r) is held between 1 − 0.2 and 1 + 0.2")
    assert told["loss_weight"].numbers == "1 / (4 × 15) = 0.0167" and told["loss_weight"].words.startswith(
        "adds +0.014"
    )
    fixed = token("dr_grpo", example("longest_wrong"), 3, 2)["loss_weight"]
    assert (fixed.formula, fixed.numbers) == ("1 / (rollouts × length limit)", "1 / (4 × 16) = 0.0156")
    assert token("dapo", example("longest_wrong"), 3, 2)["loss_weight"].numbers == "1 / 30 = 0.0333"


@pytest.mark.parametrize(
    ("spec", "r", "value", "clipped"),
    [
        ("grpo", 1.5, -1.2, True),  # A = +1: held at 1.2
        ("grpo", 0.5, -0.5, False),
        ("grpo;loss.clip_high=0.6", 1.5, -1.5, False),
        ("grpo;ddof=1;loss.objective=ratio", 1.5, -1.5, False),
    ],
)
def test_the_clip_bound_is_said(spec, r, value, clipped):
    pair = batch([0, 0, 0], [1, 0, 0.5], [2, 2, 2])
    ratio = np.full((3, 2), r)
    term = token(spec + ";eps=0", pair, 0, 0, ratio)["loss_term"]
    assert term.raw == pytest.approx(value) and ("clipped: no gradient" in term.words) == clipped
    assert "r of the run's own update" in term.words


def test_dual_clip_bounds_a_suppressed_token():
    pair = batch([0, 0, 0], [1, 0, 0.5], [2, 2, 2])
    told = token("grpo;eps=0;loss.dual_clip=3", pair, 1, 0, np.full((3, 2), 5.0))["loss_term"]
    assert told.raw == pytest.approx(3) and "at most c |A|" in told.formula and "clipped: no gradient" in told.words


def test_a_token_without_a_gradient_pass_says_so():
    pair = batch([0, 0], [1, 0], [2, 2])
    told = token("grpo", pair, 0, 0, np.full((2, 2), np.nan))["loss_term"]
    assert "no gradient pass here" in told.words and told.raw == pytest.approx(-told_advantage(pair))


def told_advantage(pair):
    return answer(build("grpo"), pair).trace.advantage[0, 0]


def test_dropped_tokens_have_no_term():
    told = token("psr", example("one_right"), 1, 0)
    assert told["selected"].words == "dropped: a wrong response, only correct ones are trained on"
    assert "loss_term" not in told and told["loss_weight"].value == "× 0" and told["advantage"].kind == "total"
    assert "dropped" in told["loss_weight"].words


def test_objectives_over_log_probs_need_them():
    bare = batch([0, 0], [1, 0], [2, 2], sampler_logprob=None, trainer_logprob=None)
    told = token("rloo", bare)
    assert told["loss_term"].raw is None and "log-prob, which this batch doesn't have" in told["loss_term"].words
    one = batch([0, 0], [1, 0], [2, 2])
    assert token("rloo", one)["loss_term"].raw == pytest.approx(-1 * one.trainer_logprob[0, 0])


def test_penalties_join_the_term():
    pair = batch([0, 0], [1, 0], [2, 2], trainer_logprob=np.log([[0.5, 0.2], [0.3, 0.01]]))
    pair = replace(pair, proxy_logprob=np.log([[0.6, 0.3], [0.4, 0.02]]), proxy_min_p=0.02)
    advantage = answer(build("lp_reg"), pair).trace.advantage[1, 1]
    told = token("lp_reg;coefficient=2", pair, 1, 1)
    k3 = 0.02 / 0.01 - math.log(0.02 / 0.01) - 1
    assert told["loss_term"].raw == pytest.approx(-advantage + 2 * k3)
    assert told["lp_reg"].label == "Lp-Reg" and told["lp_reg"].value == "2 × distance" and not told["lp_reg"].idle
    other = token("lp_reg;coefficient=2", pair, 1, 0)
    assert other["lp_reg"].value == "none" and other["lp_reg"].idle and other["loss_term"].raw == -advantage
    filtered = replace(pair, proxy_logprob=np.full((2, 2), PROXY_DROPPED))
    held = token("lp_reg;coefficient=2", filtered, 1, 1)["loss_term"]
    assert held.raw == pytest.approx(-advantage) and "no penalty" in held.words
    cov = token("kl_cov;ratio=1;coefficient=3", pair, 0, 1, np.full((2, 2), 1.5))["loss_term"]
    assert cov.raw == pytest.approx(-1.5 * told_advantage(pair) + 3 * math.log(1.5))
    assert cov.formula == "−r A + c |log r|"


def test_ledgers_are_plain_data_around_the_token():
    found = example("adora_edges")
    answers = [answer(Spec.parse(spec).build(), found) for spec in EXAMPLES["adora_edges"].methods]
    got = ledgers(answers, found, 1, 4, row=7, window=2)
    assert json.loads(json.dumps(got, allow_nan=False)) == got
    assert (got["row"], got["start"], len(got["tokens"])) == (7, 2, 5)
    assert [len(methods) for methods in got["tokens"]] == [4] * 5
    for t, methods in enumerate(got["tokens"], 2):
        for own, told in zip(answers, methods, strict=True):
            assert next(line for line in told if line["id"] == "advantage")["raw"] == own.trace.advantage[1, t]
    assert ledgers(answers, found, 1, 0, row=0, window=50)["start"] == 0
    assert len(ledgers(answers, found, 1, 8, row=0, window=50)["tokens"]) == 9


def test_a_token_that_is_not_there_is_refused():
    found = example("one_right")
    with pytest.raises(IndexError, match="no token 6 of rollout 0"):
        lines(answer(build("grpo"), found), found, 0, 6)
