import json
from dataclasses import replace

import pytest

from core.advantage import AdvantageError, build, recipes
from core.advantage.stored import method_from_json, method_to_json


@pytest.mark.parametrize("name", recipes())
@pytest.mark.parametrize("matched", [False, True])
def test_every_method_comes_back(name, matched):
    method = build(name, mass_matched=matched)
    assert method_from_json(json.loads(json.dumps(method_to_json(method)))) == method


def test_a_composition_comes_back_with_its_numbers():
    method = build(
        "a3po",
        base="dr_grpo",
        also=["adora_amplify", "lp_reg"],
        params={"rho_positive": 3, "adora_amplify.schedule": "until", "adora_amplify.schedule_fraction": 0.5},
        loss={"kl": 0.01, "dual_clip": 3},
        dynamic_sampling=True,
    )
    assert method_from_json(method_to_json(method)) == method


def test_a_parameter_that_came_later_has_its_default():
    method = build("a3po")
    data = method_to_json(method)
    del data["weights"][0]["params"]["p_below"], data["loss"]["kl"]
    assert method_from_json(data) == method


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"base": {"name": "gpro", "params": {}}}, "there is no rule 'gpro'; did you mean grpo?"),
        ({"base": {"name": "grpo", "params": {"eps": -1}}}, "grpo.eps must be between 0 and 1, but is −1"),
        ({"weights": [{"name": "os.system", "params": {}}]}, "there is no rule 'os.system'"),
        ({"weights": None}, "a stored method has name, label"),
        ({"loss": 3}, "a stored method has name, label"),
    ],
)
def test_what_is_no_method_is_one_sentence(change, words):
    with pytest.raises(AdvantageError, match=words):
        method_from_json({**method_to_json(build("grpo")), **change})


def test_a_stored_loss_is_its_own():
    method = replace(build("kl_cov"), loss=build("grpo").loss)
    assert method_from_json(method_to_json(method)).loss.aggregation == "sequence_mean"
