"""The slots of the What-if page: what they start from, how far their sliders reach, what survives a change."""

from __future__ import annotations

import pytest

from app.param_forms import places, settled
from app.slot_cards import reach
from app.slots import beside, falls, fitting
from core.advantage import recipes
from core.counterfactual import Spec


@pytest.mark.parametrize(
    ("own", "other"),
    [
        (Spec("a3po"), "dapo"), (Spec("a3po", base="rloo"), "rloo"), (Spec("adora_amplify"), "grpo"),
        (Spec("grpo"), "a3po;base=grpo"), (Spec("dr_grpo"), "a3po;base=dr_grpo"),
        (Spec("grpo", also=("a3po",)), "grpo"), (Spec("nobody"), "grpo"),
    ],
)  # fmt: skip
def test_beside_a_method_stands_what_tells_most(own, other):
    assert beside(own) == other
    Spec.parse(other).build()


@pytest.mark.parametrize(
    ("limits", "found"),
    [
        ((1, 10, 2.0, 2.0), (1.0, 10.0)),
        ((0, 1, 0.2, 0.2), (0.0, 1.0)),
        ((0, 1, 0.005, 0.005), (0.0, 0.05)),  # a slider over the whole range could not set it
        ((0, 1, 0.005, 0.4), (0.0, 0.4)),  # what the address says is always reached
        ((0, None, 0.5, 0.5), (0.0, 5.0)),
        ((-100, 100, 1.0, -40), (-40.0, 10.0)),
    ],
)
def test_a_slider_reaches_what_is_useful(limits, found):
    low, high, step = reach(*limits)
    assert (low, high) == pytest.approx(found)
    assert 40 <= (high - low) / step <= 200


def test_whole_numbers_move_by_one():
    assert reach(1, 1024, 4, 4, whole=True) == (1, 40, 1)
    assert reach(0, 1, 1, 1, whole=True) == (0, 1, 1)


def test_every_parameter_has_a_slider_around_its_default():
    for recipe in recipes().values():
        for param in recipe.params:
            if isinstance(param.default, int | float) and not isinstance(param.default, bool):
                low, high, step = reach(param.low, param.high, param.default, param.default, param.kind == "int")
                assert low <= param.default <= high and step > 0, (recipe.name, param.name)


def test_a_change_keeps_what_still_fits():
    spec = Spec("a3po", params={"rho_positive": 3, "eps": 1e-4}, base="dr_grpo")  # Dr. GRPO divides by nothing
    assert fitting(spec).params == {"rho_positive": 3}
    assert fitting(Spec("a3po", params={"rho_positive": 3, "eps": 1e-4})).params == {"rho_positive": 3, "eps": 1e-4}


def test_what_the_base_brings_anyway_is_not_said():
    spec = Spec("a3po", loss={"clip_high": 0.28, "clip_low": 0.1}, dynamic_sampling=True)
    assert fitting(spec) == Spec("a3po", loss={"clip_low": 0.1})
    assert fitting(Spec("grpo", dynamic_sampling=True)).dynamic_sampling is True


A3PO = places(recipes()["a3po"], "", ())["a3po"]


@pytest.mark.parametrize(
    ("before", "after", "changed", "found"),
    [
        ({"decay_fraction": 1.0}, {"decay_fraction": 1.0, "alpha": 0.02}, "alpha", {"alpha": 0.02}),
        ({"decay_fraction": 1.0}, {"decay_fraction": 1.0}, "alpha", {}),  # back at the default, which is not said
        ({"alpha": 0.02}, {"alpha": 0.02, "decay_fraction": 0.5}, "decay_fraction", {"decay_fraction": 0.5}),
        ({"decay_fraction": 1.0}, {"decay_fraction": 1.0, "schedule": "linear", "schedule_fraction": 1.0}, "schedule",
         {"schedule": "linear", "schedule_fraction": 1.0, "alpha": 0.0}),
        ({"alpha": 0.0, "schedule": "linear", "schedule_steps": 9}, {"alpha": 0.0}, "schedule", {}),
        ({"alpha": 0.0}, {"alpha": 0.0, "schedule": "until", "schedule_steps": 9}, "schedule",
         {"alpha": 0.0, "schedule": "until", "schedule_steps": 9}),
        ({"alpha": 0.0, "schedule": "decay", "schedule_alpha": 0.1},
         {"alpha": 0.1, "schedule": "decay", "schedule_alpha": 0.1}, "alpha", {"alpha": 0.1}),
        ({}, {"ratio": 0.5}, "ratio", {"ratio": 0.5}),
    ],
)  # fmt: skip
def test_what_a_change_contradicts_gives_way(before, after, changed, found):
    assert settled(before, after, A3PO, changed) == found
    Spec("a3po", params=found).build()


def test_a_fraction_of_the_run_says_what_rho_loses():
    assert falls(A3PO, {"decay_fraction": 0.5, "rho_negative": 5}, 100) == pytest.approx((1 / 50, 4 / 50))
    assert falls(A3PO, {}, 100) is None and falls(A3PO, {"decay_fraction": 0.5}, None) is None
    assert falls(A3PO, {"decay_fraction": "much"}, 100) is None
