from dataclasses import replace

import numpy as np
import pytest

from core.advantage import build, compute
from tests.core.advantage.batches import batch

ONE = batch([0, 0, 0, 0], [1, 0, 0, 0], [9, 3, 4, 5], total_steps=200)


def weight(step, name="adora_amplify", **params):
    trace = compute(build(name, params=params), replace(ONE, step=step))
    return trace.factors[0].spread(ONE)[0, 0], trace


@pytest.mark.parametrize(
    ("params", "values"),
    [
        ({}, {0: 2, 500: 2}),
        ({"schedule": "until", "schedule_steps": 50}, {0: 2, 49: 2, 50: 1, 500: 1}),
        ({"schedule": "until", "schedule_fraction": 0.25}, {49: 2, 50: 1}),
        ({"schedule": "linear", "schedule_steps": 50}, {0: 2, 25: 1.5, 50: 1, 80: 1}),
        ({"schedule": "linear", "schedule_fraction": 0.5}, {50: 1.5, 100: 1}),
        ({"schedule": "decay", "schedule_alpha": 0.005}, {0: 2, 100: 1.5, 200: 1, 300: 1}),
        ({"weight": 0.2, "schedule": "decay", "schedule_alpha": 0.005}, {0: 0.2, 100: 0.7, 160: 1, 300: 1}),
    ],
)
def test_a_prompt_weight_fades(params, values):
    for step, value in values.items():
        found, trace = weight(step, **params)
        assert found == pytest.approx(value)
        assert trace.classes.weight == pytest.approx([value])


def test_decay_is_a3pos_own():
    for step in (0, 60, 250):
        own = compute(build("a3po", base="grpo"), replace(ONE, step=step)).advantage
        params = {"alpha": 0, "schedule": "decay", "schedule_alpha": 0.005}
        np.testing.assert_allclose(
            compute(build("a3po", base="grpo", params=params), replace(ONE, step=step)).advantage, own
        )


def test_a_selection_ends():
    params = {"schedule": "until", "schedule_steps": 10}
    before, after = (compute(build("psr", params=params), replace(ONE, step=step)) for step in (9, 10))
    assert before.kept[:, 0].tolist() == [True, False, False, False] and after.kept[:, 0].all()


def test_a_penalty_fades_to_zero():
    params = {"coefficient": 2, "ratio": 1, "schedule": "linear", "schedule_steps": 10}
    found = [
        compute(build("kl_cov", params=params), replace(ONE, step=step)).penalty.coefficient[0, 0]
        for step in (0, 5, 10)
    ]
    assert found == pytest.approx([2, 1, 0])


def test_the_words_say_where_the_schedule_is():
    _, trace = weight(25, schedule="linear", schedule_steps=50)
    assert trace.factors[0].reason.endswith("0.5 of it left at step 25, gone at 50")
    assert trace.factors[0].explain(0, 0).endswith("gone at 50")
    assert (
        weight(60, schedule="until", schedule_steps=50)[1].factors[0].reason.endswith("over since step 50, now step 60")
    )
    assert weight(6, schedule="until", schedule_steps=50)[1].factors[0].reason.endswith("until step 50, now step 6")


def test_only_fractions_need_the_runs_length():
    assert "total_steps" in build("adora_amplify", params={"schedule": "linear", "schedule_fraction": 0.5}).needs
    assert "total_steps" not in build("adora_amplify", params={"schedule": "linear", "schedule_steps": 5}).needs
