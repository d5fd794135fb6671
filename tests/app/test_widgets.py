"""Pickers that live in the address, and the tools around a figure."""

from __future__ import annotations

import pytest
from streamlit.testing.v1 import AppTest

from app import widgets
from core.runs import get_run
from tests.app.conftest import STATES
from tests.synthetic import make_run


def stepper():
    import streamlit as st

    from app import widgets

    st.write(f"step {widgets.step_picker([0, 2, 4, 9], total=10)}")


def one_run():
    import streamlit as st

    from app import widgets

    info = widgets.run_picker()
    st.write(f"run {info.id if info else None}")


def several_runs():
    import streamlit as st

    from app import widgets

    st.write(f"runs {[info.id for info in widgets.runs_picker(most=3)]}")


def run(script, **params) -> AppTest:
    at = AppTest.from_function(script, default_timeout=20)
    for name, value in params.items():
        at.query_params[name] = value
    return at.run()


@pytest.mark.parametrize(
    ("asked", "step", "warnings"), [(None, 9, 0), ("2", 2, 0), ("3", 2, 1), ("100", 9, 1), ("two", 9, 1), ("-5", 0, 1)]
)
def test_a_step_that_is_not_there_gives_the_nearest_and_a_sentence(asked, step, warnings):
    at = run(stepper, **({} if asked is None else {"step": asked}))
    assert not at.exception
    assert at.markdown[-1].value == f"step {step}"
    assert len(at.warning) == warnings
    assert "4 steps can be shown here, from 0 to 9" in at.select_slider[0].help


def test_steps_walk_by_buttons_and_stop_at_the_ends():
    at = run(stepper, step="4")
    at.button[0].click().run()
    assert (at.markdown[-1].value, at.query_params["step"]) == ("step 2", "2")
    at.button[0].click().run()
    assert at.markdown[-1].value == "step 0"
    assert at.button[0].disabled
    at.select_slider[0].set_value(9).run()
    assert (at.query_params["step"], at.button[1].disabled) == ("9", True)


def windower():
    import streamlit as st

    from app import widgets

    st.write(f"window {widgets.window_picker([0, 2, 4, 9], (4, 9))}")


@pytest.mark.parametrize(
    ("asked", "window"),
    [
        ([], (4, 9)),
        (["2", "4"], (2, 4)),
        (["9", "0"], (0, 9)),
        (["3"], (2, 4)),
        (["70", "80"], (9, 9)),
        (["x"], (4, 9)),
    ],
)
def test_a_window_is_the_addresses_or_the_default_on_steps_that_are_there(asked, window):
    at = run(windower, **({"steps": asked} if asked else {}))
    assert not at.exception and at.markdown[-1].value == f"window {window}"
    at.select_slider[0].set_range(0, 2).run()
    assert at.markdown[-1].value == "window (0, 2)" and at.query_params["steps"] == ["0", "2"]


def test_one_step_alone_needs_no_slider():
    def single():
        import streamlit as st

        from app import widgets

        st.write(f"step {widgets.step_picker([7])}")

    at = run(single)
    assert not at.exception
    assert at.markdown[-1].value == "step 7"
    assert len(at.select_slider) == 0


def test_the_newest_run_with_a_step_is_the_default_and_goes_into_the_address(states):
    at = run(one_run)
    assert at.query_params["run"] not in ("queued", "empty")
    assert set(at.selectbox[0].options) == set(widgets.run_labels([get_run(states, name) for name in STATES]).values())
    at = run(one_run, run="empty")
    assert at.markdown[-1].value == "run empty"
    at = run(one_run, run="zork")
    assert "no run" in at.warning[0].value
    assert at.query_params["run"] != "zork"


def test_several_runs_come_in_the_order_of_the_address(states):
    at = run(several_runs, run=["stopped", "finished"])
    assert at.markdown[-1].value == "runs ['stopped', 'finished']"
    at.multiselect[0].set_value(["finished"]).run()
    assert at.query_params["run"] == "finished"
    many = run(several_runs, run=list(STATES)[:5])
    assert many.markdown[-1].value == f"runs {list(STATES)[:3]}"
    assert "first 3" in many.warning[0].value


def test_an_emptied_picker_falls_back_to_the_newest(states):
    at = run(several_runs, run=["finished"])
    at.multiselect[0].set_value([]).run()
    assert not at.exception


def test_labels_say_state_name_and_time_and_ids_only_where_needed(tmp_path):
    for name in ("a", "b"):
        make_run(tmp_path, name, steps=2, prompts=2, group_size=2)
    a, b = get_run(tmp_path, "a"), get_run(tmp_path, "b")
    assert widgets.run_label(a).startswith("✓ a · ")
    assert widgets.run_labels([a, b])["a"] == widgets.run_label(a)
    twin = type(b)(**{**b.__dict__, "name": "a", "created": a.created})
    assert widgets.run_labels([a, twin])["b"].endswith("· b")
