import numpy as np
import pytest

from core.advantage import AdvantageError, Loss, Rule, bases, build, compute, factor_columns, recipes
from core.advantage.registry import BASES, WEIGHTS
from tests.core.advantage.batches import batch

NAMES = {
    "grpo", "dapo", "dr_grpo", "psr", "nsr", "psr_pm1", "nsr_pm1", "w_reinforce", "polarity", "token_shaping", "a3po",
    "adora_amplify", "adora_attenuate", "adora_code_llm", "adora_code_vlm", "rloo", "reinforce_pp",
    "reinforce_pp_baseline", "gspo", "cispo", "pass_at_k", "fork_tokens", "entropy_advantage", "kl_cov", "clip_cov",
    "lp_reg", "a_grae", "pm1",
}  # fmt: skip


def test_all_methods_are_there():
    assert set(recipes()) >= NAMES
    assert set(bases()) == {name for name, recipe in recipes().items() if recipe.base}


@pytest.mark.parametrize("name", recipes())
def test_recipes_are_fit_to_be_shown(name):
    recipe = recipes()[name]
    assert recipe.summary.endswith(".") and recipe.label and recipe.source and recipe.family
    assert len({param.name for param in recipe.params}) == len(recipe.params)
    for param in recipe.params:
        assert param.doc.endswith(("[P]", "[C]", "[S]", "[I]")), param.name
        assert param.choices if param.kind == "choice" else param.low is not None and param.high is not None
        if param.default is not None:
            assert build(name, params={param.name: param.default})
    if recipe.weights and recipe.on:
        assert recipes()[recipe.on].base is not None


@pytest.mark.parametrize("name", recipes())
def test_defaults_are_written_out(name):
    method = build(name)
    assert set(method.base.params) == {param.name for param in BASES[method.base.name].params}
    for rule in method.weights:
        assert set(rule.params) == {param.name for param in WEIGHTS[rule.name].params}


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("grpo", Loss(aggregation="sequence_mean", clip_low=0.2, clip_high=0.2)),
        ("dapo", Loss(aggregation="token_mean", clip_low=0.2, clip_high=0.28)),
        ("dr_grpo", Loss(aggregation="fixed_length", clip_low=0.2, clip_high=0.2)),
        ("psr", Loss(aggregation="sequence_mean")),
        ("a3po", Loss(aggregation="token_mean", clip_high=0.28)),
        ("fork_tokens", Loss(aggregation="token_mean", clip_high=0.28)),
        ("rloo", Loss(objective="reinforce", aggregation="fixed_length")),
        ("gspo", Loss(objective="gspo", aggregation="sequence_mean", clip_low=3e-4, clip_high=4e-4)),
        ("cispo", Loss(objective="cispo", clip_low=1.0, clip_high=0.28)),
        ("kl_cov", Loss(objective="ratio", clip_high=0.28)),
        ("clip_cov", Loss(clip_low=1.0, clip_high=1.0)),
        ("lp_reg", Loss(clip_low=1.0, clip_high=9.0)),
    ],
)
def test_losses(name, loss):
    assert build(name).loss == loss


def test_a_chosen_base_keeps_its_averaging_and_an_objective_without_bounds_gets_none():
    assert build("lp_reg", base="dr_grpo").loss == Loss(aggregation="fixed_length", clip_low=1.0, clip_high=9.0)
    assert build("lp_reg", base="rloo").loss == build("rloo").loss
    assert build("grpo", also=["lp_reg"]).loss.clip_high == 9.0
    assert build("clip_cov", base="cispo").loss == build("cispo").loss
    assert build("clip_cov", base="gspo").loss == build("gspo").loss
    assert build("clip_cov", also=["lp_reg"], loss={"clip_high": 2.0}).loss.clip_high == 2.0


@pytest.mark.parametrize("name", recipes())
def test_every_loss_that_a_recipe_sets_has_a_source(name):
    recipe = recipes()[name]
    if not recipe.weights or recipe.loss_changes:
        assert recipe.loss_source.rstrip("]").endswith(("[P", "[C", "[S", "[I"))


def test_a_base_brings_its_loss_and_dynamic_sampling():
    method = build("adora_amplify", base="dapo")
    assert method.loss == build("dapo").loss and method.dynamic_sampling
    assert method.base == build("dapo").base
    plain = build("a3po", base="dr_grpo")
    assert not plain.dynamic_sampling and plain.loss.aggregation == "fixed_length"


def test_adora_on_dapo_and_a3po_under_adora_are_only_configs():
    two = batch([0, 0, 0, 1, 1, 1], [1, 0, 0, 1, 1, 0], [9, 5, 6, 3, 4, 8])
    both = compute(build("a3po", also=["adora_amplify"]), two)
    assert [factor.id for factor in both.factors] == ["selected", "a3po", "adora_amplify"]
    a3po, adora = compute(build("a3po"), two), compute(build("adora_amplify", base="dapo"), two)
    weight = adora.factors[-1].spread(two)
    assert set(weight[:, 0]) == {1, 2}
    np.testing.assert_allclose(both.advantage, a3po.advantage * weight)
    np.testing.assert_allclose(adora.advantage, compute(build("dapo"), two).advantage * weight)


@pytest.mark.parametrize(
    ("arguments", "label"),
    [
        ({"name": "grpo"}, "GRPO"),
        ({"name": "psr"}, "PSR"),
        ({"name": "psr", "base": "grpo"}, "PSR"),
        ({"name": "a3po"}, "A3PO on DAPO"),
        ({"name": "a3po", "base": "grpo"}, "A3PO on GRPO"),
        ({"name": "adora_amplify", "base": "dapo"}, "ADORA amplify on DAPO"),
        ({"name": "a3po", "also": ["adora_amplify"]}, "A3PO × ADORA amplify on DAPO"),
        ({"name": "dr_grpo", "also": ["a3po"]}, "A3PO on Dr. GRPO"),
    ],
)
def test_labels(arguments, label):
    assert build(**arguments).label == label


def test_params_by_short_and_full_name():
    short = build("a3po", params={"rho_positive": 3, "eps": 1e-4})
    full = build("a3po", params={"a3po.rho_positive": 3, "grpo.eps": 1e-4})
    assert short == full and short.weights[0].params["rho_positive"] == 3 and short.base.params["eps"] == 1e-4
    (rule,) = build("w_reinforce", params={"w_reinforce.lambda": 0.5}).weights
    assert rule == Rule("polarity", dict(rule.params) | {"negative": 1.0, "positive": 0.5})
    twice = build("adora_amplify", also=["adora_attenuate"], params={"adora_attenuate.weight": 0.5})
    assert [rule.params["weight"] for rule in twice.weights] == [2.0, 0.5]
    nested = {"adora_attenuate": {"weight": 0.5}, "adora_amplify.weight": 2}
    assert build("adora_amplify", also=["adora_attenuate"], params=nested) == twice


def test_the_code_variants_own_eps():
    assert build("adora_code_vlm").base.params["eps"] == 1e-9
    assert build("adora_code_vlm", base="dapo").base.params["eps"] == 1e-9
    assert build("adora_code_vlm", base="dr_grpo").base.params == {}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "gpro"}, "there is no method 'gpro'; did you mean grpo?"),
        ({"name": "a3p0"}, "did you mean a3po?"),
        ({"name": "zzz"}, "choose from grpo, dapo"),
        ({"name": None}, "there is no method None"),
        ({"name": ["grpo"]}, "there is no method"),
        ({"name": "psr", "base": "dappo"}, "there is no base rule 'dappo'; did you mean dapo?"),
        ({"name": "psr", "base": "nsr"}, "nsr is no base rule"),
        ({"name": "psr", "base": "psr"}, "psr is no base rule"),
        ({"name": "grpo", "base": "dapo"}, "grpo is itself a base rule: name dapo as the method"),
        ({"name": "a3po", "also": ["dapo"]}, "dapo brings no weights"),
        ({"name": "a3po", "also": ["nope"]}, "there is no method 'nope'"),
        ({"name": "a3po", "also": ["a3po"]}, "A3PO is named twice: a weight can multiply in once"),
        ({"name": "psr", "also": ["nsr"]}, "PSR and NSR both bring selection: a weight can multiply in once"),
        ({"name": "A3PO on"}, "did you mean a3po?"),
        ({"name": "KL_COV"}, "did you mean kl_cov?"),
        (
            {"name": "a3po", "params": {"schedule": "linear", "schedule_steps": 9}},
            "a3po.schedule is linear, but ρ falls to 1 by a3po.alpha already: set alpha to 0",
        ),
        ({"name": "a3po", "params": {"rho_postive": 2}}, "no parameter 'rho_postive'.*did you mean rho_positive"),
        ({"name": "a3po", "params": {"rho_positive": 0.5}}, "rho_positive must be between 1 and 10, but is 0.5"),
        ({"name": "a3po", "params": {"rho_positive": "high"}}, "rho_positive must be a number, but is 'high'"),
        ({"name": "a3po", "params": {"rho_positive": True}}, "must be a number"),
        ({"name": "a3po", "params": {"rho_positive": None}}, "must be a number"),
        ({"name": "a3po", "params": {"rho_positive": float("nan")}}, "finite"),
        (
            {"name": "a3po", "params": {"rho_positive": 10**400}},
            "rho_positive must be a finite number, but is too large",
        ),
        ({"name": "a3po", "params": {"ratio": 0.1, "a3po.ratio": 0.2}}, "a3po.ratio is set twice"),
        ({"name": "grpo", "params": {"ddof": 0.5}}, "ddof must be a whole number, but is 0.5"),
        ({"name": "token_shaping", "params": {"metric": "p"}}, "metric must be prob or entropy, but is 'p'"),
        ({"name": "psr", "params": {"keep": "negative"}}, "no parameter 'keep'"),
        ({"name": "w_reinforce", "params": {"negative": 2}}, "no parameter 'negative'"),
        (
            {"name": "adora_amplify", "also": ["adora_attenuate"], "params": {"weight": 1}},
            "weight could mean adora_amplify.weight or adora_attenuate.weight: write it in full",
        ),
        (
            {"name": "fork_tokens", "base": "gspo"},
            "fork_tokens trains on single tokens, and the objective gspo has one ratio",
        ),
        ({"name": "fork_tokens", "loss": {"objective": "gspo"}}, "fork_tokens trains on single tokens"),
        ({"name": "lp_reg", "base": "gspo"}, "lp_reg holds single tokens in place"),
        ({"name": "kl_cov", "base": "cispo"}, "KL-Cov brings the objective ratio, and CISPO is the objective cispo"),
        ({"name": "kl_cov", "also": ["lp_reg"]}, "kl_cov and lp_reg each put a penalty"),
        ({"name": "lp_reg", "also": ["clip_cov"]}, "Lp-Reg brings clip_high 9 and Clip-Cov 1: set loss.clip_high"),
        ({"name": "clip_cov", "params": {"cov_low": 6}}, "clip_cov.cov_low is 6, which is not below cov_high, 5"),
        (
            {"name": "rloo", "loss": {"clip_low": 0.1}},
            "loss.clip_low is set, but the objective reinforce does not read it",
        ),
        (
            {"name": "cispo", "loss": {"dual_clip": 3}},
            "loss.dual_clip is set, but the objective cispo does not read it",
        ),
        ({"name": "fork_tokens", "params": {"schedule": "linear"}}, "schedule must be constant or until"),
        (
            {"name": "polarity", "params": {"schedule": "linear"}},
            "polarity.schedule is linear: give polarity",
        ),
        (
            {"name": "a3po", "params": {"schedule": "until", "schedule_steps": 9, "schedule_fraction": 0.5}},
            "schedule is until: give a3po.schedule_steps or a3po.schedule_fraction, not both",
        ),
        (
            {"name": "polarity", "params": {"schedule": "decay"}},
            "polarity.schedule is decay: give polarity",
        ),
        (
            {"name": "polarity", "params": {"schedule": "decay", "schedule_fraction": 0.5}},
            "polarity.schedule_fraction says nothing where polarity.schedule is decay: linear fades over",
        ),
        ({"name": "a3po", "params": {"schedule_steps": 9}}, "schedule_steps says nothing where a3po.schedule is const"),
        ({"name": "grpo", "loss": {"clip": 0.1}}, "the loss has no field 'clip'; did you mean clip_"),
        ({"name": "grpo", "loss": {"aggregation": "mean"}}, "loss.aggregation must be token_mean, sequence_mean or"),
        ({"name": "grpo", "loss": {"kl": -1}}, "loss.kl must be between 0 and 1e6, but is −1"),
    ],
)
def test_refusals_are_one_sentence_that_names_the_field(arguments, words):
    with pytest.raises(AdvantageError, match=words) as caught:
        build(**arguments)
    assert "\n" not in str(caught.value)


def test_loss_overrides():
    loss = build("grpo", loss={"aggregation": "token_mean", "dual_clip": 3.0, "kl": 0.01}).loss
    assert (loss.aggregation, loss.dual_clip, loss.kl, loss.clip_low) == ("token_mean", 3.0, 0.01, 0.2)


@pytest.mark.parametrize("name", recipes())
@pytest.mark.parametrize("base", [None, "dapo"])
def test_factor_columns_are_those_of_compute(name, base):
    method = build(name, base=base if recipes()[name].weights else None)
    found = compute(method, batch([0] * 4 + [1] * 4, [1, 0, 0, 1, 1, 1, 1, 1])).factors
    assert list(factor_columns(method).items()) == [(factor.id, factor.per) for factor in found]


def test_columns_come_in_the_order_of_the_factors():
    method = build("kl_cov", base="dapo", also=["clip_cov", "a3po", "fork_tokens", "psr"], mass_matched=True)
    found = compute(method, batch([0, 0, 1, 1], [1, 0, 1, 0])).factors
    assert list(factor_columns(method).items()) == [(factor.id, factor.per) for factor in found]
    assert [factor.id for factor in found] == ["selected", "a3po", "clip_cov", "mass_matched"]
