"""Methods on the Launch page: which, how they compose, their parameters, schedules and controls."""

from __future__ import annotations

import json

import pytest

from core.advantage import recipes
from tests.app.conftest import texts
from tests.app.launch_form import launched, parameters, widget, widget_labels


def test_several_methods_and_seeds_make_an_experiment(no_runs, open_page):
    at = open_page("launch", preset="grpo")
    widget(at.multiselect, "draft:methods").set_value(["grpo", "a3po"]).run()
    widget(at.multiselect, "draft:seeds").set_value(["0", "1", "2"]).run()
    assert not at.exception
    assert "6\u00a0runs: 2\u00a0methods × 3\u00a0seeds" in texts(at)
    made = launched(at)
    assert [method.name for method in made.methods] == ["grpo", "a3po"]
    assert made.seeds == (0, 1, 2)


def test_parameters_come_from_the_recipe_and_are_written_into_it(no_runs, open_page):
    at = open_page("launch", set='methods=["a3po"]')
    own = {param.target for param in recipes()["a3po"].params if param.group != "schedule"}
    assert "a3po.rho_positive" in own and "grpo.eps" in own
    assert parameters(at) == own | {"a3po.schedule"}
    widget(at.number_input, "draft:methods.0.a3po.rho_positive").set_value(3.5).run()
    assert launched(at).methods[0].set == {"rho_positive": 3.5}
    widget(at.number_input, "draft:methods.0.a3po.rho_positive").set_value(2.0).run()
    assert launched(at).methods[0].set == {}


def test_a_base_rule_and_further_weights_compose(no_runs, open_page):
    at = open_page("launch", set='methods=["a3po"]')
    widget(at.multiselect, "draft:methods.0.also").set_value(["adora_amplify"]).run()
    widget(at.selectbox, "draft:methods.0.base").set_value("dr_grpo").run()
    assert not at.error
    method = launched(at).methods[0]
    assert (method.base, method.also) == ("dr_grpo", ("adora_amplify",))
    widget(at.number_input, "draft:methods.0.adora_amplify.weight").set_value(3.0).run()
    assert launched(at).methods[0].set == {"adora_amplify.weight": 3.0}
    assert "grpo.eps" not in parameters(at)


def test_any_number_of_weights_multiplies_in_and_each_keeps_its_parameters(no_runs, open_page):
    at = open_page("launch", set='methods=[{"name": "a3po", "also": ["adora_amplify", "polarity", "fork_tokens"]}]')
    assert not at.error
    assert "A3PO × ADORA amplify × Polarity weights × Fork tokens on DAPO" in widget_labels(at.expander)
    shown = parameters(at)
    for recipe in ("a3po", "adora_amplify", "polarity", "fork_tokens"):
        rule = recipes()[recipe].weights[0].name
        assert {p.target for p in recipes()[recipe].params if p.target.startswith(f"{rule}.") and not p.group} <= shown
        assert f"{rule}.schedule" in shown
    widget(at.number_input, "draft:methods.0.fork_tokens.ratio").set_value(0.3).run()
    widget(at.number_input, "draft:methods.0.a3po.ratio").set_value(0.1).run()
    assert launched(at).methods[0].set == {"fork_tokens.ratio": 0.3, "a3po.ratio": 0.1}


def test_parameters_keep_their_values_while_the_composition_changes(no_runs, open_page):
    at = open_page("launch", set='methods=["a3po"]')
    widget(at.number_input, "draft:methods.0.a3po.ratio").set_value(0.3).run()
    widget(at.number_input, "draft:methods.0.grpo.eps").set_value(0.001).run()
    also = "draft:methods.0.also"
    widget(at.multiselect, also).set_value(["fork_tokens"]).run()
    assert launched(at).methods[0].set == {"a3po.ratio": 0.3, "a3po.eps": 0.001}
    widget(at.number_input, "draft:methods.0.fork_tokens.ratio").set_value(0.4).run()
    widget(at.multiselect, also).set_value([]).run()
    assert launched(at).methods[0].set == {"ratio": 0.3, "eps": 0.001}
    widget(at.selectbox, "draft:methods.0.base").set_value("dr_grpo").run()
    assert launched(at).methods[0].set == {"ratio": 0.3}


def test_a_refused_combination_says_why_before_anything_starts(no_runs, open_page):
    at = open_page("launch", set='methods=["fork_tokens"]')
    widget(at.selectbox, "draft:methods.0.base").set_value("gspo").run()
    assert not at.exception
    (error,) = at.error
    assert "fork" in error.value and "one ratio for a whole response" in error.value
    assert widget(at.button, "start").disabled
    widget(at.selectbox, "draft:methods.0.base").set_value("cispo").run()
    assert not at.error


def test_a_methods_control_is_one_click_away(no_runs, open_page):
    at = open_page("launch", preset="adora_on_dapo")
    widget(at.button, "draft:methods.0.control").click().run()
    assert not at.error
    plain, control = launched(at).methods
    assert (plain.mass_matched, control.mass_matched) == (False, True)
    assert control.model_copy(update={"mass_matched": False}) == plain
    assert "draft:methods.0.control" not in [button.key for button in at.button]
    assert "ADORA amplify on DAPO, mass-matched" in widget_labels(at.expander)
    widget(at.toggle, "draft:methods.1.mass_matched").set_value(False).run()
    assert "twice" in at.error[0].value


def test_the_switch_says_what_the_control_is_for(no_runs, open_page):
    at = open_page("launch", preset="a3po")
    switch = widget(at.toggle, "draft:methods.0.mass_matched")
    assert "only a larger learning rate" in switch.help and "AdamW cancels" in switch.help
    switch.set_value(True).run()
    assert launched(at).methods[0].mass_matched
    widget(at.toggle, "draft:methods.0.mass_matched").set_value(False).run()
    assert not launched(at).methods[0].mass_matched
    bare = open_page("launch", preset="grpo")
    assert "draft:methods.0.mass_matched" not in [toggle.key for toggle in bare.toggle]


def test_a_schedule_asks_for_what_it_needs_and_stays_valid(no_runs, open_page):
    at = open_page("launch", set='methods=[{"name": "adora_amplify", "base": "dapo", "also": ["a3po"]}]')
    prefix = "draft:methods.0.adora_amplify"

    def asked() -> set[str]:
        return {name for name in parameters(at) if name.startswith("adora_amplify.schedule_")}

    assert asked() == set()
    widget(at.selectbox, f"{prefix}.schedule").set_value("until").run()
    assert asked() == {"adora_amplify.schedule_steps", "adora_amplify.schedule_fraction"}
    assert launched(at).methods[0].set == {"adora_amplify.schedule": "until", "adora_amplify.schedule_fraction": 0.5}
    widget(at.number_input, f"{prefix}.schedule_steps").set_value(30).run()
    assert launched(at).methods[0].set == {"adora_amplify.schedule": "until", "adora_amplify.schedule_steps": 30}
    widget(at.selectbox, f"{prefix}.schedule").set_value("decay").run()
    assert asked() == {"adora_amplify.schedule_alpha"}
    assert launched(at).methods[0].set == {"adora_amplify.schedule": "decay", "adora_amplify.schedule_alpha": 0.005}
    assert not at.error
    widget(at.selectbox, f"{prefix}.schedule").set_value("constant").run()
    assert launched(at).methods[0].set == {}


def test_a_selection_can_only_end(no_runs, open_page):
    at = open_page("launch", set='methods=["fork_tokens"]')
    assert widget(at.selectbox, "draft:methods.0.fork_tokens.schedule").options == [
        "constant: all the run",
        "until: in full, then not at all",
    ]


@pytest.mark.parametrize(
    "said",
    [
        "set: {rho_positive: 1%s}" % ("0" * 400),
        "set: {rho_positive: .inf}",
        "set: {schedule: [1]}",
        "also: [fork_tokens], set: {fork_tokens.schedule: decay}",
        "also: [[1], {}]",
        "base: [1]",
        "mass_matched: 7",
    ],
)
def test_an_absurd_method_is_one_sentence(no_runs, open_page, said):
    at = open_page("launch", set=f"methods=[{{name: a3po, {said}}}]")
    assert not at.exception
    assert len(at.error) == 1
    assert "Something went wrong" not in at.error[0].value


def test_every_recipe_can_be_composed_on_the_page(no_runs, open_page):
    at = open_page("launch", set=f"methods={json.dumps(list(recipes()))}")
    assert not at.exception
    assert not at.error
    assert [method.name for method in launched(at).methods] == list(recipes())


def test_a_variant_differs_from_its_original(no_runs, open_page):
    at = open_page("launch", set='methods=["a3po"]')
    widget(at.button, "draft:methods.0.variant").click().run()
    assert not at.error
    first, second = launched(at).methods
    assert first.name == second.name == "a3po"
    assert first.set != second.set


def test_a3pos_ways_to_fall_clear_each_other(no_runs, open_page):
    """alpha, decay_fraction and a falling schedule each say how fast rho falls: the last one chosen counts."""
    at = open_page("launch", preset="a3po", set='methods=[{"name": "a3po", "set": {"decay_fraction": 0.5}}]')
    widget(at.number_input, "draft:methods.0.a3po.alpha").set_value(0.01).run()
    assert not at.error and launched(at).methods[0].set == {"alpha": 0.01}
    widget(at.number_input, "draft:methods.0.a3po.decay_fraction").set_value(0.8).run()
    assert not at.error and launched(at).methods[0].set == {"decay_fraction": 0.8}
    widget(at.selectbox, "draft:methods.0.a3po.schedule").set_value("linear").run()
    assert not at.error and launched(at).methods[0].set["alpha"] == 0
    assert "decay_fraction" not in launched(at).methods[0].set
